//! Which pod an endpoint is, in four bytes.

use std::borrow::Cow;
use std::num::NonZeroU32;

use serde::{Deserialize, Deserializer};

/// A mark of a pod's name, by which endpoints are found that are that pod.
///
/// Names take more memory than all the rest of an endpoint, and nobody but a person who asks about one pod ever wants them. A mark fits where
/// an endpoint has room anyway. Two names may have the same one: among the 250,000 endpoints of a large cluster a name that is not there
/// is taken for another with a chance of one in 17,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PodMark(NonZeroU32);

impl PodMark {
    /// The mark of a name: FNV-1a, which is all that is needed of short names that nobody gains from forging.
    pub fn of(name: &str) -> Self {
        let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        Self(NonZeroU32::new(hash).unwrap_or(NonZeroU32::MIN))
    }

    /// Reads a reference to an object; none if that is no pod.
    pub(crate) fn of_target<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Self>, D::Error> {
        let target = Option::<Target<'de>>::deserialize(deserializer)?.unwrap_or_default();
        let is_pod = target.kind.is_some_and(|kind| kind == "Pod");
        Ok(target.name.filter(|_| is_pod).map(|name| Self::of(&name)))
    }
}

/// `targetRef`. Its namespace is the slice's own.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Target<'a> {
    #[serde(borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Endpoint;

    fn mark(json: &str) -> Option<PodMark> {
        let endpoint: Endpoint = serde_json::from_str(json).unwrap();
        endpoint.pod
    }

    #[test]
    fn only_references_to_pods_are_marks() {
        let web = Some(PodMark::of("web-1"));
        assert_eq!(
            mark(
                r#"{"targetRef": {"kind": "Pod", "name": "web-1", "namespace": "shop", "uid": "1"}}"#
            ),
            web
        );
        assert_ne!(PodMark::of("web-2"), PodMark::of("web-1"));
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
    fn a_mark_takes_no_room() {
        assert_eq!(size_of::<crate::model::Endpoint>(), 48);
    }
}
