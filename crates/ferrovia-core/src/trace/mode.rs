//! Where the modes treat packets differently. Everything else is the same in all of them.

use std::net::IpAddr;

use serde::{Serialize, Serializer};

use crate::family::{Family, PerFamily};
use crate::model::Protocol;

/// The mode that programs the kernel, as far as it matters to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceMode {
    /// nftables.
    Nftables {
        /// A proxy listens for node ports on 127.0.0.1, or ::1.
        localhost_node_ports: PerFamily<bool>,
    },
    /// iptables.
    Iptables {
        /// Node ports answer on 127.0.0.0/8 too.
        localhost_node_ports: bool,
    },
    /// ipvs.
    Ipvs,
    /// userspace, with rules that lead to proxies.
    Userspace {
        /// Node ports answer on loopback too.
        localhost_node_ports: PerFamily<bool>,
    },
    /// userspace, with proxies that listen on the services' own addresses.
    UserspaceBound {
        /// Node ports answer on 127.0.0.1, or ::1, too.
        localhost_node_ports: PerFamily<bool>,
    },
}

/// What becomes of packets to a Service's address whose port no Service has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherPorts {
    /// They go where routing sends them.
    Routed,
    /// Those to cluster IPs are refused.
    RefusedOnClusterIps,
    /// All of them are refused: the addresses are this node's.
    RefusedOnServiceAddresses,
}

/// When a Service that lists an address of this node leaves packets to the node port of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeavesToNodePorts {
    /// Never: what it has no endpoint for, nobody gets.
    Never,
    /// While it has no endpoints anywhere.
    WithoutEndpoints,
    /// Whenever none of its endpoints is for the packet's sender.
    WhatItDoesNotTake,
}

impl TraceMode {
    /// The mode's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nftables { .. } => "nftables",
            Self::Iptables { .. } => "iptables",
            Self::Ipvs => "ipvs",
            Self::Userspace { .. } | Self::UserspaceBound { .. } => "userspace",
        }
    }

    /// What becomes of ports that no Service has.
    pub(super) fn other_ports(self) -> OtherPorts {
        match self {
            Self::Nftables { .. } => OtherPorts::RefusedOnClusterIps,
            Self::Iptables { .. } | Self::Userspace { .. } => OtherPorts::Routed,
            Self::Ipvs | Self::UserspaceBound { .. } => OtherPorts::RefusedOnServiceAddresses,
        }
    }

    /// What becomes of packets to an address of this node that a Service lists and has no endpoint for.
    pub(super) fn leaves_to_node_ports(self) -> LeavesToNodePorts {
        match self {
            Self::Nftables { .. } => LeavesToNodePorts::WithoutEndpoints,
            Self::Iptables { .. } | Self::Userspace { .. } => LeavesToNodePorts::WhatItDoesNotTake,
            Self::Ipvs | Self::UserspaceBound { .. } => LeavesToNodePorts::Never,
        }
    }

    /// Packets to addresses in the range of cluster IPs that no Service has are dropped.
    pub(super) fn drops_unallocated(self) -> bool {
        matches!(self, Self::Nftables { .. })
    }

    /// Source ranges hold even where there are no endpoints.
    pub(super) fn checks_ranges_first(self) -> bool {
        match self {
            Self::Nftables { .. } | Self::Ipvs => true,
            Self::Iptables { .. } | Self::Userspace { .. } | Self::UserspaceBound { .. } => false,
        }
    }

    /// Whether a client may use an address is looked at once it has called: if not, its connection is cut off, or its datagrams are ignored.
    pub(super) fn tells_after_accepting(self) -> bool {
        matches!(self, Self::UserspaceBound { .. })
    }

    /// What the node itself sends to an address of a Service has that address as its source, because the node has it.
    pub(super) fn calls_from_services_address(self) -> bool {
        matches!(self, Self::UserspaceBound { .. })
    }

    /// By which interface a packet comes in can be told.
    pub(super) fn knows_interfaces(self) -> bool {
        !matches!(self, Self::UserspaceBound { .. })
    }

    /// What the node itself sends to external addresses without endpoints is refused.
    pub(super) fn refuses_on_the_way_out(self) -> bool {
        !matches!(self, Self::Iptables { .. })
    }

    /// Node ports without endpoints are refused on every local address, even where they would not answer.
    pub(super) fn refuses_node_ports_anywhere(self) -> bool {
        match self {
            Self::Nftables { .. } | Self::Ipvs => false,
            Self::Iptables { .. } | Self::Userspace { .. } | Self::UserspaceBound { .. } => true,
        }
    }

    /// All traffic to an address that is a cluster IP is treated as traffic to a cluster IP, whichever service port takes it.
    pub(super) fn masquerades_by_address(self) -> bool {
        matches!(self, Self::Nftables { .. })
    }

    /// What the node itself sends to a cluster IP gets its usual address as source even where pods cannot be told: else it would have the
    /// cluster IP.
    pub(super) fn masquerades_own_calls(self) -> bool {
        matches!(self, Self::Ipvs)
    }

    /// Addresses of Services are this node's, so what is said of node ports holds for ports of that number on all of them.
    pub(super) fn masquerades_node_ports_anywhere(self) -> bool {
        matches!(self, Self::Ipvs)
    }

    /// What pods send out of the cluster can get the node's address as source, which takes a rule.
    pub(super) fn masquerades_egress(self) -> bool {
        !matches!(self, Self::UserspaceBound { .. })
    }

    /// An endpoint elsewhere that reaches itself by way of this node gets this node's address as source too.
    pub(super) fn masquerades_remote_hairpins(self) -> bool {
        matches!(self, Self::Iptables { .. })
    }

    /// With session affinity, a client that is not remembered gets the endpoint that its address hashes to.
    pub(super) fn hashes_new_clients(self) -> bool {
        matches!(self, Self::Nftables { .. })
    }

    /// `source-hash` is followed.
    pub(super) fn hashes_sources(self) -> bool {
        !matches!(self, Self::Iptables { .. })
    }

    /// An external address has one list of endpoints for everyone, so policy Local holds for clients inside the cluster too. In ipvs mode only
    /// where that list has endpoints.
    pub(super) fn holds_insiders_to_local(self, has_local: bool) -> bool {
        match self {
            Self::Nftables { .. }
            | Self::Iptables { .. }
            | Self::Userspace { .. }
            | Self::UserspaceBound { .. } => false,
            Self::Ipvs => has_local,
        }
    }

    /// Node ports answer on a loopback address. `is_listed` says that it is among the addresses where they may.
    pub(super) fn answers_on_loopback(self, ip: IpAddr, is_listed: bool) -> bool {
        let family = Family::of(ip);
        match self {
            Self::Ipvs => false,
            Self::Nftables {
                localhost_node_ports,
            }
            | Self::UserspaceBound {
                localhost_node_ports,
            } => localhost_node_ports[family] && ip == family.localhost(),
            Self::Iptables {
                localhost_node_ports,
            } => localhost_node_ports && ip.is_ipv4() && is_listed,
            Self::Userspace {
                localhost_node_ports,
            } => localhost_node_ports[family],
        }
    }

    /// What is to be dropped for want of endpoints is marked first, where node ports answer, and dropped later.
    pub(super) fn marks_before_dropping(self) -> bool {
        match self {
            Self::Iptables { .. } | Self::Ipvs => true,
            Self::Nftables { .. } | Self::Userspace { .. } | Self::UserspaceBound { .. } => false,
        }
    }

    /// No rule is asked about packets to this address: either a proxy listens there, or the kernel refuses them.
    pub(super) fn only_listens(self, to: IpAddr) -> bool {
        match self {
            Self::Nftables { .. } => to.is_loopback(),
            Self::UserspaceBound { .. } => true,
            Self::Iptables { .. } | Self::Ipvs | Self::Userspace { .. } => false,
        }
    }

    /// Connections to this address end in a process of this node, which makes one of its own to the endpoint.
    pub(super) fn is_proxy(self, to: IpAddr) -> bool {
        matches!(self, Self::Userspace { .. }) || self.only_listens(to)
    }

    /// A protocol can be carried from this address to endpoints. A proxy knows streams and datagrams only.
    pub(super) fn carries(self, protocol: Protocol, to: IpAddr) -> bool {
        !self.is_proxy(to) || protocol != Protocol::Sctp
    }
}

impl Serialize for TraceMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
