//! Route netlink: the fixed headers of its messages, and how to find a link by its name.

use crate::uapi::if_link::{IFLA_IFNAME, IFLA_INFO_KIND, IFLA_LINKINFO};
use crate::uapi::rtnetlink::RTM_GETLINK;
use crate::{Attrs, Error, Message, Socket};

/// `IFLA_INFO_KIND` of devices that only hold addresses.
pub const DUMMY_KIND: &str = "dummy";

/// Length of `struct ifinfomsg`.
pub const LINK_HEADER_LEN: usize = 16;
/// Length of `struct ifaddrmsg`.
pub const ADDRESS_HEADER_LEN: usize = 8;

/// A `struct ifinfomsg` for a link, or with index 0 for one that is created or found by name. These flags (`IFF_*`) are set, the others are
/// left as they are.
pub fn link_header(index: u32, set_flags: u32) -> [u8; LINK_HEADER_LEN] {
    let mut header = [0; LINK_HEADER_LEN];
    let fields = [0, index, set_flags, set_flags];
    for (bytes, field) in header.chunks_exact_mut(4).zip(fields) {
        bytes.copy_from_slice(&field.to_ne_bytes());
    }
    header
}

/// A `struct ifaddrmsg` with universe scope.
pub fn address_header(
    family: u8,
    prefix_len: u8,
    flags: u8,
    index: u32,
) -> [u8; ADDRESS_HEADER_LEN] {
    let [a, b, c, d] = index.to_ne_bytes();
    [family, prefix_len, flags, 0, a, b, c, d]
}

/// A `struct ifa_cacheinfo` that the kernel never chooses a source address by: preferred lifetime 0, valid forever.
///
/// Masquerading takes the IPv6 address nearest to the destination from any interface, which without this would be a service's address more
/// often than the node's.
pub fn deprecated_address_lifetime() -> Vec<u8> {
    let (preferred, valid, created, updated) = (0, u32::MAX, 0, 0);
    let lifetime = [preferred, valid, created, updated];
    lifetime.map(u32::to_ne_bytes).concat()
}

/// Index and kind of the link with this name. Hardware has no kind and gets `hardware`.
///
/// # Errors
/// With `ENODEV` if there is none, or if the request fails for another reason.
pub fn find_link(socket: &mut Socket, name: &str) -> Result<(u32, String), Error> {
    socket.query(
        RTM_GETLINK,
        |w| {
            w.raw(&link_header(0, 0));
            w.text(IFLA_IFNAME, name);
        },
        |message| {
            let kind = link_kind(message).unwrap_or("hardware");
            Some((interface_index(message)?, kind.to_owned()))
        },
    )
}

/// `IFLA_INFO_KIND` of the link that a message is about. Hardware has none.
pub fn link_kind<'a>(message: &Message<'a>) -> Option<&'a str> {
    let info = Attrs::of(message, LINK_HEADER_LEN).get(IFLA_LINKINFO)?;
    info.nested().get(IFLA_INFO_KIND)?.text()
}

/// The interface index in the fixed header of a message about a link or an address: both have it at the same offset.
pub fn interface_index(message: &Message<'_>) -> Option<u32> {
    const OFFSET: usize = 4;
    let index = message.body.get(OFFSET..OFFSET + 4)?;
    Some(u32::from_ne_bytes(index.try_into().ok()?))
}
