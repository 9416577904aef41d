//! Where the modes treat packets differently. Everything else is the same in all of them.

use std::net::IpAddr;

use serde::{Serialize, Serializer};

use crate::family::{Family, PerFamily};
use crate::model::Protocol;

/// The mode that programs the kernel, as far as it matters to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceMode {
    /// nftables.
    Nftables,
    /// iptables.
    Iptables {
        /// Node ports answer on 127.0.0.0/8 too.
        localhost_node_ports: bool,
    },
    /// ipvs.
    Ipvs,
    /// userspace.
    Userspace {
        /// Node ports answer on loopback too.
        localhost_node_ports: PerFamily<bool>,
    },
}

impl TraceMode {
    /// The mode's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nftables => "nftables",
            Self::Iptables { .. } => "iptables",
            Self::Ipvs => "ipvs",
            Self::Userspace { .. } => "userspace",
        }
    }

    /// Packets to cluster IPs that no service port takes are refused or dropped.
    pub(super) fn checks_cluster_ips(self) -> bool {
        match self {
            Self::Nftables => true,
            Self::Iptables { .. } => false,
            Self::Ipvs => false,
            Self::Userspace { .. } => false,
        }
    }

    /// Source ranges hold even where there are no endpoints.
    pub(super) fn checks_ranges_first(self) -> bool {
        match self {
            Self::Nftables => true,
            Self::Iptables { .. } => false,
            Self::Ipvs => true,
            Self::Userspace { .. } => false,
        }
    }

    /// What the node itself sends to external addresses without endpoints is refused.
    pub(super) fn refuses_on_the_way_out(self) -> bool {
        match self {
            Self::Nftables => true,
            Self::Iptables { .. } => false,
            Self::Ipvs => true,
            Self::Userspace { .. } => true,
        }
    }

    /// Node ports without endpoints are refused on every local address, even where they would not answer.
    pub(super) fn refuses_node_ports_anywhere(self) -> bool {
        match self {
            Self::Nftables => false,
            Self::Iptables { .. } => true,
            Self::Ipvs => false,
            Self::Userspace { .. } => true,
        }
    }

    /// All traffic to an address that is a cluster IP is treated as traffic to a cluster IP, whichever service port takes it.
    pub(super) fn masquerades_by_address(self) -> bool {
        match self {
            Self::Nftables => true,
            Self::Iptables { .. } => false,
            Self::Ipvs => false,
            Self::Userspace { .. } => false,
        }
    }

    /// What the node itself sends to external addresses under policy Local gets the node's address as source.
    pub(super) fn masquerades_from_node(self) -> bool {
        match self {
            Self::Nftables | Self::Iptables { .. } | Self::Userspace { .. } => true,
            Self::Ipvs => false,
        }
    }

    /// An endpoint elsewhere that reaches itself by way of this node gets this node's address as source too.
    pub(super) fn masquerades_remote_hairpins(self) -> bool {
        match self {
            Self::Nftables => false,
            Self::Iptables { .. } => true,
            Self::Ipvs => false,
            Self::Userspace { .. } => false,
        }
    }

    /// `source-hash` is followed.
    pub(super) fn hashes_sources(self) -> bool {
        match self {
            Self::Nftables => true,
            Self::Iptables { .. } => false,
            Self::Ipvs => true,
            Self::Userspace { .. } => true,
        }
    }

    /// An external address has one list of endpoints for everyone, so policy Local holds for clients inside the cluster too where it has
    /// endpoints.
    pub(super) fn has_one_list_for_all(self) -> bool {
        match self {
            Self::Nftables | Self::Iptables { .. } | Self::Userspace { .. } => false,
            Self::Ipvs => true,
        }
    }

    /// Node ports answer on a loopback address. `only` says that they answer on listed addresses only.
    pub(super) fn answers_on_loopback(self, ip: IpAddr, only: bool) -> bool {
        match self {
            Self::Nftables | Self::Ipvs => false,
            Self::Iptables {
                localhost_node_ports,
            } => {
                localhost_node_ports
                    && ip.is_ipv4()
                    && (!only || ip == IpAddr::from([127, 0, 0, 1]))
            }
            Self::Userspace {
                localhost_node_ports,
            } => localhost_node_ports[Family::of(ip)],
        }
    }

    /// What is to be dropped for want of endpoints is marked first, where node ports answer, and dropped later.
    pub(super) fn marks_before_dropping(self) -> bool {
        match self {
            Self::Iptables { .. } | Self::Ipvs => true,
            Self::Nftables | Self::Userspace { .. } => false,
        }
    }

    /// Connections end in a process of this node, which makes one of its own to the endpoint.
    pub(super) fn is_proxy(self) -> bool {
        match self {
            Self::Nftables | Self::Iptables { .. } | Self::Ipvs => false,
            Self::Userspace { .. } => true,
        }
    }

    /// A protocol can be carried to endpoints. A proxy knows streams and datagrams only.
    pub(super) fn carries(self, protocol: Protocol) -> bool {
        !self.is_proxy() || protocol != Protocol::Sctp
    }
}

impl Serialize for TraceMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
