//! The network interfaces of this namespace.

use std::collections::HashSet;

use super::printable;
use crate::netlink::{Attr, Attrs, Error, Message, Protocol, Socket};
use crate::rtnetlink::{kind_of_link, link, msg};

/// Where in the header of a link's message the flags are.
const FLAGS: std::ops::Range<usize> = 8..12;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its name.
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
/// If the conversation with the kernel breaks.
pub fn links() -> Result<Vec<Link>, Error> {
    let mut links: Vec<Link> = Socket::open(Protocol::Route)?.dump(
        msg::GET_LINK,
        |w| w.raw(&link::header(0, 0)),
        |all: &mut Vec<_>, message| all.extend(link(message)),
    )?;
    // A dump that was interrupted by a change may tell of one twice.
    let mut seen = HashSet::new();
    links.retain(|link| seen.insert(link.name.clone()));
    links.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(links)
}

fn link(message: &Message<'_>) -> Option<Link> {
    let flags = message.body.get(FLAGS)?;
    let flags = i32::from_ne_bytes(flags.try_into().ok()?);
    let attrs = Attrs::of(message, link::HEADER_LEN);
    Some(Link {
        name: printable(attrs.get(link::NAME)?.text()?),
        kind: printable(kind_of_link(message).unwrap_or_default()),
        mtu: attrs.get(link::MTU).and_then(Attr::u32).unwrap_or_default(),
        is_up: flags & libc::IFF_UP != 0,
        is_loopback: flags & libc::IFF_LOOPBACK != 0,
        has_master: attrs.get(link::MASTER).is_some(),
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
