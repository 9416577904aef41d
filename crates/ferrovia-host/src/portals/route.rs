//! Route netlink as far as [`Interface`](super::Interface) needs it: links, addresses, and whether packets to an address stay here.

use std::net::IpAddr;

use ferrovia_netlink::rtnetlink::{
    ADDRESS_HEADER_LEN, DUMMY_KIND, deprecated_address_lifetime, interface_index, link_header,
};
use ferrovia_netlink::uapi::if_addr::{
    IFA_ADDRESS, IFA_CACHEINFO, IFA_F_NODAD, IFA_LOCAL, IFA_PROTO,
};
use ferrovia_netlink::uapi::if_link::{IFLA_IFNAME, IFLA_INFO_KIND, IFLA_LINKINFO};
use ferrovia_netlink::uapi::netlink::{NLM_F_CREATE, NLM_F_EXCL};
use ferrovia_netlink::uapi::rtnetlink::{
    RT_SCOPE_HOST, RT_SCOPE_UNIVERSE, RTA_DST, RTM_DELADDR, RTM_DELLINK, RTM_GETADDR, RTM_GETROUTE,
    RTM_NEWADDR, RTM_NEWLINK, RTN_LOCAL,
};
use ferrovia_netlink::{Error as Netlink, Socket, Writer};

use crate::addr::{self, IFA_PROTO_SERVICE};

/// The offset of `rtm_type` in `struct rtmsg`.
const RTM_TYPE_OFFSET: usize = 7;

/// Makes a dummy device.
pub(super) fn make_dummy(socket: &mut Socket, name: &str) -> Result<(), Netlink> {
    socket.request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, |w| {
        w.raw(&link_header(0, 0));
        w.text(IFLA_IFNAME, name);
        w.nested(IFLA_LINKINFO, |w| w.text(IFLA_INFO_KIND, DUMMY_KIND));
    })
}

/// Sets a link up.
pub(super) fn set_up(socket: &mut Socket, number: u32) -> Result<(), Netlink> {
    socket.request(RTM_NEWLINK, 0, |w| {
        w.raw(&link_header(number, libc::IFF_UP as u32));
    })
}

/// Removes a link with all that is on it.
pub(super) fn delete_link(socket: &mut Socket, number: u32) -> Result<(), Netlink> {
    socket.request(RTM_DELLINK, 0, |w| w.raw(&link_header(number, 0)))
}

/// Puts an address on an interface, with our mark.
pub(super) fn add_address(socket: &mut Socket, interface: u32, ip: IpAddr) -> Result<(), Netlink> {
    socket.request(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, |w| {
        write_address(w, interface, ip);
    })
}

/// Takes an address off an interface.
pub(super) fn remove_address(
    socket: &mut Socket,
    interface: u32,
    ip: IpAddr,
) -> Result<(), Netlink> {
    socket.request(RTM_DELADDR, 0, |w| {
        write_address(w, interface, ip);
    })
}

/// An address that is there.
pub(super) struct InterfaceAddress {
    pub(super) interface: u32,
    pub(super) ip: IpAddr,
    /// It is one that we put there.
    pub(super) is_marked: bool,
}

/// All addresses of all interfaces.
pub(super) fn addresses(socket: &mut Socket) -> Result<Vec<InterfaceAddress>, Netlink> {
    socket.dump(
        RTM_GETADDR,
        |w| w.raw(&[0; ADDRESS_HEADER_LEN]),
        |all: &mut Vec<InterfaceAddress>, message| {
            if let (Some(interface), Some(ip)) = (interface_index(message), addr::address(message))
            {
                all.push(InterfaceAddress {
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
    let asked = socket.query(
        RTM_GETROUTE,
        |w| {
            w.raw(&[libc::AF_INET6 as u8, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            w.bytes(RTA_DST, &v6.octets());
        },
        |message| message.body.get(RTM_TYPE_OFFSET).copied(),
    );
    match asked {
        Ok(kind) => Ok(kind == RTN_LOCAL),
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
        w.raw(&[family as u8, bits, IFA_F_NODAD, scope]);
        w.raw(&interface.to_ne_bytes());
    };
    match ip {
        IpAddr::V4(v4) => {
            head(libc::AF_INET, 32, RT_SCOPE_HOST);
            w.bytes(IFA_LOCAL, &v4.octets());
            w.bytes(IFA_ADDRESS, &v4.octets());
        }
        IpAddr::V6(v6) => {
            head(libc::AF_INET6, 128, RT_SCOPE_UNIVERSE);
            w.bytes(IFA_LOCAL, &v6.octets());
            w.bytes(IFA_ADDRESS, &v6.octets());
            w.bytes(IFA_CACHEINFO, &deprecated_address_lifetime());
        }
    }
    w.bytes(IFA_PROTO, &[IFA_PROTO_SERVICE]);
}
