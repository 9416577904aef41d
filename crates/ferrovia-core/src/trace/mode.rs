//! Where the modes treat packets differently. Everything else is the same in all of them.

use std::net::IpAddr;

use serde::{Serialize, Serializer};

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
}

impl TraceMode {
    /// The mode's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nftables => "nftables",
            Self::Iptables { .. } => "iptables",
        }
    }

    /// Packets to cluster IPs that no service port takes are refused or dropped.
    pub(super) fn checks_cluster_ips(self) -> bool {
        match self {
            Self::Nftables => true,
            Self::Iptables { .. } => false,
        }
    }

    /// Source ranges hold even where there are no endpoints.
    pub(super) fn checks_ranges_first(self) -> bool {
        match self {
            Self::Nftables => true,
            Self::Iptables { .. } => false,
        }
    }

    /// What the node itself sends to external addresses without endpoints is refused.
    pub(super) fn refuses_on_the_way_out(self) -> bool {
        match self {
            Self::Nftables => true,
            Self::Iptables { .. } => false,
        }
    }

    /// Node ports without endpoints are refused on every local address, even where they would not answer.
    pub(super) fn refuses_node_ports_anywhere(self) -> bool {
        match self {
            Self::Nftables => false,
            Self::Iptables { .. } => true,
        }
    }

    /// All traffic to an address that is a cluster IP is treated as traffic to a cluster IP, whichever service port takes it.
    pub(super) fn masquerades_by_address(self) -> bool {
        match self {
            Self::Nftables => true,
            Self::Iptables { .. } => false,
        }
    }

    /// An endpoint elsewhere that reaches itself by way of this node gets this node's address as source too.
    pub(super) fn masquerades_remote_hairpins(self) -> bool {
        match self {
            Self::Nftables => false,
            Self::Iptables { .. } => true,
        }
    }

    /// `source-hash` is followed.
    pub(super) fn hashes_sources(self) -> bool {
        match self {
            Self::Nftables => true,
            Self::Iptables { .. } => false,
        }
    }

    /// Node ports answer on a loopback address. `only` says that they answer on listed addresses only.
    pub(super) fn answers_on_loopback(self, ip: IpAddr, only: bool) -> bool {
        match self {
            Self::Nftables => false,
            Self::Iptables {
                localhost_node_ports,
            } => {
                localhost_node_ports
                    && ip.is_ipv4()
                    && (!only || ip == IpAddr::from([127, 0, 0, 1]))
            }
        }
    }
}

impl Serialize for TraceMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
