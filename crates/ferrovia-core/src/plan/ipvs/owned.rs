//! Which of the virtual servers in the kernel are ours, or were a kube-proxy's. Others are nobody's business but their makers'.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::plan::Observed;
use super::sets::SetId;
use crate::dialect::ipset::Entry;
use crate::dialect::ipvs::ServerKey;
use crate::family::Family;
use crate::model::Protocol;

/// What tells our servers from others: the device, and the sets, which list every service's addresses and node ports. Their entries go
/// after the servers, so one that could not be deleted is still known the next time.
pub(super) struct Owned<'a> {
    observed: &'a Observed,
    /// The node's own addresses, where node ports answer.
    node: &'a BTreeSet<IpAddr>,
}

impl<'a> Owned<'a> {
    pub(super) fn new(observed: &'a Observed, node: &'a BTreeSet<IpAddr>) -> Self {
        Self { observed, node }
    }

    pub(super) fn has(&self, key: &ServerKey) -> bool {
        let at = Entry::IpPort(key.address, key.protocol, key.port);
        let listed = |set| self.lists(key, set, &at);
        self.observed.addresses.contains(&key.address)
            || self.lists(key, SetId::Addresses, &Entry::Ip(key.address))
            || SetId::VIPS.into_iter().any(listed)
            || self.is_node_port(key, &at)
    }

    fn is_node_port(&self, key: &ServerKey, at: &Entry) -> bool {
        let entry = match key.protocol {
            Protocol::Sctp => at,
            Protocol::Tcp | Protocol::Udp => &Entry::Port(key.port),
        };
        self.node.contains(&key.address) && self.lists(key, SetId::node_port(key.protocol), entry)
    }

    fn lists(&self, key: &ServerKey, set: SetId, entry: &Entry) -> bool {
        let name = set.name(Family::of(key.address));
        let set = self.observed.sets.get(&name);
        set.is_some_and(|set| set.entries.contains(entry))
    }
}
