//! What the kernel says about sets, read without trusting it.

use std::net::IpAddr;

use ferrovia_core::dialect::ipset::{IpsetEntry, IpsetName, IpsetType, ObservedIpset};
use ferrovia_core::family::Family;
use ferrovia_core::model::Protocol;
use ferrovia_netlink::uapi::ip_set::{
    IPSET_ATTR_ADT, IPSET_ATTR_CIDR2, IPSET_ATTR_DATA, IPSET_ATTR_ELEMENTS, IPSET_ATTR_FAMILY,
    IPSET_ATTR_IP, IPSET_ATTR_IP2, IPSET_ATTR_IPADDR_IPV4, IPSET_ATTR_IPADDR_IPV6,
    IPSET_ATTR_MAXELEM, IPSET_ATTR_PORT, IPSET_ATTR_PROTO, IPSET_ATTR_SETNAME, IPSET_ATTR_TYPENAME,
};
use ferrovia_netlink::{Attr, Attrs, Message, nfnetlink};
use ipnet::IpNet;

use super::Sets;

/// What a listing says of a set besides its entries.
pub(super) struct SetHeader {
    pub(super) name: IpsetName,
    /// How many entries there are.
    pub(super) count: usize,
}

/// The name and size of the set that a message describes; `None` if it only goes on with entries, or the set cannot be ours.
pub(super) fn head(message: &Message<'_>) -> Option<SetHeader> {
    let attrs = Attrs::of(message, nfnetlink::HEADER_LEN);
    let header = attrs.get(IPSET_ATTR_DATA)?.nested();
    Some(SetHeader {
        name: IpsetName::new(attrs.get(IPSET_ATTR_SETNAME)?.text()?)?,
        count: header.get(IPSET_ATTR_ELEMENTS)?.be32()? as usize,
    })
}

/// Adds what a message says to the sets read so far. A set too large for one message comes in several, of which the first describes it.
pub(super) fn collect(sets: &mut Sets, message: &Message<'_>) {
    let attrs = Attrs::of(message, nfnetlink::HEADER_LEN);
    let name = attrs.get(IPSET_ATTR_SETNAME).and_then(Attr::text);
    let Some(name) = name.and_then(IpsetName::new) else {
        return;
    };
    let set = sets.entry(name).or_insert_with(|| ObservedIpset {
        kind: None,
        max: 0,
        entries: Default::default(),
        has_others: false,
    });
    if let Some(kind) = attrs.get(IPSET_ATTR_TYPENAME).and_then(Attr::text) {
        let family = attrs.get(IPSET_ATTR_FAMILY).and_then(Attr::u8);
        set.kind = known_kind(kind, family);
        let header = attrs.get(IPSET_ATTR_DATA).map(Attr::nested);
        let max = header.and_then(|header| header.get(IPSET_ATTR_MAXELEM)?.be32());
        // A bitmap has no limit.
        set.max = max.unwrap_or(u32::MAX);
    }
    let Some(kind) = set.kind else {
        return;
    };
    let entries = attrs.get(IPSET_ATTR_ADT).map(Attr::nested);
    for entry in entries.into_iter().flatten() {
        match read_entry(kind, entry.nested()) {
            Some(entry) => {
                set.entries.insert(entry);
            }
            None => set.has_others = true,
        }
    }
}

fn known_kind(name: &str, family: Option<u8>) -> Option<IpsetType> {
    let family = match family.map(libc::c_int::from) {
        Some(libc::AF_INET6) => Family::V6,
        // Sets of ports have none, and then it does not matter.
        _ => Family::V4,
    };
    IpsetType::from_type_name(name, family)
}

/// An entry of a kind; `None` if it is none that we could have made.
fn read_entry(kind: IpsetType, attrs: Attrs<'_>) -> Option<IpsetEntry> {
    let ip = |kind| {
        let inner = attrs.get(kind)?.nested();
        inner
            .get(IPSET_ATTR_IPADDR_IPV4)
            .or_else(|| inner.get(IPSET_ATTR_IPADDR_IPV6))?
            .ip()
    };
    let port = || attrs.get(IPSET_ATTR_PORT)?.be16();
    let protocol = || {
        let number = attrs.get(IPSET_ATTR_PROTO)?.u8()?;
        Protocol::ALL.into_iter().find(|p| p.number() == number)
    };
    let entry = match kind {
        IpsetType::Port => IpsetEntry::Port(port()?),
        IpsetType::Ip(_) => IpsetEntry::Ip(ip(IPSET_ATTR_IP)?),
        IpsetType::IpPort(_) => IpsetEntry::IpPort(ip(IPSET_ATTR_IP)?, protocol()?, port()?),
        IpsetType::IpPortIp(_) => IpsetEntry::IpPortIp(
            ip(IPSET_ATTR_IP)?,
            protocol()?,
            port()?,
            ip(IPSET_ATTR_IP2)?,
        ),
        IpsetType::IpPortNet(_) => {
            let other = ip(IPSET_ATTR_IP2)?;
            let net = network(other, attrs.get(IPSET_ATTR_CIDR2).and_then(Attr::u8))?;
            IpsetEntry::IpPortNet(ip(IPSET_ATTR_IP)?, protocol()?, port()?, net)
        }
    };
    entry.is_of(kind).then_some(entry)
}

/// A network; without a prefix length it is one address.
fn network(ip: IpAddr, prefix: Option<u8>) -> Option<IpNet> {
    match prefix {
        Some(prefix) => IpNet::new(ip, prefix).ok().map(|net| net.trunc()),
        None => Some(IpNet::from(ip)),
    }
}
