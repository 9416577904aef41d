//! Derives [`NodeRules`], which all services share, from settings, the Node object and the addresses on interfaces.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::{LocalDetector, NoEndpoints, NodePortAddresses, NodeRules};
use crate::family::{Family, PerFamily};
use crate::model::node::Node;
use crate::model::{ServicePolicy, fold_nested};
use crate::store::Store;

/// Settings of this node.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    pub node_name: String,
    /// This node's addresses, where they are set by hand; they go before those of the Node object.
    pub node_ips: PerFamily<Option<IpAddr>>,
    /// How traffic from local pods is detected.
    pub local: LocalSetting,
    /// Masquerade all traffic to cluster IPs.
    pub masquerade_all: bool,
    /// Which bit of the packet mark asks for masquerading, 0 to 31.
    pub masquerade_bit: u8,
    /// What becomes of packets to a Service without any endpoints.
    pub no_endpoints: NoEndpoints,
    /// Masquerade what pods send to addresses outside of these ranges, the pods' own among them; none leaves pods' addresses alone.
    pub egress_except: Option<Vec<IpNet>>,
    /// Where node ports answer.
    pub node_ports: NodePortSetting,
    /// What of a Service is served; for the store.
    pub services: ServicePolicy,
}

/// How traffic from this node's pods is detected.
#[derive(Clone, Debug)]
pub enum LocalSetting {
    /// By the cluster's pod ranges; the first of each family counts, none turns detection off for that family.
    ClusterCidr(Vec<IpNet>),
    /// By the Node object's pod ranges.
    NodeCidr,
    Interface(String),
    InterfacePrefix(String),
}

/// Where node ports answer.
#[derive(Clone, Debug)]
pub enum NodePortSetting {
    /// On every local address; on loopback only where the mode can.
    Any,
    /// On the node's own address of each family.
    Primary,
    /// On local addresses inside these ranges.
    Cidrs(Vec<IpNet>),
}

impl NodePortSetting {
    /// Whether the ranges asked for have a family's loopback in them. Rules alone cannot serve node ports there, so each mode has its own
    /// way, or none.
    pub fn cover_loopback(&self, family: Family) -> bool {
        let loopback = family.loopback();
        match self {
            Self::Any => true,
            Self::Primary => false,
            Self::Cidrs(nets) => {
                let mut of_family = nets.iter().filter(|net| Family::of_net(net) == family);
                let covers =
                    |net: &IpNet| loopback.contains(net) || net.contains(&loopback.network());
                // Ranges of the other family alone leave this one unrestricted.
                of_family.clone().next().is_none() || of_family.any(covers)
            }
        }
    }
}

impl NodeSettings {
    /// Default settings for the node of this name.
    pub fn of_node(name: &str) -> Self {
        Self {
            node_name: name.to_owned(),
            node_ips: PerFamily::default(),
            local: LocalSetting::ClusterCidr(Vec::new()),
            masquerade_all: false,
            masquerade_bit: 14,
            no_endpoints: NoEndpoints::Reject,
            egress_except: None,
            node_ports: NodePortSetting::Any,
            services: ServicePolicy::default(),
        }
    }

    /// This node's address of a family, if known.
    pub(super) fn node_ip(&self, node: Option<&Node>, family: Family) -> Option<IpAddr> {
        self.node_ips[family].or_else(|| node?.ip(family))
    }
}

/// The rules of one family.
pub(super) fn rules(
    settings: &NodeSettings,
    store: &Store,
    local_addresses: &[IpAddr],
    family: Family,
) -> NodeRules {
    let mut service_cidrs = store.service_cidrs();
    service_cidrs.retain(|net| Family::of_net(net) == family);
    let addresses = local_addresses_in_ranges(settings, store.node(), local_addresses, family);
    NodeRules {
        local: local_detector(&settings.local, store.node(), family),
        masquerade_all: settings.masquerade_all,
        masquerade_mark: 1u32
            .checked_shl(settings.masquerade_bit.into())
            .unwrap_or(0),
        no_endpoints: settings.no_endpoints,
        egress_except: egress_except(settings, family),
        addresses: own_addresses(local_addresses, family),
        node_ports: without_loopback(addresses.clone()),
        health_checks: addresses,
        service_cidrs,
    }
}

/// The ranges that pods reach under their own address. A family without configured pod ranges is left alone: traffic between its pods
/// would be masqueraded too.
fn egress_except(settings: &NodeSettings, family: Family) -> Option<Vec<IpNet>> {
    let link_local = match family {
        Family::V4 => IpNet::from(Ipv4Net::new_assert([169, 254, 0, 0].into(), 16)),
        Family::V6 => IpNet::from(Ipv6Net::new_assert(
            [0xfe80, 0, 0, 0, 0, 0, 0, 0].into(),
            10,
        )),
    };
    let mut except = settings.egress_except.clone()?;
    except.retain(|net| Family::of_net(net) == family);
    if except.is_empty() {
        return None;
    }
    except.push(link_local);
    Some(fold_nested(except))
}

/// Node ports are meant to answer on the node's own address only, but that address is not known, so they answer on all.
pub(super) fn primary_is_open(
    settings: &NodeSettings,
    node: Option<&Node>,
    family: Family,
) -> bool {
    matches!(settings.node_ports, NodePortSetting::Primary)
        && primary(settings, node, family).is_none()
}

/// Pod ranges are matched by source address, bridges by interface; off means that no packet counts as a local pod's.
fn local_detector(setting: &LocalSetting, node: Option<&Node>, family: Family) -> LocalDetector {
    let by_source = |net: Option<IpNet>| net.map_or(LocalDetector::Off, LocalDetector::Source);
    match setting {
        LocalSetting::ClusterCidr(nets) => by_source(
            nets.iter()
                .copied()
                .find(|net| Family::of_net(net) == family)
                .map(|net| net.trunc()),
        ),
        LocalSetting::NodeCidr => by_source(node.and_then(|node| node.pod_cidr(family))),
        LocalSetting::Interface(name) => LocalDetector::Interface(name.clone()),
        LocalSetting::InterfacePrefix(prefix) => LocalDetector::InterfacePrefix(prefix.clone()),
    }
}

/// The addresses of this node in the ranges set for node ports, looked up on every update because interfaces change without any event.
fn local_addresses_in_ranges(
    settings: &NodeSettings,
    node: Option<&Node>,
    local_addresses: &[IpAddr],
    family: Family,
) -> NodePortAddresses {
    let ranges: Vec<IpNet> = match &settings.node_ports {
        NodePortSetting::Any => Vec::new(),
        NodePortSetting::Primary => primary(settings, node, family)
            .map(IpNet::from)
            .into_iter()
            .collect(),
        NodePortSetting::Cidrs(nets) => nets
            .iter()
            .copied()
            .filter(|net| Family::of_net(net) == family)
            .collect(),
    };
    // No range of this family leaves the family unrestricted, even where the other is restricted.
    if ranges.is_empty() || ranges.iter().any(|net| net.prefix_len() == 0) {
        return NodePortAddresses::Any;
    }
    // An address that is in a range but not on an interface belongs to some other host; it is not ours to answer on.
    let in_ranges = |ip: &IpAddr| ranges.iter().any(|net| net.contains(ip));
    NodePortAddresses::Only(local_addresses.iter().copied().filter(in_ranges).collect())
}

/// The addresses other machines can reach this one by.
fn own_addresses(local_addresses: &[IpAddr], family: Family) -> BTreeSet<IpAddr> {
    let is_own = |ip: &IpAddr| {
        let is_link_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        Family::of(*ip) == family && !ip.is_loopback() && !is_link_local
    };
    local_addresses.iter().copied().filter(is_own).collect()
}

/// Packets to loopback cannot be sent to another machine.
fn without_loopback(addresses: NodePortAddresses) -> NodePortAddresses {
    match addresses {
        NodePortAddresses::Any => NodePortAddresses::Any,
        NodePortAddresses::Only(mut only) => {
            only.retain(|ip| !ip.is_loopback());
            NodePortAddresses::Only(only)
        }
    }
}

/// The node's own address, unless it is loopback: that one means "unknown", and other machines cannot reach it.
fn primary(settings: &NodeSettings, node: Option<&Node>, family: Family) -> Option<IpAddr> {
    settings
        .node_ip(node, family)
        .filter(|ip| !ip.is_loopback())
}

#[cfg(test)]
mod tests;
