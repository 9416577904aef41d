//! An entry of a set.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use super::Kind;
use crate::family::Family;
use crate::model::Protocol;

/// An entry, in the shape its set's kind asks for. Prints as the tool prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Entry {
    /// An address.
    Ip(IpAddr),
    /// An address and a port.
    IpPort(IpAddr, Protocol, u16),
    /// An address, a port and another address.
    IpPortIp(IpAddr, Protocol, u16, IpAddr),
    /// An address, a port and a network, which is not everything.
    IpPortNet(IpAddr, Protocol, u16, IpNet),
    /// A port.
    Port(u16),
}

impl Entry {
    /// Reads what prints as an entry of a kind; `None` if it is none that we could have made.
    pub fn parse(kind: Kind, text: &str) -> Option<Self> {
        let mut words = text.split(',');
        let first = words.next()?;
        let entry = match kind {
            Kind::Port => Self::Port(first.parse().ok()?),
            Kind::Ip(family) => Self::Ip(address(family, first)?),
            Kind::IpPort(family) => {
                let (protocol, port) = port(words.next()?)?;
                Self::IpPort(address(family, first)?, protocol, port)
            }
            Kind::IpPortIp(family) => {
                let (protocol, port) = port(words.next()?)?;
                let other = address(family, words.next()?)?;
                Self::IpPortIp(address(family, first)?, protocol, port, other)
            }
            Kind::IpPortNet(family) => {
                let (protocol, port) = port(words.next()?)?;
                let net = network(family, words.next()?)?;
                Self::IpPortNet(address(family, first)?, protocol, port, net)
            }
        };
        words.next().is_none().then_some(entry)
    }

    /// It has the shape that sets of a kind hold.
    pub fn is_of(&self, kind: Kind) -> bool {
        let address = match (self, kind) {
            (Self::Port(_), Kind::Port) => None,
            (Self::Ip(ip), Kind::Ip(_))
            | (Self::IpPort(ip, ..), Kind::IpPort(_))
            | (Self::IpPortIp(ip, ..), Kind::IpPortIp(_))
            | (Self::IpPortNet(ip, ..), Kind::IpPortNet(_)) => Some(*ip),
            _ => return false,
        };
        address.map(Family::of) == kind.family()
    }
}

fn address(family: Family, text: &str) -> Option<IpAddr> {
    let ip = text.parse().ok()?;
    (Family::of(ip) == family).then_some(ip)
}

fn network(family: Family, text: &str) -> Option<IpNet> {
    let net = match text.contains('/') {
        true => text.parse::<IpNet>().ok()?.trunc(),
        false => IpNet::from(text.parse::<IpAddr>().ok()?),
    };
    (Family::of_net(&net) == family).then_some(net)
}

fn port(text: &str) -> Option<(Protocol, u16)> {
    let (protocol, port) = text.split_once(':')?;
    let protocol = Protocol::ALL
        .into_iter()
        .find(|known| known.to_string() == protocol)?;
    Some((protocol, port.parse().ok()?))
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::IpPort(ip, protocol, port) => write!(f, "{ip},{protocol}:{port}"),
            Self::IpPortIp(ip, protocol, port, other) => {
                write!(f, "{ip},{protocol}:{port},{other}")
            }
            // The tool leaves out a prefix length that says nothing; kube-proxy does not know and rewrites such entries for ever.
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

    #[test]
    fn what_is_printed_can_be_read() {
        let v4 = Family::V4;
        let entries = [
            (Kind::Ip(v4), "10.96.0.1"),
            (Kind::Ip(Family::V6), "fd00::1"),
            (Kind::IpPort(v4), "10.96.0.1,udp:53"),
            (Kind::IpPort(Family::V6), "fd00::1,sctp:53"),
            (Kind::IpPortIp(v4), "10.244.1.5,tcp:8080,10.244.1.5"),
            (Kind::IpPortNet(v4), "203.0.113.10,tcp:80,198.51.100.0/24"),
            (Kind::IpPortNet(v4), "203.0.113.10,tcp:80,198.51.100.7"),
            (Kind::IpPortNet(Family::V6), "fd00::1,tcp:80,2001:db8::/32"),
            (Kind::Port, "30010"),
        ];
        for (kind, text) in entries {
            let entry = Entry::parse(kind, text).unwrap();
            assert_eq!(entry.to_string(), text);
            assert!(entry.is_of(kind));
        }
    }

    #[test]
    fn a_network_of_one_address_has_one_spelling() {
        let kind = Kind::IpPortNet(Family::V4);
        let parse = |text| Entry::parse(kind, text);
        let (long, short) = (
            "203.0.113.10,tcp:80,10.0.0.1/32",
            "203.0.113.10,tcp:80,10.0.0.1",
        );
        assert_eq!(parse(long), parse(short));
        assert_eq!(parse(long).unwrap().to_string(), short);
        assert_eq!(
            parse("203.0.113.10,tcp:80,10.0.0.1/8").unwrap().to_string(),
            "203.0.113.10,tcp:80,10.0.0.0/8"
        );
    }

    #[test]
    fn what_we_could_not_have_made_is_not_read() {
        let bad = [
            (Kind::Port, "65536"),
            (Kind::Ip(Family::V4), "fd00::1"),
            (Kind::IpPort(Family::V4), "10.0.0.1"),
            (Kind::IpPort(Family::V4), "10.0.0.1,udplite:5"),
            (Kind::IpPort(Family::V4), "10.0.0.1,tcp:80,10.0.0.2"),
            (Kind::IpPortIp(Family::V4), "10.0.0.1,tcp:80"),
            (Kind::IpPortNet(Family::V4), "10.0.0.1,tcp:80,10.0.0.1/33"),
        ];
        for (kind, text) in bad {
            assert_eq!(Entry::parse(kind, text), None, "{text}");
        }
    }
}
