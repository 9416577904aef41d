//! By which interfaces packets leave that no other route is for.

use std::collections::BTreeSet;
use std::fs;

use super::printable;

/// A route is in force.
const UP: u32 = 0x1;
/// A route that refuses packets.
const REJECT: u32 = 0x200;

/// The interfaces of default routes, of both families.
pub fn default_interfaces() -> BTreeSet<String> {
    let read = |file| fs::read_to_string(format!("/proc/thread-self/net/{file}"));
    let v4 = read("route").unwrap_or_default();
    let v6 = read("ipv6_route").unwrap_or_default();
    v4.lines()
        .filter_map(of_ipv4)
        .chain(v6.lines().filter_map(of_ipv6))
        .collect()
}

/// `eth0 00000000 0102A8C0 0003 ...`: interface, destination, gateway, flags, three counters, mask.
fn of_ipv4(line: &str) -> Option<String> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let is_default = *fields.get(1)? == "00000000" && *fields.get(7)? == "00000000";
    (is_default && is_in_force(fields.get(3)?)).then(|| printable(fields[0]))
}

/// Destination, its length, source, its length, gateway, metric, two counters, flags, interface.
fn of_ipv6(line: &str) -> Option<String> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let zero = "0".repeat(32);
    let is_default = *fields.first()? == zero && *fields.get(1)? == "00";
    (is_default && is_in_force(fields.get(8)?))
        .then(|| fields.get(9).map(|name| printable(name)))?
}

fn is_in_force(flags: &str) -> bool {
    u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & UP != 0 && flags & REJECT == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_default_routes_count() {
        let eth0 = "eth0\t00000000\t0102A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0";
        assert_eq!(of_ipv4(eth0).as_deref(), Some("eth0"));
        assert_eq!(of_ipv4(&eth0.replacen("00000000", "0002A8C0", 1)), None);
        assert_eq!(of_ipv4("Iface\tDestination"), None);
        let zero = "0".repeat(32);
        let v6 = format!(
            "{zero} 00 {zero} 00 fe800000000000000000000000000001 00000400 1 0 00000003     eth1"
        );
        assert_eq!(of_ipv6(&v6).as_deref(), Some("eth1"));
        assert_eq!(of_ipv6(&v6.replace("00000003", "00200200")), None);
        assert_eq!(of_ipv6(""), None);
    }
}
