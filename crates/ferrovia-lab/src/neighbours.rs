//! Whether an IPv6 address can be found by its neighbours yet.
//!
//! The kernel makes an interface listen for questions about a new address a little later, from a queue of its own. A question that comes
//! earlier is lost, and asked again only after a second, which is longer than a call of the lab waits.

use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// Much longer than any machine takes; only a fault is waited for so long.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until all IPv6 addresses of the calling thread's network namespace can be found.
pub(crate) fn wait_until_found() -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let addresses = fs::read_to_string("/proc/thread-self/net/if_inet6")?;
        let groups = fs::read_to_string("/proc/thread-self/net/igmp6")?;
        let Some(missing) = missing(&addresses, &groups) else {
            return Ok(());
        };
        if deadline < Instant::now() {
            return Err(io::Error::other(format!("nobody listens for {missing}")));
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// An address, with its interface, whose group nobody has joined. Loopback has no neighbours.
fn missing(addresses: &str, groups: &str) -> Option<String> {
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
            missing(addresses, other_link).unwrap(),
            "fd000010024400010000000000000010 on eth0"
        );
        let groups = "2    eth0            ff0200000000000000000001ff000010     1 00000004 0\n";
        assert_eq!(missing(addresses, groups), None);
    }
}
