//! Which virtual servers in the kernel are ours or a kube-proxy's. Those of other processes are never changed.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::plan::IpvsObserved;
use super::sets::IpvsSetId;
use crate::dialect::ipset::IpsetEntry;
use crate::dialect::ipvs::VirtualServerKey;
use crate::family::Family;
use crate::model::Protocol;

/// Identifies our servers by the device and the sets, which list every service's addresses and node ports. Their entries are removed
/// after the servers, so a server that could not be deleted is still identified on the next attempt.
pub(super) struct ServerOwnership<'a> {
    observed: &'a IpvsObserved,
    /// The node's own addresses, where node ports answer.
    node: &'a BTreeSet<IpAddr>,
}

impl<'a> ServerOwnership<'a> {
    pub(super) fn new(observed: &'a IpvsObserved, node: &'a BTreeSet<IpAddr>) -> Self {
        Self { observed, node }
    }

    pub(super) fn has(&self, key: &VirtualServerKey) -> bool {
        let at = IpsetEntry::IpPort(key.address, key.protocol, key.port);
        let node_address_frontends = |set| self.lists(key, set, &at);
        self.observed.addresses.contains(&key.address)
            || self.lists(key, IpvsSetId::Addresses, &IpsetEntry::Ip(key.address))
            || IpvsSetId::VIPS.into_iter().any(node_address_frontends)
            || self.is_node_port(key, &at)
    }

    fn is_node_port(&self, key: &VirtualServerKey, at: &IpsetEntry) -> bool {
        let entry = match key.protocol {
            Protocol::Sctp => at,
            Protocol::Tcp | Protocol::Udp => &IpsetEntry::Port(key.port),
        };
        self.node.contains(&key.address)
            && self.lists(key, IpvsSetId::node_port(key.protocol), entry)
    }

    fn lists(&self, key: &VirtualServerKey, set: IpvsSetId, entry: &IpsetEntry) -> bool {
        let name = set.name(Family::of(key.address));
        let set = self.observed.sets.get(&name);
        set.is_some_and(|set| set.entries.contains(entry))
    }
}
