//! The two kernel settings that the iptables mode depends on. Both are of the network namespace.

use std::fs;
use std::io;

/// Non-zero: conntrack lets packets through that do not fit their connection, and none counts as invalid.
const LIBERAL: &str = "/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal";
/// Non-zero: packets from and to 127.0.0.0/8 may be routed.
pub(super) const ROUTE_LOCALNET: &str = "/proc/sys/net/ipv4/conf/all/route_localnet";

/// Conntrack is told to be liberal, so dropping what it cannot place would break what the administrator wants to work.
pub fn is_liberal() -> bool {
    fs::read_to_string(LIBERAL).is_ok_and(|value| value.trim() != "0")
}

/// Lets node ports answer on loopback. Only to be called when the rule is in force that keeps others from getting in that way.
pub(super) fn allow_localnet_routing() -> io::Result<()> {
    let value = fs::read_to_string(ROUTE_LOCALNET)?;
    if value.trim() == "1" {
        return Ok(());
    }
    fs::write(ROUTE_LOCALNET, "1")
}
