//! Who lives in the lab, and at which addresses. The commands that make it so are in the wiring.
//!
//! ```text
//!  pod-a .. pod-d                          far: pod-x pod-y pod-z
//!   10.244.1.10 ..                           10.244.2.10 ..
//!        |  veth-a ..                             |
//!      node ------------ eth1 ------------ node2 -+
//!   198.51.100.10, .11                198.51.100.20
//!   host                              host2
//!        |  eth0               uplink: where unknown destinations go and vanish
//!     outside
//!   192.0.2.9, 192.0.2.77, 203.0.113.200
//! ```

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A network namespace of the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The node under test: the proxy's rules go here.
    Node,
    /// A second node, the way to the remote pods.
    Node2,
    /// Holds the remote pods, all in one.
    Far,
    /// A client beyond the cluster.
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
    /// Every namespace of a world.
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

    /// The last part of the namespace's name.
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

/// A pod: a pair of addresses on which servers answer.
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
    /// In the network of the node under test, under its address.
    Host,
    /// In the network of the second node, under its address.
    Host2,
}

impl Pod {
    /// Every pod with a network of its own, the local ones first.
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
    /// The pods in the nodes' own networks. They only answer; who calls from there is a node.
    pub const HOST_NETWORK: [Self; 2] = [Self::Host, Self::Host2];

    /// The name in flow lines and in answers.
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

    /// The namespace the pod lives in.
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

    /// The IPv4 address.
    pub fn v4(self) -> Ipv4Addr {
        let [a, b, c, d] = match self.numbers() {
            (0, host) => [198, 51, 100, host],
            (node, host) => [10, 244, node, host],
        };
        Ipv4Addr::new(a, b, c, d)
    }

    /// The IPv6 address. Its last group reads like the last number of the IPv4 address.
    pub fn v6(self) -> Ipv6Addr {
        let (node, host) = self.numbers();
        let [a, b, c, d] = match node {
            0 => [0x2001, 0xdb8, 0x51, 0],
            node => [0xfd00, 0x10, 0x244, u16::from(node)],
        };
        // Ten is written `::10`, and twenty `::20`.
        let last = u16::from(host / 10) * 0x10 + u16::from(host % 10);
        Ipv6Addr::new(a, b, c, d, 0, 0, 0, last)
    }

    /// The address of the family that `like` has.
    pub fn address(self, like: IpAddr) -> IpAddr {
        if like.is_ipv4() {
            self.v4().into()
        } else {
            self.v6().into()
        }
    }

    /// Which node's pod network the pod is in, 0 for the nodes' own, and its number there.
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

/// A place from which a call can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// The node under test.
    Node,
    /// The second node.
    Node2,
    /// Beyond the cluster.
    Outside,
    /// A pod, local or remote.
    Pod(Pod),
}

impl Place {
    /// The namespace to call from.
    pub fn role(self) -> Role {
        match self {
            Self::Node => Role::Node,
            Self::Node2 => Role::Node2,
            Self::Outside => Role::Outside,
            Self::Pod(pod) => pod.role(),
        }
    }

    /// The source address a call must bind to. The remote pods share a namespace, so routing
    /// alone does not tell them apart; elsewhere the routes choose.
    pub fn source(self, destination: IpAddr) -> Option<IpAddr> {
        match self {
            Self::Pod(pod) => Some(pod.address(destination)),
            Self::Node | Self::Node2 | Self::Outside => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pod(pod) => pod.name(),
            other => other.role().name(),
        })
    }
}

impl FromStr for Place {
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
                .ok_or_else(|| format!("there is no place \"{text}\" in the lab")),
        }
    }
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP, as single hand-made packets: no SCTP stack is needed.
    Sctp,
}

/// The node's addresses, the one used as a source first in each family.
pub const NODE_ADDRESSES: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 10)),
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 11)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x51, 0, 0, 0, 0, 0x10)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x51, 0, 0, 0, 0, 0x11)),
];

/// The addresses of the bridge, which the node has besides when there is one.
pub(crate) const BRIDGE_ADDRESSES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 244, 1, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x10, 0x244, 1, 0, 0, 0, 1)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_families_read_alike() {
        assert_eq!(Pod::A.v4().to_string(), "10.244.1.10");
        assert_eq!(Pod::A.v6().to_string(), "fd00:10:244:1::10");
        assert_eq!(Pod::D.v6().to_string(), "fd00:10:244:1::13");
        assert_eq!(Pod::Z.v6().to_string(), "fd00:10:244:2::12");
        let host = [IpAddr::V4(Pod::Host.v4()), IpAddr::V6(Pod::Host.v6())];
        assert_eq!(host, [NODE_ADDRESSES[0], NODE_ADDRESSES[2]]);
        assert_eq!(Pod::Host2.v6().to_string(), "2001:db8:51::20");
    }

    #[test]
    fn places_parse_as_they_print() {
        for text in ["node", "node2", "outside", "pod-a", "pod-z"] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
        assert!("pod-e".parse::<Place>().is_err());
        assert!("far".parse::<Place>().is_err());
    }
}
