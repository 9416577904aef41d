//! What we need to know of the node we run on.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::address::{parse_cidr, parse_ip};
use super::name::{check, valid_label_value};
use super::{Unusable, Warning, Warnings, excerpt};
use crate::family::Family;
use crate::wire::{self, Kind};

const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// Set by the cluster autoscaler on a node it is about to remove.
const DELETION_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: Box<str>,
    /// Internal addresses in the order given, then external ones. The first is the node's primary address.
    pub addresses: Box<[IpAddr]>,
    /// Its zone; an empty label counts as none.
    pub zone: Option<Arc<str>>,
    /// The ranges its pods have addresses from.
    pub pod_cidrs: Box<[IpNet]>,
    /// It may take new traffic: it is not being deleted.
    pub eligible: bool,
}

impl Node {
    pub fn parse(object: &wire::Node) -> Result<(Self, Vec<Warning>), Unusable> {
        let name = &object.metadata.name;
        check("metadata.name", name)?;
        let mut warnings = Warnings::new(Kind::Node, name);
        let node = Self {
            name: name.as_str().into(),
            addresses: addresses(&object.status, &mut warnings),
            zone: zone(&object.metadata, &mut warnings),
            pod_cidrs: pod_cidrs(&object.spec, &mut warnings),
            eligible: object.metadata.deletion_timestamp.is_none()
                && !object
                    .spec
                    .taints
                    .iter()
                    .any(|taint| taint.key == DELETION_TAINT),
        };
        Ok((node, warnings.into_vec()))
    }

    /// The node's address of a family: the first one listed.
    pub fn ip(&self, family: Family) -> Option<IpAddr> {
        self.addresses
            .iter()
            .copied()
            .find(|ip| Family::of(*ip) == family)
    }

    /// The family of the node's primary address.
    pub fn primary_family(&self) -> Option<Family> {
        self.addresses.first().copied().map(Family::of)
    }

    /// The first pod range of a family.
    pub(crate) fn pod_cidr(&self, family: Family) -> Option<IpNet> {
        self.pod_cidrs
            .iter()
            .copied()
            .find(|net| Family::of_net(net) == family)
    }
}

/// Addresses in the order in which they are preferred: internal ones before external ones, whatever the order in the object.
fn addresses(status: &wire::NodeStatus, warnings: &mut Warnings<'_>) -> Box<[IpAddr]> {
    let mut found = Vec::new();
    for kind in ["InternalIP", "ExternalIP"] {
        for (i, address) in status
            .addresses
            .iter()
            .enumerate()
            .filter(|(_, a)| a.kind == kind)
        {
            match parse_ip(&address.address) {
                Some(ip) => found.push(ip),
                None => {
                    let problem = format!("{} is not an address", excerpt(&address.address));
                    warnings.add(format!("status.addresses[{i}].address"), problem);
                }
            }
        }
    }
    found.into()
}

/// The zone. A label that is there but empty says as little as none.
fn zone(metadata: &wire::Metadata, warnings: &mut Warnings<'_>) -> Option<Arc<str>> {
    let zone = metadata
        .labels
        .get(ZONE_LABEL)
        .filter(|zone| !zone.is_empty())?;
    if valid_label_value(zone) {
        return Some(zone.as_str().into());
    }
    let problem = format!(
        "{} is not a valid zone; topology hints are ignored",
        excerpt(zone)
    );
    warnings.add(format!("metadata.labels[{ZONE_LABEL}]"), problem);
    None
}

fn pod_cidrs(spec: &wire::NodeSpec, warnings: &mut Warnings<'_>) -> Box<[IpNet]> {
    // Objects from before dual-stack have only the singular field.
    let singular =
        Some(&spec.pod_cidr).filter(|cidr| spec.pod_cidrs.is_empty() && !cidr.is_empty());
    let mut found = Vec::new();
    for (i, text) in spec.pod_cidrs.iter().chain(singular).enumerate() {
        match parse_cidr(text) {
            Some(net) => found.push(net),
            None => warnings.add(
                format!("spec.podCIDRs[{i}]"),
                format!("{} is not a range", excerpt(text)),
            ),
        }
    }
    found.into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(value: Value) -> (Node, Vec<Warning>) {
        Node::parse(&serde_json::from_value(value).unwrap()).unwrap()
    }

    #[test]
    fn internal_addresses_come_first() {
        let (node, warnings) = parse(json!({
            "metadata": {"name": "n1"},
            "status": {"addresses": [
                {"type": "ExternalIP", "address": "203.0.113.1"},
                {"type": "Hostname", "address": "n1"},
                {"type": "InternalIP", "address": "fd00::1"},
                {"type": "InternalIP", "address": "bogus"},
                {"type": "InternalIP", "address": "010.0.0.1"},
            ]},
        }));
        assert_eq!(node.primary_family(), Some(Family::V6));
        assert_eq!(node.ip(Family::V4).unwrap().to_string(), "10.0.0.1");
        assert_eq!(node.ip(Family::V6).unwrap().to_string(), "fd00::1");
        assert_eq!(warnings.len(), 1);
        assert_eq!(
            warnings[0].to_string(),
            "Node n1: status.addresses[3].address: \"bogus\" is not an address"
        );
    }

    #[test]
    fn zone_and_pod_ranges() {
        let zoned = |zone: &str| {
            parse(json!({"metadata": {"name": "n1", "labels": {ZONE_LABEL: zone}}}))
                .0
                .zone
        };
        assert_eq!(zoned("eu-1a").as_deref(), Some("eu-1a"));
        assert_eq!(zoned(""), None);
        assert_eq!(zoned("a\nb"), None);

        let (node, _) = parse(json!({"metadata": {"name": "n1"}, "spec": {
            "podCIDR": "10.9.0.0/24", "podCIDRs": ["fd00:1::/64", "10.1.0.0/24", "10.2.0.0/24"]}}));
        assert_eq!(
            node.pod_cidr(Family::V4).unwrap().to_string(),
            "10.1.0.0/24"
        );
        assert_eq!(
            node.pod_cidr(Family::V6).unwrap().to_string(),
            "fd00:1::/64"
        );
        let (old, _) =
            parse(json!({"metadata": {"name": "n1"}, "spec": {"podCIDR": "10.9.0.0/24"}}));
        assert_eq!(old.pod_cidr(Family::V4).unwrap().to_string(), "10.9.0.0/24");
    }

    #[test]
    fn a_node_on_its_way_out_is_not_eligible() {
        let eligible = |value| parse(value).0.eligible;
        assert!(eligible(
            json!({"metadata": {"name": "n1"}, "spec": {"taints": [{"key": "other"}]}})
        ));
        assert!(!eligible(
            json!({"metadata": {"name": "n1"}, "spec": {"taints": [{"key": DELETION_TAINT}]}})
        ));
        let deleted =
            json!({"metadata": {"name": "n1", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert!(!eligible(deleted));
    }

    #[test]
    fn a_hostile_name_is_refused() {
        let node = wire::Node {
            metadata: wire::Metadata {
                name: "a\nb".into(),
                ..Default::default()
            },
            ..Default::default()
        };
        assert!(matches!(Node::parse(&node), Err(Unusable::Broken { .. })));
    }
}
