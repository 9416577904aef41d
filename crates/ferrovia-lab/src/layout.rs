//! The hosts of the lab and their addresses. `wiring.rs` has the commands that set them up.
//!
//! ```text
//!  pod-a .. pod-d                          far: pod-x pod-y pod-z
//!   10.244.1.10 ..                           10.244.2.10 ..
//!        |  veth-a ..                             |
//!      node ------------ eth1 ------------ node2 -+
//!   198.51.100.10, .11                198.51.100.20
//!   host                              host2
//!        |  eth0               uplink: drops packets to unknown destinations
//!     outside
//!   192.0.2.9, 192.0.2.77, 203.0.113.200
//! ```

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A network namespace of the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The node under test, which has the proxy's rules.
    Node,
    /// A second node, which routes to the remote pods.
    Node2,
    /// All remote pods, in one namespace.
    Far,
    /// A client outside of the cluster.
    Outside,
    /// The first local pod.
    PodA,
    /// The second local pod.
    PodB,
    /// The third local pod.
    PodC,
    /// The fourth local pod.
    PodD,
}

impl Role {
    /// All namespaces of a world.
    pub const ALL: [Self; 8] = [
        Self::Node,
        Self::Node2,
        Self::Far,
        Self::Outside,
        Self::PodA,
        Self::PodB,
        Self::PodC,
        Self::PodD,
    ];

    /// The suffix of the namespace's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Node2 => "node2",
            Self::Far => "far",
            Self::Outside => "outside",
            Self::PodA => "pod-a",
            Self::PodB => "pod-b",
            Self::PodC => "pod-c",
            Self::PodD => "pod-d",
        }
    }
}

/// A pod: an IPv4 and an IPv6 address with servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pod {
    /// Local, 10.244.1.10.
    A,
    /// Local, 10.244.1.11.
    B,
    /// Local, 10.244.1.12.
    C,
    /// Local, 10.244.1.13.
    D,
    /// Remote, 10.244.2.10.
    X,
    /// Remote, 10.244.2.11.
    Y,
    /// Remote, 10.244.2.12.
    Z,
    /// With host network on the node under test.
    Host,
    /// With host network on the second node.
    Host2,
}

impl Pod {
    /// All pods without host network, the local ones first.
    pub const ALL: [Self; 7] = [
        Self::A,
        Self::B,
        Self::C,
        Self::D,
        Self::X,
        Self::Y,
        Self::Z,
    ];
    /// The pods of the node under test.
    pub const LOCAL: [Self; 4] = [Self::A, Self::B, Self::C, Self::D];
    /// The pods of the second node.
    pub const REMOTE: [Self; 3] = [Self::X, Self::Y, Self::Z];
    /// The pods with host network. They are only servers: a client there is a node.
    pub const HOST_NETWORK: [Self; 2] = [Self::Host, Self::Host2];

    /// The name in flow lines and in responses.
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "pod-a",
            Self::B => "pod-b",
            Self::C => "pod-c",
            Self::D => "pod-d",
            Self::X => "pod-x",
            Self::Y => "pod-y",
            Self::Z => "pod-z",
            Self::Host => "host",
            Self::Host2 => "host2",
        }
    }

    /// The namespace of the pod.
    pub fn role(self) -> Role {
        match self {
            Self::A => Role::PodA,
            Self::B => Role::PodB,
            Self::C => Role::PodC,
            Self::D => Role::PodD,
            Self::X | Self::Y | Self::Z => Role::Far,
            Self::Host => Role::Node,
            Self::Host2 => Role::Node2,
        }
    }

    pub fn v4(self) -> Ipv4Addr {
        let [a, b, c, d] = match self.numbers() {
            (0, host) => [198, 51, 100, host],
            (node, host) => [10, 244, node, host],
        };
        Ipv4Addr::new(a, b, c, d)
    }

    /// The IPv6 address. Its last group has the same digits as the last number of the IPv4 address.
    pub fn v6(self) -> Ipv6Addr {
        let (node, host) = self.numbers();
        let [a, b, c, d] = match node {
            0 => [0x2001, 0xdb8, 0x51, 0],
            node => [0xfd00, 0x10, 0x244, u16::from(node)],
        };
        // 10 becomes `::10` and 20 becomes `::20`.
        let last = u16::from(host / 10) * 0x10 + u16::from(host % 10);
        Ipv6Addr::new(a, b, c, d, 0, 0, 0, last)
    }

    /// The address of the same family as `like`.
    pub fn address(self, like: IpAddr) -> IpAddr {
        if like.is_ipv4() {
            self.v4().into()
        } else {
            self.v6().into()
        }
    }

    /// The node of the pod's network (0 for host network), and its host number.
    fn numbers(self) -> (u8, u8) {
        match self {
            Self::A => (1, 10),
            Self::B => (1, 11),
            Self::C => (1, 12),
            Self::D => (1, 13),
            Self::X => (2, 10),
            Self::Y => (2, 11),
            Self::Z => (2, 12),
            Self::Host => (0, 10),
            Self::Host2 => (0, 20),
        }
    }
}

/// A host of the lab from which calls can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientHost {
    /// The node under test.
    Node,
    Node2,
    /// Outside of the cluster.
    Outside,
    /// A pod, local or remote.
    Pod(Pod),
}

impl ClientHost {
    /// The namespace to call from.
    pub fn role(self) -> Role {
        match self {
            Self::Node => Role::Node,
            Self::Node2 => Role::Node2,
            Self::Outside => Role::Outside,
            Self::Pod(pod) => pod.role(),
        }
    }

    /// The source address that a call must bind to. The remote pods share a namespace, so routing
    /// alone does not distinguish them; elsewhere the routes choose.
    pub fn source(self, destination: IpAddr) -> Option<IpAddr> {
        match self {
            Self::Pod(pod) => Some(pod.address(destination)),
            Self::Node | Self::Node2 | Self::Outside => None,
        }
    }
}

impl fmt::Display for ClientHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pod(pod) => pod.name(),
            other => other.role().name(),
        })
    }
}

impl FromStr for ClientHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "node" => Ok(Self::Node),
            "node2" => Ok(Self::Node2),
            "outside" => Ok(Self::Outside),
            _ => Pod::ALL
                .into_iter()
                .find(|pod| pod.name() == text)
                .map(Self::Pod)
                .ok_or_else(|| {
                    format!(
                        "invalid host \"{text}\": expected node, node2, outside or pod-a to pod-z"
                    )
                }),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Tcp,
    Udp,
    /// SCTP, as single crafted packets: no SCTP stack is needed.
    Sctp,
}

/// The node's addresses, in each family the primary one first.
pub const NODE_ADDRESSES: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 10)),
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 11)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x51, 0, 0, 0, 0, 0x10)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x51, 0, 0, 0, 0, 0x11)),
];

/// The addresses of the bridge, if there is one.
pub(crate) const BRIDGE_ADDRESSES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 244, 1, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x10, 0x244, 1, 0, 0, 0, 1)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_addresses_have_the_digits_of_ipv4_addresses() {
        assert_eq!(Pod::A.v4().to_string(), "10.244.1.10");
        assert_eq!(Pod::A.v6().to_string(), "fd00:10:244:1::10");
        assert_eq!(Pod::D.v6().to_string(), "fd00:10:244:1::13");
        assert_eq!(Pod::Z.v6().to_string(), "fd00:10:244:2::12");
        let host = [IpAddr::V4(Pod::Host.v4()), IpAddr::V6(Pod::Host.v6())];
        assert_eq!(host, [NODE_ADDRESSES[0], NODE_ADDRESSES[2]]);
        assert_eq!(Pod::Host2.v6().to_string(), "2001:db8:51::20");
    }

    #[test]
    fn hosts_parse_as_they_print() {
        for text in ["node", "node2", "outside", "pod-a", "pod-z"] {
            assert_eq!(text.parse::<ClientHost>().unwrap().to_string(), text);
        }
        assert!("pod-e".parse::<ClientHost>().is_err());
        assert!("far".parse::<ClientHost>().is_err());
    }
}
