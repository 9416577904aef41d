//! A four-byte hash of a pod's name, to find the endpoints of a pod.

use std::borrow::Cow;
use std::num::NonZeroU32;

use serde::{Deserialize, Deserializer};

/// A hash of a pod's name, by which endpoints of that pod are found.
///
/// Names take more memory than the rest of an endpoint and are only needed for queries about one pod. The hash fits where
/// an endpoint has padding anyway. Hashes may collide: among the 250,000 endpoints of a large cluster an absent name
/// matches another with a probability of one in 17,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PodNameHash(NonZeroU32);

impl PodNameHash {
    /// FNV-1a: names are short, and forging a collision gains nothing.
    pub fn of(name: &str) -> Self {
        let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        Self(NonZeroU32::new(hash).unwrap_or(NonZeroU32::MIN))
    }

    /// Deserializes a `targetRef`; `None` unless it refers to a Pod.
    pub(crate) fn of_target<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Self>, D::Error> {
        let target = Option::<TargetRef<'de>>::deserialize(deserializer)?.unwrap_or_default();
        let is_pod = target.kind.is_some_and(|kind| kind == "Pod");
        Ok(target.name.filter(|_| is_pod).map(|name| Self::of(&name)))
    }
}

/// `targetRef`. Its namespace is the slice's own.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TargetRef<'a> {
    #[serde(borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Endpoint;

    fn mark(json: &str) -> Option<PodNameHash> {
        let endpoint: Endpoint = serde_json::from_str(json).unwrap();
        endpoint.pod
    }

    #[test]
    fn only_references_to_pods_are_hashed() {
        let web = Some(PodNameHash::of("web-1"));
        assert_eq!(
            mark(
                r#"{"targetRef": {"kind": "Pod", "name": "web-1", "namespace": "shop", "uid": "1"}}"#
            ),
            web
        );
        assert_ne!(PodNameHash::of("web-2"), PodNameHash::of("web-1"));
        for none in [
            r#"{}"#,
            r#"{"targetRef": null}"#,
            r#"{"targetRef": {}}"#,
            r#"{"targetRef": {"kind": "Pod", "name": null}}"#,
            r#"{"targetRef": {"kind": "VirtualMachine", "name": "web-1"}}"#,
        ] {
            assert_eq!(mark(none), None, "{none}");
        }
    }

    #[test]
    fn the_hash_adds_no_memory_to_an_endpoint() {
        assert_eq!(size_of::<crate::model::SliceEndpoint>(), 48);
    }
}
