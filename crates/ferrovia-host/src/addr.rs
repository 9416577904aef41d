//! The node's own addresses: read once, and heard of when they change.

use std::net::IpAddr;

use crate::netlink::{Attr, Attrs, Error, Message, Protocol, Socket, messages};

/// Message kinds of route netlink.
const NEW_ADDRESS: u16 = 20;
const DEL_ADDRESS: u16 = 21;
const GET_ADDRESS: u16 = 22;
/// The fixed header of address messages: family, prefix length, flags, scope, interface.
const HEADER_LEN: usize = 8;
/// The address, or on a point-to-point link the peer's.
const ADDRESS: u16 = 1;
/// Our own end of a link.
const LOCAL: u16 = 2;
/// The groups that hear of addresses.
const GROUPS: [u32; 2] = [5, 9];

/// Every address of every interface in this thread's network namespace, without IPv6 link-local
/// ones: those mean nothing without an interface, so no service can be reached by them.
///
/// # Errors
/// If the conversation with the kernel breaks.
pub fn local_addresses() -> Result<Vec<IpAddr>, Error> {
    let mut socket = Socket::open(Protocol::Route)?;
    let all_families = [libc::AF_UNSPEC as u8, 0, 0, 0, 0, 0, 0, 0];
    let mut addresses: Vec<IpAddr> = socket.dump(
        GET_ADDRESS,
        |w| w.raw(&all_families),
        |all: &mut Vec<_>, message| all.extend(address(message)),
    )?;
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

/// Hears of addresses that come and go.
#[derive(Debug)]
pub struct AddressMonitor {
    socket: Socket,
}

impl AddressMonitor {
    /// Starts listening. Read the addresses after this, so that no change falls in between.
    ///
    /// # Errors
    /// If a system call fails.
    pub fn open() -> Result<Self, Error> {
        let socket = Socket::open(Protocol::Route)?;
        socket.wait_for_ever()?;
        for group in GROUPS {
            socket.join(group)?;
        }
        Ok(Self { socket })
    }

    /// Waits until an address came, went or may have: the caller reads them all anew.
    ///
    /// # Errors
    /// If the conversation with the kernel breaks.
    pub fn wait(&mut self) -> Result<(), Error> {
        loop {
            match self.socket.receive() {
                Ok(datagram) => {
                    let mut news = messages(datagram);
                    if news.any(|message| address(&message).is_some()) {
                        return Ok(());
                    }
                }
                // What was lost may have been about addresses.
                Err(Error::Lost) => return self.socket.drain(),
                Err(error) => return Err(error),
            }
        }
    }
}

/// The address that a message is about, if it is one that counts.
pub(crate) fn address(message: &Message<'_>) -> Option<IpAddr> {
    if !matches!(message.kind, NEW_ADDRESS | DEL_ADDRESS) {
        return None;
    }
    let attrs = Attrs::of(message, HEADER_LEN);
    let ip = attrs
        .get(LOCAL)
        .or_else(|| attrs.get(ADDRESS))
        .and_then(Attr::ip)?;
    let link_local = matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    (!link_local).then_some(ip)
}
