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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    /// Where the page before ended, in the server's words.
    pub(super) after: Option<String>,
    /// Ask for everything at once.
    pub(super) whole: bool,
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

    /// A watch that begins with all objects and says when that was all.
    pub(super) fn streaming_list(&self, lasts: Duration) -> String {
        self.query(&[
            ("allowWatchBookmarks", "true"),
            ("resourceVersionMatch", "NotOlderThan"),
            ("sendInitialEvents", "true"),
            ("timeoutSeconds", &lasts.as_secs().max(1).to_string()),
            ("watch", "true"),
        ])
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

    /// A list. No version is given, so the answer is the newest there is, not what some cache remembers.
    pub(super) fn page(&self, page: &Page) -> String {
        let mut parameters = Vec::new();
        if let Some(after) = &page.after {
            parameters.push(("continue", after.as_str()));
        }
        let size = PAGE.to_string();
        if !page.whole {
            parameters.push(("limit", &size));
        }
        self.query(&parameters)
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
            of(Kind::Service).streaming_list(lasts),
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
            of(Kind::EndpointSlice).page(&Page::default()),
            "/apis/discovery.k8s.io/v1/endpointslices\
             ?labelSelector=%21service.kubernetes.io%2Fheadless&limit=500"
        );
    }

    #[test]
    fn a_page_goes_on_where_the_last_one_ended() {
        let next = Page {
            after: Some("a b&c".to_owned()),
            whole: false,
        };
        assert_eq!(
            of(Kind::ServiceCidr).page(&next),
            "/apis/networking.k8s.io/v1/servicecidrs?continue=a%20b%26c&limit=500"
        );
        let whole = Page {
            after: None,
            whole: true,
        };
        assert_eq!(
            of(Kind::ServiceCidr).page(&whole),
            "/apis/networking.k8s.io/v1/servicecidrs"
        );
    }

    #[test]
    fn a_hostile_node_name_stays_a_value() {
        let [node, ..] = Resource::all("x&watch=false");
        assert!(
            node.page(&Page::default())
                .contains("fieldSelector=metadata.name%3Dx%26watch%3Dfalse&")
        );
    }
}
