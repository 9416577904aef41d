//! Waits until an IPv6 address is usable: neighbours can resolve it, and the kernel delivers packets to it locally.
//!
//! The kernel completes both asynchronously, from a work queue that may be busy removing namespaces. An earlier neighbour solicitation
//! is lost and repeated only after a second, which is longer than a call of the lab waits. An earlier packet to the address is forwarded.

use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// Much longer than any machine needs.
const PATIENCE: Duration = Duration::from_secs(30);

/// `RTF_LOCAL`: the route delivers locally.
const LOCAL: u32 = 0x8000_0000;

/// Waits until neighbours can resolve all IPv6 addresses of the calling thread's network namespace.
pub(crate) fn wait_until_resolvable() -> io::Result<()> {
    wait_until_none("igmp6", without_group, "no multicast group joined for")
}

/// Waits until all IPv6 addresses of the calling thread's network namespace have local routes.
pub(crate) fn wait_until_local() -> io::Result<()> {
    wait_until_none("ipv6_route", not_local, "no local route to")
}

/// Waits until a list of the kernel is complete for all addresses.
fn wait_until_none(
    list: &str,
    missing: impl Fn(&str, &str) -> Option<String>,
    complaint: &str,
) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let read = |name| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
        let Some(missing) = missing(&read("if_inet6")?, &read(list)?) else {
            return Ok(());
        };
        if deadline < Instant::now() {
            return Err(io::Error::other(format!("{complaint} {missing}")));
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// An address without a local route.
fn not_local(addresses: &str, routes: &str) -> Option<String> {
    let local: Vec<&str> = routes.lines().filter_map(local_address).collect();
    let mut own = addresses.lines().filter_map(address);
    let missing = own.find(|(address, _)| !local.contains(address));
    missing.map(|(address, link)| format!("{address} on {link}"))
}

/// An address, with its interface, whose solicited-node group is not joined yet. Loopback has no neighbours.
fn without_group(addresses: &str, groups: &str) -> Option<String> {
    let joined: Vec<(&str, &str)> = groups.lines().filter_map(group).collect();
    let is_joined = |(address, link): &(&str, &str)| {
        let end = address.get(26..).unwrap_or_default();
        let group = format!("ff0200000000000000000001ff{end}");
        joined.contains(&(&group, link))
    };
    let missing = addresses
        .lines()
        .filter_map(address)
        .find(|own| own.1 != "lo" && !is_joined(own));
    missing.map(|(address, link)| format!("{address} on {link}"))
}

/// Address and interface of a line of `if_inet6`.
fn address(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    Some((words.next()?, words.next_back()?))
}

/// The address of a line of `ipv6_route` that is a local route.
fn local_address(line: &str) -> Option<&str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let flags = u32::from_str_radix(words.get(8)?, 16).ok()?;
    let is_local = flags & LOCAL != 0;
    words.first().copied().filter(|_| is_local)
}

/// Group and interface of a line of `igmp6`.
fn group(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace().skip(1);
    let link = words.next()?;
    Some((words.next()?, link))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_resolvable_once_its_group_is_joined() {
        let addresses = "00000000000000000000000000000001 01 80 10 80       lo\n\
                         fd000010024400010000000000000010 02 80 00 02     eth0\n";
        let other_link = "3    eth1            ff0200000000000000000001ff000010     1 00000004 0\n";
        assert_eq!(
            without_group(addresses, other_link).unwrap(),
            "fd000010024400010000000000000010 on eth0"
        );
        let groups = "2    eth0            ff0200000000000000000001ff000010     1 00000004 0\n";
        assert_eq!(without_group(addresses, groups), None);
    }

    #[test]
    fn an_address_is_local_once_it_has_a_local_route() {
        let addresses = "fd000010009600000000000000000010 09 80 00 a0 kube-ipvs0\n";
        let route = |flags| {
            let none = "0".repeat(32);
            format!(
                "fd000010009600000000000000000010 80 {none} 00 {none} 00000000 00000002 00000000 {flags} kube-ipvs0\n"
            )
        };
        assert_eq!(
            not_local(addresses, &route("00000001")).unwrap(),
            "fd000010009600000000000000000010 on kube-ipvs0"
        );
        assert_eq!(not_local(addresses, &route("80200001")), None);
    }
}
