//! Where the modes treat packets differently, as data. Everything else is the same in all of them.
//!
//! `profile/modes.rs` has one literal per mode. A new difference is a new field, and the compiler then asks every mode for its value.

mod modes;

use std::net::IpAddr;

use serde::{Serialize, Serializer};

pub use self::modes::*;
use crate::family::{Family, PerFamily};
use crate::model::Protocol;

/// What a mode does with packets, where modes differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceProfile {
    /// The mode's name, as the configuration spells it.
    pub mode: &'static str,
    /// Packets to a Service's address whose port no Service has.
    pub other_ports: OtherPorts,
    /// When a Service that lists an address of this node leaves packets to the node port of the same number.
    pub falls_through_to_node_ports: NodePortFallThrough,
    /// Packets to addresses in a ServiceCIDR that no Service has are dropped.
    pub drops_unallocated_cluster_ips: bool,
    /// `loadBalancerSourceRanges` are checked even if there are no endpoints.
    pub checks_source_ranges_without_endpoints: bool,
    /// A client is checked after its connection is accepted: if it may not use the address, the connection is reset, or its datagrams are
    /// ignored.
    pub checks_clients_after_accepting: bool,
    /// Packets of the node itself to a Service's address have that address as their source, because the node holds it.
    pub node_sends_from_service_address: bool,
    /// The mode sees the interface that a packet comes in by.
    pub sees_interfaces: bool,
    /// Packets of the node itself to external addresses without endpoints are rejected.
    pub rejects_node_to_external: bool,
    /// Node ports without endpoints are rejected on every local address, even where node ports do not answer.
    pub rejects_node_ports_on_all_addresses: bool,
    /// All traffic to an address that is a cluster IP is masqueraded like traffic to a cluster IP, whichever service port takes it.
    pub masquerades_by_address: bool,
    /// Packets of the node itself to a cluster IP are masqueraded even if pods cannot be detected: otherwise their source would be the cluster
    /// IP.
    pub masquerades_node_to_cluster_ip: bool,
    /// Every port with the number of a node port is masqueraded like that node port, because all Service addresses are local.
    pub masquerades_node_port_numbers: bool,
    /// Egress masquerade works. It needs a rule.
    pub masquerades_egress: bool,
    /// A remote endpoint that reaches itself through this node is masqueraded too.
    pub masquerades_remote_hairpins: bool,
    /// With session affinity, a new client gets the endpoint that its address hashes to.
    pub affinity_hashes_new_clients: bool,
    /// The algorithm `source-hash` is supported.
    pub supports_source_hash: bool,
    /// An external address has one list of endpoints for all clients, so policy Local applies to clients inside the cluster too, as long as
    /// that list is not empty.
    pub local_policy_applies_to_insiders: bool,
    /// The loopback addresses on which node ports answer.
    pub loopback_node_ports: LoopbackNodePorts,
    /// The families in which they do, as configured.
    pub localhost_node_ports: PerFamily<bool>,
    /// With `noEndpoints: drop`, packets are marked before node ports are looked up, and dropped later.
    pub marks_before_dropping: bool,
    /// Which connections a process of this node proxies.
    pub proxied: Proxied,
}

/// Packets to a Service's address whose port no Service has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherPorts {
    /// They are routed like any other packet.
    Routed,
    /// Those to cluster IPs are rejected.
    RejectedOnClusterIps,
    /// All of them are rejected: the addresses are this node's.
    RejectedOnServiceAddresses,
}

/// When a Service that lists an address of this node leaves packets to the node port of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePortFallThrough {
    /// Never.
    Never,
    /// While it has no endpoints anywhere.
    WithoutEndpoints,
    /// Whenever it has no endpoint for the packet's sender.
    WithoutUsableEndpoints,
}

/// The loopback addresses on which node ports answer, in families where that is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopbackNodePorts {
    /// None.
    None,
    /// 127.0.0.1 and ::1, where a proxy listens.
    Listeners,
    /// All of them that `nodePortAddresses` lists.
    Listed,
    /// All of them.
    All,
}

/// Which connections a process of this node proxies, rather than the kernel translating them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxied {
    /// None.
    None,
    /// Those to loopback addresses, on which it listens. No rule is about them.
    Loopback,
    /// All that rules redirect to it.
    Redirected,
    /// All, by listening on the Services' own addresses. There are no rules.
    ServiceAddresses,
}

impl TraceProfile {
    /// The same, with node ports that answer on loopback in these families.
    #[must_use]
    pub const fn with_localhost_node_ports(mut self, families: PerFamily<bool>) -> Self {
        self.localhost_node_ports = families;
        self
    }

    /// Node ports answer on a loopback address. `is_listed` says that `nodePortAddresses` covers it.
    pub(super) fn answers_on_loopback(&self, ip: IpAddr, is_listed: bool) -> bool {
        let family = Family::of(ip);
        let is_covered = match self.loopback_node_ports {
            LoopbackNodePorts::None => false,
            LoopbackNodePorts::Listeners => ip == family.localhost(),
            LoopbackNodePorts::Listed => is_listed,
            LoopbackNodePorts::All => true,
        };
        is_covered && self.localhost_node_ports[family]
    }

    /// No rule is about packets to this address: either a proxy listens there, or the kernel refuses them.
    pub(super) fn only_listens(&self, to: IpAddr) -> bool {
        match self.proxied {
            Proxied::None | Proxied::Redirected => false,
            Proxied::Loopback => to.is_loopback(),
            Proxied::ServiceAddresses => true,
        }
    }

    /// Connections to this address end in a process of this node, which opens its own to the endpoint.
    pub(super) fn is_proxied(&self, to: IpAddr) -> bool {
        self.proxied == Proxied::Redirected || self.only_listens(to)
    }

    /// Packets of a protocol to this address can be forwarded to endpoints. A proxy supports streams and datagrams only.
    pub(super) fn supports(&self, protocol: Protocol, to: IpAddr) -> bool {
        !self.is_proxied(to) || protocol != Protocol::Sctp
    }
}

impl Serialize for TraceProfile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.mode)
    }
}
