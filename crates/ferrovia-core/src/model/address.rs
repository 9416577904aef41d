//! Addresses and ranges as the API's objects spell them.
//!
//! Old objects hold spellings that strict parsers refuse or read as octal: `172.30.0.041`, `203.0.113.000/025`. The API's own rule is
//! that leading zeros mean nothing, so that is how they are read here.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Reads an address of a configuration-like field, where an IPv4-mapped IPv6 address means the IPv4 one.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    parse_ip_as_written(text).map(|ip| ip.to_canonical())
}

/// Reads an address and leaves an IPv4-mapped one as it is.
pub(super) fn parse_ip_as_written(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        text.parse().ok().map(IpAddr::V6)
    } else {
        parse_v4(text).map(IpAddr::V4)
    }
}

/// Reads a range; bits behind the prefix are cleared.
pub fn parse_cidr(text: &str) -> Option<IpNet> {
    let (address, length) = text.split_once('/')?;
    let length: u8 = parse_decimal(length)?;
    let net = match parse_ip_as_written(address)? {
        IpAddr::V4(v4) => IpNet::V4(Ipv4Net::new(v4, length).ok()?),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            // ::ffff:0:0/96 is the whole of IPv4; a shorter prefix would span both families.
            Some(v4) => IpNet::V4(Ipv4Net::new(v4, length.checked_sub(96)?).ok()?),
            None => IpNet::V6(Ipv6Net::new(v6, length).ok()?),
        },
    };
    Some(net.trunc())
}

/// Why an address can be neither a Service's nor an endpoint's; `None` if it can.
///
/// The API server refuses most of these, but a file has no API server, and redirecting a node's own loopback or metadata traffic
/// is the heart of several old vulnerabilities.
pub(super) fn refused(ip: IpAddr) -> Option<&'static str> {
    let is_link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if ip.is_unspecified() {
        Some("an unspecified address")
    } else if ip.is_loopback() {
        Some("a loopback address")
    } else if ip.is_multicast() {
        Some("a multicast address")
    } else if is_link_local {
        Some("a link-local address")
    } else if ip == IpAddr::V4(Ipv4Addr::BROADCAST) {
        Some("the broadcast address")
    } else {
        None
    }
}

/// Sorts ranges and leaves out those that lie inside another. Neighbours are not joined, so people find the ranges they wrote.
pub(crate) fn fold_nested(ranges: impl IntoIterator<Item = IpNet>) -> Vec<IpNet> {
    let mut ranges: Vec<IpNet> = ranges.into_iter().collect();
    // A range sorts right behind what contains it: by address first, and the shorter prefix before the longer.
    ranges.sort_unstable();
    let mut kept: Vec<IpNet> = Vec::with_capacity(ranges.len());
    for range in ranges {
        if !kept.last().is_some_and(|last| last.contains(&range)) {
            kept.push(range);
        }
    }
    kept
}

fn parse_v4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        *octet = parse_decimal(parts.next()?)?;
    }
    parts.next().is_none().then(|| octets.into())
}

/// Reads a number up to 255 with any number of leading zeros and without a sign.
fn parse_decimal(text: &str) -> Option<u8> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = text.trim_start_matches('0');
    if digits.is_empty() {
        Some(0)
    } else {
        digits.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_zeros_are_decimal() {
        let cases = [
            ("172.30.0.041", Some("172.30.0.41")),
            ("010.0.0.008", Some("10.0.0.8")),
            ("203.0.113.000", Some("203.0.113.0")),
            ("::ffff:10.0.0.1", Some("10.0.0.1")),
            ("FD00::1", Some("fd00::1")),
            ("1.2.3", None),
            ("1.2.3.4.5", None),
            ("1.2.3.256", None),
            ("1.2.3.+4", None),
            (" 1.2.3.4", None),
            ("fe80::1%eth0", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(
                parse_ip(text).map(|ip| ip.to_string()).as_deref(),
                expected,
                "{text:?}"
            );
        }
    }

    #[test]
    fn ranges_are_masked() {
        let cases = [
            ("203.0.113.000/025", Some("203.0.113.0/25")),
            ("1.2.3.4/24", Some("1.2.3.0/24")),
            ("fd00::5/64", Some("fd00::/64")),
            ("::ffff:10.1.2.3/104", Some("10.0.0.0/8")),
            ("::ffff:10.1.2.3/64", None),
            ("10.0.0.0/33", None),
            ("10.0.0.0", None),
            ("10.0.0.0/", None),
            ("10.0.0.0/256", None),
        ];
        for (text, expected) in cases {
            assert_eq!(
                parse_cidr(text).map(|net| net.to_string()).as_deref(),
                expected,
                "{text:?}"
            );
        }
    }

    #[test]
    fn dangerous_addresses_are_refused() {
        for text in [
            "0.0.0.0",
            "::",
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "224.0.0.1",
            "ff02::1",
            "169.254.169.254",
            "fe80::1",
            "255.255.255.255",
        ] {
            assert!(refused(text.parse().unwrap()).is_some(), "{text}");
        }
        for text in ["10.0.0.1", "8.8.8.8", "fd00::1", "2001:db8::1"] {
            assert_eq!(refused(text.parse().unwrap()), None, "{text}");
        }
    }

    #[test]
    fn nested_ranges_are_folded_and_neighbours_kept() {
        let nets = [
            "10.0.1.0/24",
            "10.0.0.0/16",
            "fd00::/64",
            "10.0.0.0/24",
            "fd00::/48",
            "10.1.0.0/16",
            "10.1.0.0/16",
        ];
        let folded = fold_nested(nets.iter().map(|net| net.parse().unwrap()));
        let folded: Vec<String> = folded.iter().map(ToString::to_string).collect();
        assert_eq!(folded, ["10.0.0.0/16", "10.1.0.0/16", "fd00::/48"]);
    }
}
