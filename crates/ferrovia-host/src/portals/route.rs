//! Route netlink as far as [`Interface`](super::Interface) needs it: links, addresses, and whether packets to an address stay here.

use std::net::IpAddr;

use crate::addr;
use crate::netlink::{
    Attrs, Error as Netlink, Header, Message, Refusal, Socket, Writer, flags, messages,
};

/// Message kinds of route netlink.
mod msg {
    pub(super) const NEW_LINK: u16 = 16;
    pub(super) const DEL_LINK: u16 = 17;
    pub(super) const GET_LINK: u16 = 18;
    pub(super) const NEW_ADDRESS: u16 = 20;
    pub(super) const DEL_ADDRESS: u16 = 21;
    pub(super) const GET_ADDRESS: u16 = 22;
    pub(super) const GET_ROUTE: u16 = 26;
}

/// Attributes of a link: its name, and what it is, with the kind inside.
const NAME: u16 = 3;
const INFO: u16 = 18;
const KIND: u16 = 1;
/// Attributes of an address: itself, how long it is good for, and who put it there, which kernels before 5.18 do not keep.
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const TIMES: u16 = 6;
const ORIGIN: u16 = 11;
/// Our mark as who put an address there. The kernel itself uses 1 to 3.
const MARK: u8 = 0x66;
/// The scope of an address that nothing outside of this machine is sent from.
const SCOPE_HOST: u8 = 254;
/// The fixed header of address messages: family, prefix length, flags, scope, interface.
const ADDRESS_HEADER_LEN: usize = 8;
/// Of a route: where its kind is in the fixed header, the kind of those that end here, and the attribute of the destination.
const ROUTE_TYPE: usize = 7;
const LOCAL_ROUTE: u8 = 2;
const ROUTE_DESTINATION: u16 = 1;
/// A flag of a request: what is there already is not replaced.
const EXCLUSIVE: u16 = 0x200;
/// A flag of an address: nobody need be asked whether it is taken.
const NO_DETECTION: u8 = 2;
/// The fixed header of link messages: family, type, number, flags, which flags count.
const LINK_HEADER_LEN: usize = 16;
/// The flag of a link that is up.
const UP: u32 = 1;
const DUMMY: &str = "dummy";

/// Makes a dummy device.
pub(super) fn make_dummy(socket: &mut Socket, name: &str) -> Result<(), Netlink> {
    request(socket, msg::NEW_LINK, flags::CREATE | EXCLUSIVE, |w| {
        w.raw(&[0; LINK_HEADER_LEN]);
        w.text(NAME, name);
        w.nested(INFO, |w| w.text(KIND, DUMMY));
    })
}

/// The number of a link, and whether it is a dummy device.
pub(super) fn find_link(socket: &mut Socket, name: &str) -> Result<(u32, bool), Netlink> {
    let body = |w: &mut Writer| {
        w.raw(&[0; LINK_HEADER_LEN]);
        w.text(NAME, name);
    };
    socket.ask(msg::GET_LINK, body, |message| {
        let info = Attrs::of(message, LINK_HEADER_LEN).get(INFO);
        let kind = info.and_then(|info| info.nested().get(KIND)?.text());
        Some((number_of(message)?, kind == Some(DUMMY)))
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
    request(socket, msg::NEW_ADDRESS, flags::CREATE | EXCLUSIVE, |w| {
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
        |w| w.raw(&[0; ADDRESS_HEADER_LEN]),
        |all: &mut Vec<Found>, message| {
            let origin = Attrs::of(message, ADDRESS_HEADER_LEN).get(ORIGIN);
            if let (Some(interface), Some(ip)) = (number_of(message), addr::address(message)) {
                all.push(Found {
                    interface,
                    ip,
                    is_marked: origin.and_then(|origin| origin.u8()) == Some(MARK),
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
        w.raw(&[family as u8, bits, NO_DETECTION, scope]);
        w.raw(&interface.to_ne_bytes());
    };
    match ip {
        IpAddr::V4(v4) => {
            head(libc::AF_INET, 32, SCOPE_HOST);
            w.bytes(LOCAL, &v4.octets());
            w.bytes(ADDRESS, &v4.octets());
        }
        IpAddr::V6(v6) => {
            head(libc::AF_INET6, 128, 0);
            w.bytes(LOCAL, &v6.octets());
            w.bytes(ADDRESS, &v6.octets());
            // Preferred for no time, valid for ever; the other two are the kernel's.
            let times = [0, u32::MAX, 0, 0].map(u32::to_ne_bytes);
            w.bytes(TIMES, times.as_flattened());
        }
    }
    w.bytes(ORIGIN, &[MARK]);
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
