//! An entry of a set.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use super::IpsetType;
use crate::family::Family;
use crate::model::Protocol;

/// An entry, in the shape its set's kind asks for. Prints as the tool prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpsetEntry {
    Ip(IpAddr),
    /// An address and a port.
    IpPort(IpAddr, Protocol, u16),
    /// An address, a port and another address.
    IpPortIp(IpAddr, Protocol, u16, IpAddr),
    /// An address, a port and a network, which is not everything.
    IpPortNet(IpAddr, Protocol, u16, IpNet),
    Port(u16),
}

impl IpsetEntry {
    /// It has the shape that sets of a kind hold.
    pub fn is_of(&self, kind: IpsetType) -> bool {
        let address = match (self, kind) {
            (Self::Port(_), IpsetType::Port) => None,
            (Self::Ip(ip), IpsetType::Ip(_))
            | (Self::IpPort(ip, ..), IpsetType::IpPort(_))
            | (Self::IpPortIp(ip, ..), IpsetType::IpPortIp(_))
            | (Self::IpPortNet(ip, ..), IpsetType::IpPortNet(_)) => Some(*ip),
            _ => return false,
        };
        address.map(Family::of) == kind.family()
    }
}

impl fmt::Display for IpsetEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::IpPort(ip, protocol, port) => write!(f, "{ip},{protocol}:{port}"),
            Self::IpPortIp(ip, protocol, port, other) => {
                write!(f, "{ip},{protocol}:{port},{other}")
            }
            // The tool leaves out a prefix length that says nothing; kube-proxy does not, and rewrites such entries on every sync.
            Self::IpPortNet(ip, protocol, port, net)
                if net.prefix_len() == net.max_prefix_len() =>
            {
                write!(f, "{ip},{protocol}:{port},{}", net.addr())
            }
            Self::IpPortNet(ip, protocol, port, net) => {
                write!(f, "{ip},{protocol}:{port},{}", net.trunc())
            }
            Self::Port(port) => port.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: (Protocol, u16) = (Protocol::Tcp, 80);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn from(of: &str, net: &str) -> IpsetEntry {
        IpsetEntry::IpPortNet(ip(of), WEB.0, WEB.1, net.parse().unwrap())
    }

    #[test]
    fn entries_print_as_the_tool_does() {
        let (v4, v6) = (Family::V4, Family::V6);
        let pod = ip("10.244.1.5");
        let entries = [
            (IpsetType::Ip(v4), IpsetEntry::Ip(pod), "10.244.1.5"),
            (IpsetType::Ip(v6), IpsetEntry::Ip(ip("fd00::1")), "fd00::1"),
            (
                IpsetType::IpPort(v4),
                IpsetEntry::IpPort(pod, Protocol::Udp, 53),
                "10.244.1.5,udp:53",
            ),
            (
                IpsetType::IpPort(v6),
                IpsetEntry::IpPort(ip("fd00::1"), Protocol::Sctp, 53),
                "fd00::1,sctp:53",
            ),
            (
                IpsetType::IpPortIp(v4),
                IpsetEntry::IpPortIp(pod, WEB.0, WEB.1, pod),
                "10.244.1.5,tcp:80,10.244.1.5",
            ),
            (
                IpsetType::IpPortNet(v4),
                from("203.0.113.10", "198.51.100.0/24"),
                "203.0.113.10,tcp:80,198.51.100.0/24",
            ),
            (
                IpsetType::IpPortNet(v6),
                from("fd00::1", "2001:db8::/32"),
                "fd00::1,tcp:80,2001:db8::/32",
            ),
            (IpsetType::Port, IpsetEntry::Port(30010), "30010"),
        ];
        for (kind, entry, text) in entries {
            assert_eq!(entry.to_string(), text);
            assert!(entry.is_of(kind));
            assert!(!entry.is_of(if kind == IpsetType::Port {
                IpsetType::Ip(v4)
            } else {
                IpsetType::Port
            }));
        }
    }

    #[test]
    fn a_network_of_one_address_has_no_prefix_length() {
        assert_eq!(
            from("203.0.113.10", "10.0.0.1/32").to_string(),
            "203.0.113.10,tcp:80,10.0.0.1"
        );
        assert_eq!(
            from("203.0.113.10", "10.0.0.1/8").to_string(),
            "203.0.113.10,tcp:80,10.0.0.0/8"
        );
    }
}
