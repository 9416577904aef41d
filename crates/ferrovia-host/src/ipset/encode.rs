//! Changes of sets as messages.

use std::net::IpAddr;

use ferrovia_core::dialect::ipset::{IpsetEntry, IpsetName, IpsetOp, IpsetType};
use ferrovia_core::family::Family;
use ferrovia_core::model::Protocol;
use ferrovia_netlink::uapi::ip_set::{
    IPSET_ATTR_CIDR2, IPSET_ATTR_DATA, IPSET_ATTR_FAMILY, IPSET_ATTR_HASHSIZE, IPSET_ATTR_IP,
    IPSET_ATTR_IP2, IPSET_ATTR_IPADDR_IPV4, IPSET_ATTR_IPADDR_IPV6, IPSET_ATTR_MAXELEM,
    IPSET_ATTR_PORT, IPSET_ATTR_PORT_TO, IPSET_ATTR_PROTO, IPSET_ATTR_PROTOCOL,
    IPSET_ATTR_REVISION, IPSET_ATTR_SETNAME, IPSET_ATTR_SETNAME2, IPSET_ATTR_TYPENAME,
    IPSET_CMD_ADD, IPSET_CMD_CREATE, IPSET_CMD_DEL, IPSET_CMD_DESTROY, IPSET_CMD_SWAP,
};
use ferrovia_netlink::uapi::netlink::{NLA_F_NET_BYTEORDER, NLM_F_CREATE, NLM_F_EXCL};
use ferrovia_netlink::{Request, Writer, nfnetlink};

use super::{PROTOCOL_VERSION, message_type};

/// The size a hash begins with; it grows.
const HASH_SIZE: u32 = 1024;

/// A change as a request.
pub(super) struct SetRequest<'a> {
    pub(super) op: &'a IpsetOp,
    /// Which revision of its kind a set to be made gets.
    pub(super) revision: u8,
}

impl Request for SetRequest<'_> {
    fn kind(&self) -> u16 {
        message_type(match self.op {
            IpsetOp::Create { .. } => IPSET_CMD_CREATE,
            IpsetOp::Add(..) => IPSET_CMD_ADD,
            IpsetOp::Delete(..) => IPSET_CMD_DEL,
            IpsetOp::Swap(..) => IPSET_CMD_SWAP,
            IpsetOp::Destroy(_) => IPSET_CMD_DESTROY,
        })
    }

    fn flags(&self) -> u16 {
        match self.op {
            IpsetOp::Create { .. } => NLM_F_CREATE | NLM_F_EXCL,
            // With NLM_F_EXCL the kernel reports that there was nothing to do, which keeps our entry counts right.
            IpsetOp::Add(..) | IpsetOp::Delete(..) => NLM_F_EXCL,
            IpsetOp::Swap(..) | IpsetOp::Destroy(_) => 0,
        }
    }

    fn write(&self, w: &mut Writer) {
        head(w);
        match self.op {
            IpsetOp::Create { set, kind, max } => create(w, set, *kind, *max, self.revision),
            IpsetOp::Add(set, entry) | IpsetOp::Delete(set, entry) => {
                w.text(IPSET_ATTR_SETNAME, set.as_str());
                w.nested(IPSET_ATTR_DATA, |w| write_entry(w, entry));
            }
            // Without a name this means all sets, but a name is never empty.
            IpsetOp::Destroy(set) => w.text(IPSET_ATTR_SETNAME, set.as_str()),
            IpsetOp::Swap(one, other) => {
                w.text(IPSET_ATTR_SETNAME, one.as_str());
                w.text(IPSET_ATTR_SETNAME2, other.as_str());
            }
        }
    }
}

/// What every message begins with.
pub(super) fn head(w: &mut Writer) {
    w.raw(&nfnetlink::header(libc::AF_UNSPEC as u8));
    w.bytes(IPSET_ATTR_PROTOCOL, &[PROTOCOL_VERSION]);
}

/// The kernel's number for the family of a kind's addresses.
pub(super) fn family_number(kind: IpsetType) -> u8 {
    match kind.family() {
        None => libc::AF_UNSPEC as u8,
        Some(Family::V4) => libc::AF_INET as u8,
        Some(Family::V6) => libc::AF_INET6 as u8,
    }
}

fn create(w: &mut Writer, set: &IpsetName, kind: IpsetType, max: u32, revision: u8) {
    w.text(IPSET_ATTR_SETNAME, set.as_str());
    w.text(IPSET_ATTR_TYPENAME, kind.type_name());
    w.bytes(IPSET_ATTR_REVISION, &[revision]);
    w.bytes(IPSET_ATTR_FAMILY, &[family_number(kind)]);
    w.nested(IPSET_ATTR_DATA, |w| match kind {
        IpsetType::Port => {
            be16(w, IPSET_ATTR_PORT, 0);
            be16(w, IPSET_ATTR_PORT_TO, u16::MAX);
        }
        _ => {
            w.be32(IPSET_ATTR_HASHSIZE | NLA_F_NET_BYTEORDER, HASH_SIZE);
            w.be32(IPSET_ATTR_MAXELEM | NLA_F_NET_BYTEORDER, max);
        }
    });
}

fn write_entry(w: &mut Writer, entry: &IpsetEntry) {
    match entry {
        IpsetEntry::Ip(ip) => write_ip(w, IPSET_ATTR_IP, *ip),
        IpsetEntry::IpPort(ip, protocol, port) => ip_and_port(w, *ip, *protocol, *port),
        IpsetEntry::IpPortIp(ip, protocol, port, other) => {
            ip_and_port(w, *ip, *protocol, *port);
            write_ip(w, IPSET_ATTR_IP2, *other);
        }
        IpsetEntry::IpPortNet(ip, protocol, port, net) => {
            ip_and_port(w, *ip, *protocol, *port);
            write_ip(w, IPSET_ATTR_IP2, net.network());
            w.bytes(IPSET_ATTR_CIDR2, &[net.prefix_len()]);
        }
        IpsetEntry::Port(port) => be16(w, IPSET_ATTR_PORT, *port),
    }
}

fn ip_and_port(w: &mut Writer, ip: IpAddr, protocol: Protocol, port: u16) {
    write_ip(w, IPSET_ATTR_IP, ip);
    be16(w, IPSET_ATTR_PORT, port);
    w.bytes(IPSET_ATTR_PROTO, &[protocol.number()]);
}

fn write_ip(w: &mut Writer, kind: u16, ip: IpAddr) {
    w.nested(kind, |w| match ip {
        IpAddr::V4(v4) => w.bytes(IPSET_ATTR_IPADDR_IPV4 | NLA_F_NET_BYTEORDER, &v4.octets()),
        IpAddr::V6(v6) => w.bytes(IPSET_ATTR_IPADDR_IPV6 | NLA_F_NET_BYTEORDER, &v6.octets()),
    });
}

fn be16(w: &mut Writer, kind: u16, value: u16) {
    w.bytes(kind | NLA_F_NET_BYTEORDER, &value.to_be_bytes());
}
