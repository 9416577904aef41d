//! Changes of sets as messages.

use std::net::IpAddr;

use ferrovia_core::dialect::ipset::{IpsetEntry, IpsetName, IpsetOp, IpsetType};
use ferrovia_core::family::Family;
use ferrovia_core::model::Protocol;

use super::uapi::{HEADER, NET_ORDER, VERSION, address, attr, data, msg};
use crate::netlink::{Request, Writer, flags};

/// The size a hash begins with; it grows.
const HASH_SIZE: u32 = 1024;

/// A change as a request.
pub(super) struct Change<'a> {
    pub(super) op: &'a IpsetOp,
    /// Which revision of its kind a set to be made gets.
    pub(super) revision: u8,
}

impl Request for Change<'_> {
    fn kind(&self) -> u16 {
        match self.op {
            IpsetOp::Create { .. } => msg::CREATE,
            IpsetOp::Add(..) => msg::ADD,
            IpsetOp::Delete(..) => msg::DELETE,
            IpsetOp::Swap(..) => msg::SWAP,
            IpsetOp::Destroy(_) => msg::DESTROY,
        }
    }

    fn flags(&self) -> u16 {
        match self.op {
            IpsetOp::Create { .. } => flags::CREATE | flags::EXCL,
            // We want to be told that there was nothing to do, to know how many entries there are.
            IpsetOp::Add(..) | IpsetOp::Delete(..) => flags::EXCL,
            IpsetOp::Swap(..) | IpsetOp::Destroy(_) => 0,
        }
    }

    fn write(&self, w: &mut Writer) {
        head(w);
        match self.op {
            IpsetOp::Create { set, kind, max } => create(w, set, *kind, *max, self.revision),
            IpsetOp::Add(set, entry) | IpsetOp::Delete(set, entry) => {
                w.text(attr::SET, set.as_str());
                w.nested(attr::DATA, |w| write_entry(w, entry));
            }
            // Without a name this means all sets, but a name is never empty.
            IpsetOp::Destroy(set) => w.text(attr::SET, set.as_str()),
            IpsetOp::Swap(one, other) => {
                w.text(attr::SET, one.as_str());
                w.text(attr::OTHER_SET, other.as_str());
            }
        }
    }
}

/// What every message begins with.
pub(super) fn head(w: &mut Writer) {
    w.raw(&HEADER);
    w.bytes(attr::PROTOCOL, &[VERSION]);
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
    w.text(attr::SET, set.as_str());
    w.text(attr::TYPE, kind.type_name());
    w.bytes(attr::REVISION, &[revision]);
    w.bytes(attr::FAMILY, &[family_number(kind)]);
    w.nested(attr::DATA, |w| match kind {
        IpsetType::Port => {
            be16(w, data::PORT, 0);
            be16(w, data::PORT_TO, u16::MAX);
        }
        _ => {
            w.be32(data::HASH_SIZE | NET_ORDER, HASH_SIZE);
            w.be32(data::MAX_ENTRIES | NET_ORDER, max);
        }
    });
}

fn write_entry(w: &mut Writer, entry: &IpsetEntry) {
    match entry {
        IpsetEntry::Ip(ip) => write_ip(w, data::IP, *ip),
        IpsetEntry::IpPort(ip, protocol, port) => ip_and_port(w, *ip, *protocol, *port),
        IpsetEntry::IpPortIp(ip, protocol, port, other) => {
            ip_and_port(w, *ip, *protocol, *port);
            write_ip(w, data::OTHER_IP, *other);
        }
        IpsetEntry::IpPortNet(ip, protocol, port, net) => {
            ip_and_port(w, *ip, *protocol, *port);
            write_ip(w, data::OTHER_IP, net.network());
            w.bytes(data::OTHER_PREFIX, &[net.prefix_len()]);
        }
        IpsetEntry::Port(port) => be16(w, data::PORT, *port),
    }
}

fn ip_and_port(w: &mut Writer, ip: IpAddr, protocol: Protocol, port: u16) {
    write_ip(w, data::IP, ip);
    be16(w, data::PORT, port);
    w.bytes(data::PROTOCOL, &[protocol.number()]);
}

fn write_ip(w: &mut Writer, kind: u16, ip: IpAddr) {
    w.nested(kind, |w| match ip {
        IpAddr::V4(v4) => w.bytes(address::V4 | NET_ORDER, &v4.octets()),
        IpAddr::V6(v6) => w.bytes(address::V6 | NET_ORDER, &v6.octets()),
    });
}

fn be16(w: &mut Writer, kind: u16, value: u16) {
    w.bytes(kind | NET_ORDER, &value.to_be_bytes());
}
