//! The network interfaces of this namespace.

use std::collections::HashSet;

use ferrovia_netlink::rtnetlink::{LINK_HEADER_LEN, link_header, link_kind};
use ferrovia_netlink::uapi::if_link::{IFLA_IFNAME, IFLA_MASTER, IFLA_MTU};
use ferrovia_netlink::uapi::rtnetlink::RTM_GETLINK;
use ferrovia_netlink::{Attr, Attrs, Error, Message, Protocol, Socket};

use super::printable;

/// Where in the header of a link's message the flags are.
const FLAGS: std::ops::Range<usize> = 8..12;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub name: String,
    /// The kernel's word for what it is, such as `veth`; empty for hardware.
    pub kind: String,
    /// The largest packet it takes.
    pub mtu: u32,
    /// It is switched on.
    pub is_up: bool,
    /// It is the loopback device.
    pub is_loopback: bool,
    /// It is a port of a bridge or of another device.
    pub has_master: bool,
}

/// All of them, by name.
///
/// # Errors
/// If the netlink socket fails.
pub fn links() -> Result<Vec<Link>, Error> {
    let mut links: Vec<Link> = Socket::open(Protocol::Route)?.dump(
        RTM_GETLINK,
        |w| w.raw(&link_header(0, 0)),
        |all: &mut Vec<_>, message| all.extend(link(message)),
    )?;
    // A dump that was interrupted by a change may contain one twice.
    let mut seen = HashSet::new();
    links.retain(|link| seen.insert(link.name.clone()));
    links.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(links)
}

fn link(message: &Message<'_>) -> Option<Link> {
    let flags = message.body.get(FLAGS)?;
    let flags = i32::from_ne_bytes(flags.try_into().ok()?);
    let attrs = Attrs::of(message, LINK_HEADER_LEN);
    Some(Link {
        name: printable(attrs.get(IFLA_IFNAME)?.text()?),
        kind: printable(link_kind(message).unwrap_or_default()),
        mtu: attrs.get(IFLA_MTU).and_then(Attr::u32).unwrap_or_default(),
        is_up: flags & libc::IFF_UP != 0,
        is_loopback: flags & libc::IFF_LOOPBACK != 0,
        has_master: attrs.get(IFLA_MASTER).is_some(),
    })
}

/// Reads a message as one about a link.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_hostile(message: &Message<'_>) -> usize {
    usize::from(link(message).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_among_them() {
        let links = links().unwrap();
        assert!(
            links
                .iter()
                .any(|link| link.name == "lo" && link.is_loopback && link.mtu > 1000)
        );
    }
}
