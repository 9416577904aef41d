//! Which documents of a folder can matter to a question, judged by their text alone.
//!
//! A document matters if it mentions an address of the question, or a Service that one of those documents is about; Nodes, ranges of cluster
//! IPs and lists always do. What is written in unusual ways may be missed: an answer that names no Service is therefore not to be believed
//! before all has been read.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ferrovia_core::model::ServiceKey;
use ferrovia_core::store::Event;
use ferrovia_core::wire::Object;

use super::packet::{Destination, Question, Source};

/// The label of a slice that says whose it is.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// What a document that matters mentions.
#[derive(Debug, Default)]
pub struct Relevance {
    addresses: BTreeSet<IpAddr>,
    /// Names, and the numbers of node ports.
    words: BTreeSet<String>,
    /// The Service that is asked about by name.
    service: Option<ServiceKey>,
}

impl Relevance {
    /// What matters to a question on a node with these addresses.
    pub fn to(question: &Question, local: &[IpAddr]) -> Self {
        let mut relevance = Self::default();
        match &question.source {
            Source::Node | Source::Outside => {}
            Source::Address(ip) => drop(relevance.addresses.insert(*ip)),
            Source::Pod { name, .. } => drop(relevance.words.insert(name.clone())),
        }
        match &question.destination {
            Destination::Address(at, _) => {
                relevance.addresses.insert(at.ip());
                if at.ip().is_loopback() || local.contains(&at.ip()) {
                    relevance.words.insert(at.port().to_string());
                }
            }
            Destination::Service { key, .. } => {
                relevance.words.insert(key.name().to_owned());
                relevance.service = Some(key.clone());
            }
        }
        relevance
    }

    /// A document matters.
    pub fn concerns(&self, document: &str) -> bool {
        self.words.iter().any(|word| has_word(document, word))
            || self.addresses.iter().any(|ip| mentions(document, *ip))
            || is_always_needed(document)
            || may_hide_words(document)
    }

    /// Takes in the addresses of the Service that is asked about by name.
    pub fn learn_addresses(&mut self, events: &[Event]) {
        let Some(key) = &self.service else { return };
        let services = objects(events).filter_map(|object| match object {
            Object::Service(service) => Some(service),
            _ => None,
        });
        let meant = services.filter(|service| {
            let metadata = &service.metadata;
            metadata.namespace == key.namespace() && metadata.name == key.name()
        });
        for service in meant {
            let spec = &service.spec;
            let all = spec.cluster_ips.iter().chain([&spec.cluster_ip]);
            self.addresses
                .extend(all.filter_map(|ip| ip.parse::<IpAddr>().ok()));
        }
    }

    /// Takes in the names of all Services that the objects are about.
    pub fn learn_names(&mut self, events: &[Event]) {
        let names = objects(events).filter_map(|object| match object {
            Object::Service(service) => Some(&service.metadata.name),
            Object::EndpointSlice(slice) => slice.metadata.labels.get(SERVICE_LABEL),
            Object::Endpoints(endpoints) => Some(&endpoints.metadata.name),
            Object::Node(_) | Object::ServiceCidr(_) => None,
        });
        self.words.extend(names.cloned());
    }
}

fn objects(events: &[Event]) -> impl Iterator<Item = &Object> {
    events.iter().filter_map(|event| match event {
        Event::Applied(object) => Some(&**object),
        _ => None,
    })
}

/// Part of a name or a number.
fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '.'
}

/// The text has this word, not as a part of another.
fn has_word(text: &str, word: &str) -> bool {
    // The search for any occurrence is much faster than the one that tells where they are.
    !word.is_empty()
        && text.contains(word)
        && text.match_indices(word).any(|(at, _)| {
            let before = text.get(..at).and_then(|text| text.chars().next_back());
            let after = text
                .get(at + word.len()..)
                .and_then(|text| text.chars().next());
            !before.is_some_and(is_part) && !after.is_some_and(is_part)
        })
}

/// The text mentions an address. IPv6 can be written in many ways.
fn mentions(text: &str, ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => has_word(text, &ip.to_string()),
        IpAddr::V6(ip) => {
            let is_digit = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
            let words = text.split(|c| !is_digit(c));
            let mut candidates = words.filter(|word| word.len() > 1 && word.contains(':'));
            candidates
                .any(|word| word.parse() == Ok(ip) || word.trim_end_matches(':').parse() == Ok(ip))
        }
    }
}

/// It may be a Node, a range of cluster IPs, or a list of anything.
fn is_always_needed(text: &str) -> bool {
    text.contains("ServiceCIDR") || text.contains("List") || has_word(text, "Node")
}

/// Escapes, aliases and merges make a text mean more than it says.
fn may_hide_words(text: &str) -> bool {
    text.contains('\\') || text.contains(" *") || text.contains("<<")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relevance(from: &str, to: &str) -> Relevance {
        let question = Question::read(from, to).unwrap();
        Relevance::to(&question, &["198.51.100.10".parse().unwrap()])
    }

    #[test]
    fn what_mentions_the_question_matters() {
        let v4 = relevance("10.244.1.20", "10.96.0.10:80");
        assert!(v4.concerns("clusterIP: 10.96.0.10\n") && v4.concerns("- 10.244.1.20"));
        assert!(!v4.concerns("clusterIP: 10.96.0.100\n") && !v4.concerns("110.96.0.10"));
        assert!(!v4.concerns("kind: Service\ntype: NodePort\nnodePort: 80"));
        let v6 = relevance("node", "[fd00::a]:80");
        for text in ["'fd00::a'", "[FD00:0:0::000a, x]", "- fd00:0:0:0:0:0:0:a\n"] {
            assert!(v6.concerns(text), "{text}");
        }
        assert!(!v6.concerns("fd00::ab") && !v6.concerns("time: 10:00:00"));
        let node_port = relevance("outside", "198.51.100.10:30080");
        assert!(node_port.concerns("nodePort: 30080}") && !node_port.concerns("130080"));
        assert!(!relevance("outside", "203.0.113.1:30080").concerns("nodePort: 30080"));
        let name = relevance("pod/shop/web-0", "service/shop/web");
        assert!(name.concerns("name: web\n") && name.concerns("{name: web-0}"));
        assert!(!name.concerns("name: web-1\n"));
    }

    #[test]
    fn what_holds_for_all_services_always_matters() {
        let nothing = Relevance::default();
        for text in [
            "kind: Node\n",
            "{\"kind\":\"Node\"}",
            "kind: ServiceCIDR",
            "kind: ServiceList",
            "name: \"\\x77eb\"",
            "clusterIP: *ip",
        ] {
            assert!(nothing.concerns(text), "{text}");
        }
        assert!(!nothing.concerns("kind: Service\nspec: {type: NodePort}\nnodeName: n1"));
    }
}
