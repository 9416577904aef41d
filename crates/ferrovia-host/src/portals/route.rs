//! Route netlink as far as [`Interface`](super::Interface) needs it: links, addresses, and whether packets to an address stay here.

use std::net::IpAddr;

use crate::addr;
use crate::netlink::{
    Attrs, Error as Netlink, Header, Message, Refusal, Socket, Writer, flags, messages,
};
use crate::rtnetlink::{address, link, msg};

/// The scope of an address that nothing outside of this machine is sent from.
const SCOPE_HOST: u8 = 254;
/// Of a route: where its kind is in the fixed header, the kind of those that end here, and the attribute of the destination.
const ROUTE_TYPE: usize = 7;
const LOCAL_ROUTE: u8 = 2;
const ROUTE_DESTINATION: u16 = 1;
/// The flag of a link that is up.
const UP: u32 = 1;

/// Makes a dummy device.
pub(super) fn make_dummy(socket: &mut Socket, name: &str) -> Result<(), Netlink> {
    request(socket, msg::NEW_LINK, flags::CREATE | flags::EXCL, |w| {
        w.raw(&[0; link::HEADER_LEN]);
        w.text(link::NAME, name);
        w.nested(link::INFO, |w| w.text(link::INFO_KIND, link::DUMMY));
    })
}

/// The number of a link, and whether it is a dummy device.
pub(super) fn find_link(socket: &mut Socket, name: &str) -> Result<(u32, bool), Netlink> {
    let body = |w: &mut Writer| {
        w.raw(&[0; link::HEADER_LEN]);
        w.text(link::NAME, name);
    };
    socket.ask(msg::GET_LINK, body, |message| {
        let info = Attrs::of(message, link::HEADER_LEN).get(link::INFO);
        let kind = info.and_then(|info| info.nested().get(link::INFO_KIND)?.text());
        Some((number_of(message)?, kind == Some(link::DUMMY)))
    })
}

/// Sets a link up.
pub(super) fn set_up(socket: &mut Socket, number: u32) -> Result<(), Netlink> {
    request(socket, msg::NEW_LINK, 0, |w| {
        w.raw(&[0; 4]);
        w.raw(&number.to_ne_bytes());
        w.raw(&UP.to_ne_bytes());
        w.raw(&UP.to_ne_bytes());
    })
}

/// Removes a link with all that is on it.
pub(super) fn delete_link(socket: &mut Socket, number: u32) -> Result<(), Netlink> {
    request(socket, msg::DEL_LINK, 0, |w| {
        w.raw(&[0; 4]);
        w.raw(&number.to_ne_bytes());
        w.raw(&[0; 8]);
    })
}

/// Puts an address on an interface, with our mark.
pub(super) fn add_address(socket: &mut Socket, interface: u32, ip: IpAddr) -> Result<(), Netlink> {
    request(socket, msg::NEW_ADDRESS, flags::CREATE | flags::EXCL, |w| {
        write_address(w, interface, ip);
    })
}

/// Takes an address off an interface.
pub(super) fn remove_address(
    socket: &mut Socket,
    interface: u32,
    ip: IpAddr,
) -> Result<(), Netlink> {
    request(socket, msg::DEL_ADDRESS, 0, |w| {
        write_address(w, interface, ip);
    })
}

/// An address that is there.
pub(super) struct Found {
    pub(super) interface: u32,
    pub(super) ip: IpAddr,
    /// It is one that we put there.
    pub(super) is_marked: bool,
}

/// All addresses of all interfaces.
pub(super) fn addresses(socket: &mut Socket) -> Result<Vec<Found>, Netlink> {
    socket.dump(
        msg::GET_ADDRESS,
        |w| w.raw(&[0; address::HEADER_LEN]),
        |all: &mut Vec<Found>, message| {
            if let (Some(interface), Some(ip)) = (number_of(message), addr::address(message)) {
                all.push(Found {
                    interface,
                    ip,
                    is_marked: addr::is_of_services(message),
                });
            }
        },
    )
}

/// Packets to an address stay on this machine.
pub(super) fn is_local(socket: &mut Socket, ip: IpAddr) -> Result<bool, Netlink> {
    let IpAddr::V6(v6) = ip else {
        return Ok(true);
    };
    let asked = socket.ask(
        msg::GET_ROUTE,
        |w| {
            w.raw(&[libc::AF_INET6 as u8, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            w.bytes(ROUTE_DESTINATION, &v6.octets());
        },
        |message| message.body.get(ROUTE_TYPE).copied(),
    );
    match asked {
        Ok(kind) => Ok(kind == LOCAL_ROUTE),
        // Neither local nor anywhere else.
        Err(error) if matches!(error.errno(), Some(libc::ENETUNREACH | libc::EHOSTUNREACH)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// An address of ours. It is never one to send from: what this machine sends should come from the machine, not from a service.
fn write_address(w: &mut Writer, interface: u32, ip: IpAddr) {
    let mut head = |family: libc::c_int, bits: u8, scope: u8| {
        w.raw(&[family as u8, bits, address::NO_DETECTION, scope]);
        w.raw(&interface.to_ne_bytes());
    };
    match ip {
        IpAddr::V4(v4) => {
            head(libc::AF_INET, 32, SCOPE_HOST);
            w.bytes(address::LOCAL, &v4.octets());
            w.bytes(address::ADDRESS, &v4.octets());
        }
        IpAddr::V6(v6) => {
            head(libc::AF_INET6, 128, 0);
            w.bytes(address::LOCAL, &v6.octets());
            w.bytes(address::ADDRESS, &v6.octets());
            // Preferred for no time, valid for ever; the other two are the kernel's.
            let times = [0, u32::MAX, 0, 0].map(u32::to_ne_bytes);
            w.bytes(address::LIFETIME, times.as_flattened());
        }
    }
    w.bytes(address::ORIGIN, &[address::OF_SERVICES]);
}

/// Asks for a change and waits for the kernel's word.
fn request(
    socket: &mut Socket,
    kind: u16,
    how: u16,
    body: impl FnOnce(&mut Writer),
) -> Result<(), Netlink> {
    let seq = socket.next_seq();
    socket.skip_seqs(1);
    let mut writer = Writer::with_capacity(128);
    let flags = flags::REQUEST | flags::ACK | how;
    writer.message(Header { kind, flags, seq }, body);
    socket.send(&writer.finish()?)?;
    loop {
        let answer = messages(socket.receive()?).find(|message| message.seq == seq);
        match answer.as_ref().and_then(Refusal::read) {
            Some(Ok(())) => return Ok(()),
            Some(Err(refusal)) => return Err(Netlink::Refused(refusal)),
            None => {}
        }
    }
}

/// The interface that a message about a link or an address is about.
fn number_of(message: &Message<'_>) -> Option<u32> {
    let bytes = message.body.get(4..8)?;
    bytes.try_into().ok().map(u32::from_ne_bytes)
}
