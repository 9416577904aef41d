//! What the rules of every service depend on besides the service.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::desired::{LocalDetector, NoEndpoints, NodePortAddresses, NodeRules};
use crate::dialect::iptables::{Commits, IptablesRule, IptablesTarget};
use crate::family::Family;

/// Above so many endpoints the comments that name one endpoint are left out: they are nearly half of the text.
const LARGE: usize = 1000;

/// The mark of packets that KUBE-FIREWALL drops: the one the kubelet used to set, which other software knows.
pub const DROP_MARK: u32 = 0x8000;

/// What the mode can do here, and what is asked of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IptablesOptions {
    /// Node ports answer on IPv4's loopback too. Only where the addresses node ports answer on include it.
    pub localhost_node_ports: bool,
    /// Packets that conntrack cannot place are dropped instead of being forwarded with their original addresses.
    pub drop_invalid: bool,
    /// The kernel has a counter for packets dropped that way.
    pub count_invalid: bool,
    /// The kernel has a counter for connections to node ports on loopback.
    pub count_localhost: bool,
    /// How many transactions a big change is cut into.
    pub commits: Commits,
}

impl Default for IptablesOptions {
    fn default() -> Self {
        Self {
            localhost_node_ports: true,
            drop_invalid: true,
            count_invalid: false,
            count_localhost: false,
            commits: Commits::Many,
        }
    }
}

/// What the rules of every service depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IptablesContext {
    pub(super) family: Family,
    pub(super) options: IptablesOptions,
    pub(super) node: NodeRules,
    /// There are so many endpoints that comments naming them are left out.
    pub(super) is_large: bool,
}

impl IptablesContext {
    pub(super) fn new(
        family: Family,
        options: IptablesOptions,
        node: &NodeRules,
        endpoints: usize,
    ) -> Self {
        Self {
            family,
            options,
            node: NodeRules {
                // They mean nothing to this mode, so a change of them is none.
                service_cidrs: Vec::new(),
                addresses: BTreeSet::new(),
                ..node.clone()
            },
            is_large: endpoints > LARGE,
        }
    }

    /// Node ports answer on loopback. The kernel cannot do that for IPv6.
    pub(super) fn localhost(&self) -> bool {
        self.family == Family::V4 && self.options.localhost_node_ports
    }

    /// The rule for packets of this node's pods only; `None` without local traffic detection.
    pub(super) fn only_pods(&self, rule: IptablesRule) -> Option<IptablesRule> {
        only_pods(&self.node.local, rule)
    }

    /// The rule for all other packets; `None` without local traffic detection, or if there are no others.
    pub(super) fn only_others(&self, rule: IptablesRule) -> Option<IptablesRule> {
        only_others(&self.node.local, rule)
    }

    /// Services without endpoints are dropped by way of a mark: KUBE-MARK-DROP sets it, KUBE-FIREWALL drops.
    pub(super) fn drops_by_mark(&self) -> bool {
        self.node.no_endpoints == NoEndpoints::Drop
    }

    pub(super) fn reject(&self) -> IptablesTarget {
        IptablesTarget::Reject(self.family)
    }

    /// Where node ports answer.
    pub(super) fn node_ports(&self) -> &NodePortAddresses {
        &self.node.node_ports
    }

    /// The machine's loopback addresses in the ranges where node ports should answer. [`NodeRules::node_ports`] leaves them out, because
    /// most modes cannot serve them. A range within 127.0.0.0/8 need not have 127.0.0.1 in it.
    pub(super) fn loopback_node_ports(&self) -> Vec<IpAddr> {
        match &self.node.health_checks {
            NodePortAddresses::Only(addresses) if self.localhost() => {
                let addresses = addresses.iter().copied();
                addresses.filter(IpAddr::is_loopback).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// The rule for packets of this node's pods only; `None` without local traffic detection.
pub(in crate::plan) fn only_pods(
    local: &LocalDetector,
    rule: IptablesRule,
) -> Option<IptablesRule> {
    match local {
        LocalDetector::Off => None,
        LocalDetector::Source(net) => Some(rule.source(*net)),
        LocalDetector::Interface(name) => Some(rule.input(false, name)),
        LocalDetector::InterfacePrefix(prefix) => Some(rule.input(false, &format!("{prefix}+"))),
    }
}

/// The rule for all other packets; `None` without local traffic detection, or if there are no others.
pub(in crate::plan) fn only_others(
    local: &LocalDetector,
    rule: IptablesRule,
) -> Option<IptablesRule> {
    match local {
        LocalDetector::Off => None,
        LocalDetector::Source(net) if net.prefix_len() == 0 => None,
        LocalDetector::Source(net) => Some(rule.not_source(*net)),
        LocalDetector::Interface(name) => Some(rule.input(true, name)),
        LocalDetector::InterfacePrefix(prefix) => Some(rule.input(true, &format!("{prefix}+"))),
    }
}
