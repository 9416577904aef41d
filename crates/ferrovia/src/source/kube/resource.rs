//! What is asked for: the resources with their selectors, and the query of each kind of request.
//!
//! The same requests as kube-proxy's, so the role that allows them is the same too.

use std::fmt::Write as _;
use std::time::Duration;

use ferrovia_core::wire::Kind;

/// Objects on one page of a list.
const PAGE: u32 = 500;

/// One resource to follow.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    pub(super) kind: Kind,
    /// The name in the API's paths and roles.
    pub(super) plural: &'static str,
    /// A server may not have it: it is younger than what we support, or the role does not name it.
    pub(super) may_be_missing: bool,
    root: &'static str,
    fields: Option<String>,
    labels: Option<&'static str>,
}

/// One page of a list, or all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Page {
    /// The first page of a list from the server's watch cache, however old: without a limit, which the server ignores there, but one
    /// without a watch cache sends pages.
    Cached,
    /// Everything at once, at least as new as this resourceVersion. A limit would make the server read its storage.
    NotOlderThan(String),
    /// The first page of a consistent read of the storage.
    Consistent,
    /// The page after the one that ended here, in the server's words.
    After(String),
    /// Everything at once, as a consistent read.
    Whole,
}

impl Resource {
    /// Everything a proxy follows.
    pub(super) fn all(node_name: &str) -> [Self; 4] {
        [
            Self {
                kind: Kind::Node,
                plural: "nodes",
                may_be_missing: false,
                root: "/api/v1",
                fields: Some(format!("metadata.name={node_name}")),
                labels: None,
            },
            // Headless Services and those that ask for another proxy are none of our business.
            Self {
                kind: Kind::Service,
                plural: "services",
                may_be_missing: false,
                root: "/api/v1",
                fields: Some("spec.clusterIP!=None".to_owned()),
                labels: Some("!service.kubernetes.io/service-proxy-name"),
            },
            Self {
                kind: Kind::EndpointSlice,
                plural: "endpointslices",
                may_be_missing: false,
                root: "/apis/discovery.k8s.io/v1",
                fields: None,
                labels: Some("!service.kubernetes.io/headless"),
            },
            Self {
                kind: Kind::ServiceCidr,
                plural: "servicecidrs",
                may_be_missing: true,
                root: "/apis/networking.k8s.io/v1",
                fields: None,
                labels: None,
            },
        ]
    }

    /// A watch that begins with all objects and says when that was all. The state is at least as new as the resourceVersion; without one it
    /// is as new as a consistent read.
    pub(super) fn watch_list(&self, resource_version: Option<&str>, lasts: Duration) -> String {
        let timeout = lasts.as_secs().max(1).to_string();
        let mut parameters = vec![("allowWatchBookmarks", "true")];
        parameters.extend(resource_version.map(|version| ("resourceVersion", version)));
        parameters.extend([
            ("resourceVersionMatch", "NotOlderThan"),
            ("sendInitialEvents", "true"),
            ("timeoutSeconds", &timeout),
            ("watch", "true"),
        ]);
        self.query(&parameters)
    }

    /// A watch of what happened after this version.
    pub(super) fn watch(&self, version: &str, lasts: Duration) -> String {
        self.query(&[
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version),
            ("timeoutSeconds", &lasts.as_secs().max(1).to_string()),
            ("watch", "true"),
        ])
    }

    /// A list.
    pub(super) fn page(&self, page: &Page) -> String {
        let size = PAGE.to_string();
        let limit = ("limit", size.as_str());
        match page {
            Page::Cached => self.query(&[limit, ("resourceVersion", "0")]),
            Page::NotOlderThan(version) => self.query(&[("resourceVersion", version)]),
            Page::Consistent => self.query(&[limit]),
            Page::After(end) => self.query(&[("continue", end), limit]),
            Page::Whole => self.query(&[]),
        }
    }

    fn query(&self, parameters: &[(&str, &str)]) -> String {
        let selectors = [
            ("fieldSelector", self.fields.as_deref()),
            ("labelSelector", self.labels),
        ];
        let selectors = selectors
            .into_iter()
            .filter_map(|(name, selector)| Some((name, selector?)));
        let mut uri = format!("{}/{}", self.root, self.plural);
        let mut mark = '?';
        for (name, value) in selectors.chain(parameters.iter().copied()) {
            uri.push(mark);
            uri.push_str(name);
            uri.push('=');
            push_encoded(&mut uri, value);
            mark = '&';
        }
        uri
    }
}

/// The cheapest consistent read that kube-proxy's role allows: our own Node, which the server finds by its key.
pub(super) fn probe(node_name: &str) -> String {
    let [node, ..] = Resource::all(node_name);
    node.query(&[("limit", "1")])
}

/// Percent-encodes all but what means nothing special anywhere in a URL.
fn push_encoded(out: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: Kind) -> Resource {
        let all = Resource::all("node-1");
        all.into_iter()
            .find(|resource| resource.kind == kind)
            .expect("every kind but Endpoints is there")
    }

    #[test]
    fn the_selectors_are_kube_proxys() {
        let lasts = Duration::from_secs(300);
        assert_eq!(
            of(Kind::Service).watch_list(None, lasts),
            "/api/v1/services?fieldSelector=spec.clusterIP%21%3DNone\
             &labelSelector=%21service.kubernetes.io%2Fservice-proxy-name\
             &allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true\
             &timeoutSeconds=300&watch=true"
        );
        assert_eq!(
            of(Kind::Node).watch("42", lasts),
            "/api/v1/nodes?fieldSelector=metadata.name%3Dnode-1\
             &allowWatchBookmarks=true&resourceVersion=42&timeoutSeconds=300&watch=true"
        );
        assert_eq!(
            of(Kind::Node).watch_list(Some("42"), lasts),
            "/api/v1/nodes?fieldSelector=metadata.name%3Dnode-1\
             &allowWatchBookmarks=true&resourceVersion=42&resourceVersionMatch=NotOlderThan\
             &sendInitialEvents=true&timeoutSeconds=300&watch=true"
        );
        assert_eq!(
            of(Kind::EndpointSlice).page(&Page::Cached),
            "/apis/discovery.k8s.io/v1/endpointslices\
             ?labelSelector=%21service.kubernetes.io%2Fheadless&limit=500&resourceVersion=0"
        );
    }

    #[test]
    fn pages_say_how_fresh_they_have_to_be() {
        let page = |page: &Page| of(Kind::ServiceCidr).page(page);
        let path = "/apis/networking.k8s.io/v1/servicecidrs";
        let after = Page::After("a b&c".to_owned());
        assert_eq!(page(&after), format!("{path}?continue=a%20b%26c&limit=500"));
        let newer = Page::NotOlderThan("7".to_owned());
        assert_eq!(page(&newer), format!("{path}?resourceVersion=7"));
        assert_eq!(page(&Page::Consistent), format!("{path}?limit=500"));
        assert_eq!(page(&Page::Whole), path);
    }

    #[test]
    fn a_hostile_node_name_stays_a_value() {
        let [node, ..] = Resource::all("x&watch=false");
        assert!(
            node.page(&Page::Cached)
                .contains("fieldSelector=metadata.name%3Dx%26watch%3Dfalse&")
        );
    }
}
