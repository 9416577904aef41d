//! Route netlink as far as [`Interface`](super::Interface) needs it: links, addresses, and whether packets to an address stay here.

use std::net::IpAddr;

use crate::addr;
use crate::netlink::{Error as Netlink, Socket, Writer, flags};
use crate::rtnetlink::{address, interface, link, msg};

/// The scope of an address that nothing outside of this machine is sent from.
const SCOPE_HOST: u8 = 254;
/// Of a route: where its kind is in the fixed header, the kind of those that end here, and the attribute of the destination.
const ROUTE_TYPE: usize = 7;
const LOCAL_ROUTE: u8 = 2;
const ROUTE_DESTINATION: u16 = 1;

/// Makes a dummy device.
pub(super) fn make_dummy(socket: &mut Socket, name: &str) -> Result<(), Netlink> {
    socket.request(msg::NEW_LINK, flags::CREATE | flags::EXCL, |w| {
        w.raw(&link::header(0, 0));
        w.text(link::NAME, name);
        w.nested(link::INFO, |w| w.text(link::INFO_KIND, link::DUMMY));
    })
}

/// Sets a link up.
pub(super) fn set_up(socket: &mut Socket, number: u32) -> Result<(), Netlink> {
    socket.request(msg::NEW_LINK, 0, |w| w.raw(&link::header(number, link::UP)))
}

/// Removes a link with all that is on it.
pub(super) fn delete_link(socket: &mut Socket, number: u32) -> Result<(), Netlink> {
    socket.request(msg::DEL_LINK, 0, |w| w.raw(&link::header(number, 0)))
}

/// Puts an address on an interface, with our mark.
pub(super) fn add_address(socket: &mut Socket, interface: u32, ip: IpAddr) -> Result<(), Netlink> {
    socket.request(msg::NEW_ADDRESS, flags::CREATE | flags::EXCL, |w| {
        write_address(w, interface, ip);
    })
}

/// Takes an address off an interface.
pub(super) fn remove_address(
    socket: &mut Socket,
    interface: u32,
    ip: IpAddr,
) -> Result<(), Netlink> {
    socket.request(msg::DEL_ADDRESS, 0, |w| {
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
            if let (Some(interface), Some(ip)) = (interface(message), addr::address(message)) {
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
            w.bytes(address::LIFETIME, &address::never_preferred());
        }
    }
    w.bytes(address::ORIGIN, &[address::OF_SERVICES]);
}
