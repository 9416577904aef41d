//! Two states of what is desired, in words: which services and endpoints come, go and change.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::desired::{Delta, Desired, Endpoint, Frontend, PortChange, ServicePort};
use crate::model::{PortKey, TrafficPolicy};

/// What changes from one state to another of the same family.
pub fn delta(old: &Desired, new: &Desired) -> Delta {
    let keys: BTreeSet<&PortKey> = old.ports.keys().chain(new.ports.keys()).collect();
    let changes = keys.into_iter().filter_map(|key| {
        let (old, new) = (old.ports.get(key), new.ports.get(key));
        (old != new).then(|| PortChange {
            key: key.clone(),
            old: old.map(Arc::clone),
            new: new.map(Arc::clone),
        })
    });
    let checks = || old.health_checks.keys().chain(new.health_checks.keys());
    let checks: BTreeSet<_> = checks()
        .filter(|key| old.health_checks.get(*key) != new.health_checks.get(*key))
        .cloned()
        .collect();
    Delta {
        node: old.node != new.node,
        ports: changes.collect(),
        checks: checks.into_iter().collect(),
    }
}

/// A delta, a sentence a line.
pub fn in_words(delta: &Delta) -> Vec<String> {
    let mut words = Vec::new();
    if delta.node {
        words.push("the node settings change".to_owned());
    }
    delta
        .ports
        .iter()
        .for_each(|change| port(change, &mut words));
    words
}

fn port(change: &PortChange, words: &mut Vec<String>) {
    let name = format!("{}/{}", change.key, change.key.protocol);
    match (&change.old, &change.new) {
        (None, Some(new)) => words.push(format!(
            "{name} is added: {} with {}",
            frontends(&new.frontends),
            count(new.cluster.len())
        )),
        (Some(old), None) => {
            words.push(format!("{name} is removed: {}", frontends(&old.frontends)));
        }
        (Some(old), Some(new)) => changed(&name, old, new, words),
        (None, None) => {}
    }
}

fn changed(name: &str, old: &ServicePort, new: &ServicePort, words: &mut Vec<String>) {
    let before = words.len();
    let gone = |a: &ServicePort, b: &ServicePort| -> Vec<Frontend> {
        let only = (a.frontends.iter()).filter(|f| b.frontends.binary_search(f).is_err());
        only.copied().collect()
    };
    for (verb, list) in [("gets", gone(new, old)), ("loses", gone(old, new))] {
        if !list.is_empty() {
            words.push(format!("{name} {verb} {}", frontends(&list)));
        }
    }
    for policy in [TrafficPolicy::Cluster, TrafficPolicy::Local] {
        let list = match policy {
            TrafficPolicy::Cluster => "endpoint",
            TrafficPolicy::Local => "local endpoint",
        };
        endpoints(
            name,
            list,
            old.endpoints(policy),
            new.endpoints(policy),
            words,
        );
    }
    let policies = |port: &ServicePort| (port.internal_policy, port.external_policy);
    let choice = |port: &ServicePort| (port.algorithm, port.scheduler);
    let options = [
        ("traffic policies", policies(old) != policies(new)),
        ("session affinity", old.affinity != new.affinity),
        ("source ranges", old.source_ranges != new.source_ranges),
        ("endpoint selection", choice(old) != choice(new)),
    ];
    let options = options.into_iter().filter(|(_, differs)| *differs);
    words.extend(options.map(|(what, _)| format!("{name} changes its {what}")));
    if words.len() == before {
        words.push(match (old.any_endpoints, new.any_endpoints) {
            (true, false) => format!("{name} has no endpoints any more"),
            (false, true) => {
                format!("{name} has endpoints, but its traffic policy allows none on this node")
            }
            _ => format!("{name} changes without effect on new connections"),
        });
    }
}

fn endpoints(name: &str, what: &str, old: &[Endpoint], new: &[Endpoint], words: &mut Vec<String>) {
    let at = |e: &Endpoint| SocketAddr::new(e.ip, e.port);
    // Both are sorted by address and port.
    let find = |list: &[Endpoint], e: &Endpoint| {
        let place = list.binary_search_by_key(&(e.ip, e.port), |other| (other.ip, other.port));
        place.ok().and_then(|place| list.get(place).copied())
    };
    for endpoint in new {
        match find(old, endpoint) {
            None => words.push(format!("{name} gets {what} {}", at(endpoint))),
            Some(before) if before.weight != endpoint.weight => words.push(format!(
                "{name}: {what} {} has weight {}, before {}",
                at(endpoint),
                endpoint.weight,
                before.weight
            )),
            Some(_) => {}
        }
    }
    let gone = old.iter().filter(|endpoint| find(new, endpoint).is_none());
    words.extend(gone.map(|endpoint| format!("{name} loses {what} {}", at(endpoint))));
}

fn frontends(list: &[Frontend]) -> String {
    let one = |frontend: &Frontend| match frontend {
        Frontend::ClusterIp(at) => format!("cluster IP {at}"),
        Frontend::ExternalIp(at) => format!("external IP {at}"),
        Frontend::LoadBalancer(at) => format!("load balancer {at}"),
        Frontend::NodePort(port) => format!("node port {port}"),
    };
    let list: Vec<String> = list.iter().map(one).collect();
    if list.is_empty() {
        "no address".to_owned()
    } else {
        list.join(", ")
    }
}

fn count(endpoints: usize) -> String {
    match endpoints {
        1 => "1 endpoint".to_owned(),
        n => format!("{n} endpoints"),
    }
}
