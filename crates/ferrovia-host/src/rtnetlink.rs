//! Route netlink, as far as several of us speak it: the kernel's numbers of links, addresses and routes, and what is written and read the
//! same everywhere.

use crate::netlink::{Attrs, Error, Message, Socket};

/// Message kinds.
pub(crate) mod msg {
    pub(crate) const NEW_LINK: u16 = 16;
    pub(crate) const DEL_LINK: u16 = 17;
    pub(crate) const GET_LINK: u16 = 18;
    pub(crate) const NEW_ADDRESS: u16 = 20;
    pub(crate) const DEL_ADDRESS: u16 = 21;
    pub(crate) const GET_ADDRESS: u16 = 22;
    pub(crate) const NEW_ROUTE: u16 = 24;
    pub(crate) const GET_ROUTE: u16 = 26;
}

/// Links.
pub(crate) mod link {
    /// The fixed header of their messages: family, type, interface, flags, which flags count.
    pub(crate) const HEADER_LEN: usize = 16;
    /// In the header's flags: it is switched on.
    pub(crate) const UP: u32 = libc::IFF_UP as u32;
    pub(crate) const NAME: u16 = 3;
    pub(crate) const MTU: u16 = 4;
    pub(crate) const MASTER: u16 = 10;
    pub(crate) const QUEUE_LENGTH: u16 = 13;
    /// What it is, and what only links of that kind have.
    pub(crate) const INFO: u16 = 18;
    /// Inside the former.
    pub(crate) const INFO_KIND: u16 = 1;
    /// Inside the same.
    pub(crate) const INFO_DATA: u16 = 2;
    pub(crate) const NAMESPACE: u16 = 28;
    /// The kind of devices that exist to have addresses.
    pub(crate) const DUMMY: &str = "dummy";

    /// The header of a message about the link of a number, 0 for one that has none yet. These flags are set, the others left as they are.
    pub(crate) fn header(number: u32, set: u32) -> Vec<u8> {
        [0, number, set, set].map(u32::to_ne_bytes).concat()
    }
}

/// Addresses of interfaces.
pub(crate) mod address {
    /// The fixed header of their messages: family, prefix length, flags, scope, interface.
    pub(crate) const HEADER_LEN: usize = 8;
    /// The address, or on a point-to-point link the peer's.
    pub(crate) const ADDRESS: u16 = 1;
    /// Our own end of a link.
    pub(crate) const LOCAL: u16 = 2;
    /// How long it may be used.
    pub(crate) const LIFETIME: u16 = 6;
    /// Who put it there; kernels before 5.18 do not keep that.
    pub(crate) const ORIGIN: u16 = 11;
    /// Who put it there, if that was our userspace mode without rules. The kernel itself uses 1 to 3.
    pub(crate) const OF_SERVICES: u8 = 0x66;
    /// In the header's flags: nobody need be asked whether it is taken, which for IPv6 takes a second.
    pub(crate) const NO_DETECTION: u8 = 2;

    /// A lifetime that has the kernel choose an IPv6 address as the source of nothing: masquerading takes the address nearest to the
    /// destination from any interface, which would be a service's more often than the node's.
    pub(crate) fn never_preferred() -> Vec<u8> {
        let (preferred, valid_for_ever, made, changed) = (0, u32::MAX, 0, 0);
        let lifetime = [preferred, valid_for_ever, made, changed];
        lifetime.map(u32::to_ne_bytes).concat()
    }
}

/// The number and the kind of the link of a name. One without a kind is hardware.
///
/// # Errors
/// With `ENODEV` if there is none, or if the conversation breaks.
pub(crate) fn find_link(socket: &mut Socket, name: &str) -> Result<(u32, String), Error> {
    socket.ask(
        msg::GET_LINK,
        |w| {
            w.raw(&link::header(0, 0));
            w.text(link::NAME, name);
        },
        |message| {
            let kind = kind_of_link(message).unwrap_or("hardware");
            Some((interface(message)?, kind.to_owned()))
        },
    )
}

/// The kernel's word for what the link is that a message is about. Hardware has none.
pub(crate) fn kind_of_link<'a>(message: &Message<'a>) -> Option<&'a str> {
    let info = Attrs::of(message, link::HEADER_LEN).get(link::INFO)?;
    info.nested().get(link::INFO_KIND)?.text()
}

/// The number of the interface that a message is about: headers of links and of addresses have it at the same place.
pub(crate) fn interface(message: &Message<'_>) -> Option<u32> {
    let number = message.body.get(4..8)?;
    Some(u32::from_ne_bytes(number.try_into().ok()?))
}
