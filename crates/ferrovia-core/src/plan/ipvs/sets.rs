//! The sets that rules look into: names, kinds and comments are kube-proxy's, but for the last three, which are ours.

use crate::dialect::ipset::{IpsetName, IpsetType};
use crate::family::Family;
use crate::model::Protocol;

/// A set. Entries come in this order and go in the reverse one: those that let packets through come before those that stop them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum IpvsSetId {
    /// Local endpoints with themselves as source: what they send to themselves is masqueraded.
    LoopBack,
    ClusterIp,
    /// External IPs under policy Cluster.
    ExternalIp,
    ExternalIpLocal,
    LoadBalancer,
    LoadBalancerLocal,
    /// Who may use a load balancer's address, as networks.
    SourceCidr,
    /// The address itself: it stands for the node.
    SourceIp,
    /// The addresses of load balancers that not everyone may use.
    Firewall,
    NodePortTcp,
    NodePortUdp,
    /// With addresses, because the kernel's sets of ports alone know no protocol, and kube-proxy made this one so.
    NodePortSctp,
    NodePortLocalTcp,
    NodePortLocalUdp,
    NodePortLocalSctp,
    HealthCheck,
    /// What is on our device. Nothing but services may be reached there.
    Addresses,
    /// External addresses, and node ports with the node's addresses, whose policy Local finds no endpoint here.
    NoLocal,
    /// Addresses that have endpoints, but none that their policy allows to anyone.
    NoneAllowed,
    /// Addresses of services without any endpoints, where those are dropped.
    NoEndpoints,
}

impl IpvsSetId {
    pub(super) const ALL: [Self; 20] = [
        Self::LoopBack,
        Self::ClusterIp,
        Self::ExternalIp,
        Self::ExternalIpLocal,
        Self::LoadBalancer,
        Self::LoadBalancerLocal,
        Self::SourceCidr,
        Self::SourceIp,
        Self::Firewall,
        Self::NodePortTcp,
        Self::NodePortUdp,
        Self::NodePortSctp,
        Self::NodePortLocalTcp,
        Self::NodePortLocalUdp,
        Self::NodePortLocalSctp,
        Self::HealthCheck,
        Self::Addresses,
        Self::NoLocal,
        Self::NoneAllowed,
        Self::NoEndpoints,
    ];

    /// The sets that hold addresses and ports of services, each with the protocol.
    pub(super) const VIPS: [Self; 4] = [
        Self::ClusterIp,
        Self::ExternalIp,
        Self::ExternalIpLocal,
        Self::LoadBalancer,
    ];

    /// Where node ports of a protocol are listed.
    pub(super) fn node_port(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Tcp => Self::NodePortTcp,
            Protocol::Udp => Self::NodePortUdp,
            Protocol::Sctp => Self::NodePortSctp,
        }
    }

    /// Where those under policy Local are listed besides.
    pub(super) fn node_port_local(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Tcp => Self::NodePortLocalTcp,
            Protocol::Udp => Self::NodePortLocalUdp,
            Protocol::Sctp => Self::NodePortLocalSctp,
        }
    }

    /// Of a set that takes some entries of another out of masquerading: that other.
    pub(super) fn exempts_from(self) -> Option<Self> {
        match self {
            Self::LoadBalancerLocal => Some(Self::LoadBalancer),
            Self::NodePortLocalTcp => Some(Self::NodePortTcp),
            Self::NodePortLocalUdp => Some(Self::NodePortUdp),
            Self::NodePortLocalSctp => Some(Self::NodePortSctp),
            _ => None,
        }
    }

    fn base_name(self) -> &'static str {
        match self {
            Self::LoopBack => "LOOP-BACK",
            Self::ClusterIp => "CLUSTER-IP",
            Self::ExternalIp => "EXTERNAL-IP",
            Self::ExternalIpLocal => "EXTERNAL-IP-LOCAL",
            Self::LoadBalancer => "LOAD-BALANCER",
            Self::LoadBalancerLocal => "LOAD-BALANCER-LOCAL",
            Self::SourceCidr => "LOAD-BALANCER-SOURCE-CIDR",
            Self::SourceIp => "LOAD-BALANCER-SOURCE-IP",
            Self::Firewall => "LOAD-BALANCER-FW",
            Self::NodePortTcp => "NODE-PORT-TCP",
            Self::NodePortUdp => "NODE-PORT-UDP",
            Self::NodePortSctp => "NODE-PORT-SCTP-HASH",
            Self::NodePortLocalTcp => "NODE-PORT-LOCAL-TCP",
            Self::NodePortLocalUdp => "NODE-PORT-LOCAL-UDP",
            Self::NodePortLocalSctp => "NODE-PORT-LOCAL-SCTP-HASH",
            Self::HealthCheck => "HEALTH-CHECK-NODE-PORT",
            Self::Addresses => "IPVS-IPS",
            Self::NoLocal => "NO-LOCAL",
            Self::NoneAllowed => "NONE-ALLOWED",
            Self::NoEndpoints => "NO-ENDPOINTS",
        }
    }

    /// Its name in the kernel.
    pub(super) fn name(self, family: Family) -> IpsetName {
        name(self.base_name(), family)
    }

    pub(super) fn kind(self, family: Family) -> IpsetType {
        match self {
            Self::LoopBack | Self::SourceIp => IpsetType::IpPortIp(family),
            Self::SourceCidr => IpsetType::IpPortNet(family),
            Self::Addresses => IpsetType::Ip(family),
            Self::NodePortTcp
            | Self::NodePortUdp
            | Self::NodePortLocalTcp
            | Self::NodePortLocalUdp
            | Self::HealthCheck => IpsetType::Port,
            Self::ClusterIp
            | Self::ExternalIp
            | Self::ExternalIpLocal
            | Self::LoadBalancer
            | Self::LoadBalancerLocal
            | Self::Firewall
            | Self::NodePortSctp
            | Self::NodePortLocalSctp
            | Self::NoLocal
            | Self::NoneAllowed
            | Self::NoEndpoints => IpsetType::IpPort(family),
        }
    }

    /// The comment of rules that look into it.
    pub(super) fn comment(self) -> &'static str {
        match self {
            Self::LoopBack => {
                "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose"
            }
            Self::ClusterIp => "Kubernetes service cluster ip + port for masquerade purpose",
            Self::ExternalIp => {
                "Kubernetes service external ip + port for masquerade and filter purpose"
            }
            Self::ExternalIpLocal => {
                "Kubernetes service external ip + port with externalTrafficPolicy=local"
            }
            Self::LoadBalancer => "Kubernetes service lb portal",
            Self::LoadBalancerLocal => {
                "Kubernetes service load balancer ip + port with externalTrafficPolicy=local"
            }
            Self::SourceCidr => {
                "Kubernetes service load balancer ip + port + source cidr for packet filter purpose"
            }
            Self::SourceIp => {
                "Kubernetes service load balancer ip + port + source IP for packet filter purpose"
            }
            Self::Firewall => {
                "Kubernetes service load balancer ip + port for load balancer with sourceRange"
            }
            Self::NodePortTcp => "Kubernetes nodeport TCP port for masquerade purpose",
            Self::NodePortUdp => "Kubernetes nodeport UDP port for masquerade purpose",
            Self::NodePortSctp => {
                "Kubernetes nodeport SCTP port for masquerade purpose with type 'hash ip:port'"
            }
            Self::NodePortLocalTcp => {
                "Kubernetes nodeport TCP port with externalTrafficPolicy=local"
            }
            Self::NodePortLocalUdp => {
                "Kubernetes nodeport UDP port with externalTrafficPolicy=local"
            }
            Self::NodePortLocalSctp => {
                "Kubernetes nodeport SCTP port with externalTrafficPolicy=local with type 'hash ip:port'"
            }
            Self::HealthCheck => "Kubernetes health check node port",
            Self::Addresses => "Addresses on the ipvs interface",
            Self::NoLocal => "services without local endpoints",
            Self::NoneAllowed => "services without endpoints that their policy allows",
            Self::NoEndpoints => "services without endpoints",
        }
    }
}

/// The name under which a set is made that will replace another.
pub(super) fn swap_name(family: Family) -> IpsetName {
    name("SWAP", family)
}

/// The kernel has room for 31 characters; IPv6's longest names lose their last ones, as kube-proxy's do.
fn name(base: &str, family: Family) -> IpsetName {
    let mut name = match family {
        Family::V4 => format!("KUBE-{base}"),
        Family::V6 => format!("KUBE-6-{base}"),
    };
    name.truncate(31);
    IpsetName::fixed(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_and_are_different() {
        let mut names: Vec<IpsetName> = Family::ALL
            .into_iter()
            .flat_map(|family| {
                let all = IpvsSetId::ALL.map(|set| set.name(family));
                all.into_iter().chain([swap_name(family)])
            })
            .collect();
        for name in &names {
            assert_eq!(IpsetName::new(name.as_str()).as_ref(), Some(name));
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 2 * 21);
        assert_eq!(
            IpvsSetId::SourceCidr.name(Family::V6).as_str(),
            "KUBE-6-LOAD-BALANCER-SOURCE-CID"
        );
        assert_eq!(
            IpvsSetId::NodePortLocalSctp.name(Family::V6).as_str(),
            "KUBE-6-NODE-PORT-LOCAL-SCTP-HAS"
        );
        assert!(IpvsSetId::ALL.is_sorted());
    }
}
