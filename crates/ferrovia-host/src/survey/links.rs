//! The network interfaces of this namespace.

use std::collections::HashSet;

use super::printable;
use crate::netlink::{Attr, Attrs, Error, Message, Protocol, Socket};

/// Message kinds of route netlink.
const GET_LINK: u16 = 18;
/// The fixed header of link messages: family, type, interface, flags, changes.
const HEADER_LEN: usize = 16;
/// Where in it the flags are.
const FLAGS: std::ops::Range<usize> = 8..12;
/// Attributes of links, and of what says which kind a link is.
const NAME: u16 = 3;
const MTU: u16 = 4;
const MASTER: u16 = 10;
const LINK_INFO: u16 = 18;
const INFO_KIND: u16 = 1;

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
        GET_LINK,
        |w| w.raw(&[0; HEADER_LEN]),
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
    let attrs = Attrs::of(message, HEADER_LEN);
    let kind = attrs
        .get(LINK_INFO)
        .and_then(|info| info.nested().get(INFO_KIND)?.text());
    Some(Link {
        name: printable(attrs.get(NAME)?.text()?),
        kind: printable(kind.unwrap_or_default()),
        mtu: attrs.get(MTU).and_then(Attr::u32).unwrap_or_default(),
        is_up: flags & libc::IFF_UP != 0,
        is_loopback: flags & libc::IFF_LOOPBACK != 0,
        has_master: attrs.get(MASTER).is_some(),
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
