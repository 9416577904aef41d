//! Whether an IPv6 address is in force yet: found by its neighbours, and taken for the machine's own.
//!
//! The kernel sees to both a little later, from a queue of its own, which may have to wait for namespaces that are being removed. A
//! neighbour's question that comes earlier is lost, and asked again only after a second, which is longer than a call of the lab waits. A
//! packet to the address that comes earlier is sent on.

use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// Much longer than any machine takes; only a fault is waited for so long.
const PATIENCE: Duration = Duration::from_secs(30);

/// In a route's flags: it leads to the machine itself.
const LOCAL: u32 = 0x8000_0000;

/// Waits until all IPv6 addresses of the calling thread's network namespace can be found.
pub(crate) fn wait_until_found() -> io::Result<()> {
    wait_until_none("igmp6", not_listened_for, "nobody listens for")
}

/// Waits until all IPv6 addresses of the calling thread's network namespace are taken for its own.
pub(crate) fn wait_until_local() -> io::Result<()> {
    wait_until_none("ipv6_route", not_local, "no route leads to")
}

/// Waits until there is no address of which a list of the kernel's lacks something.
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

/// An address without a route that leads here.
fn not_local(addresses: &str, routes: &str) -> Option<String> {
    let local: Vec<&str> = routes.lines().filter_map(local_address).collect();
    let mut own = addresses.lines().filter_map(address);
    let missing = own.find(|(address, _)| !local.contains(address));
    missing.map(|(address, link)| format!("{address} on {link}"))
}

/// An address, with its interface, whose group nobody has joined. Loopback has no neighbours.
fn not_listened_for(addresses: &str, groups: &str) -> Option<String> {
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

/// The address of a line of `ipv6_route` that leads here.
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
    fn an_address_is_found_once_its_group_is_joined() {
        let addresses = "00000000000000000000000000000001 01 80 10 80       lo\n\
                         fd000010024400010000000000000010 02 80 00 02     eth0\n";
        let other_link = "3    eth1            ff0200000000000000000001ff000010     1 00000004 0\n";
        assert_eq!(
            not_listened_for(addresses, other_link).unwrap(),
            "fd000010024400010000000000000010 on eth0"
        );
        let groups = "2    eth0            ff0200000000000000000001ff000010     1 00000004 0\n";
        assert_eq!(not_listened_for(addresses, groups), None);
    }

    #[test]
    fn an_address_is_local_once_a_route_says_so() {
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
