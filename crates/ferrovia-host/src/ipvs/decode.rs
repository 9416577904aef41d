//! What the kernel says about servers and destinations, read without trusting it.

use std::net::{IpAddr, SocketAddr};

use ferrovia_core::dialect::ipvs::{SCHEDULER_FLAGS, Scheduler, VirtualServer, VirtualServerKey};
use ferrovia_core::family::Family;
use ferrovia_core::model::Protocol;
use ferrovia_netlink::uapi::ip_vs::{
    IP_VS_SVC_F_PERSISTENT, IPVS_CMD_ATTR_DEST, IPVS_CMD_ATTR_SERVICE, IPVS_DEST_ATTR_ACTIVE_CONNS,
    IPVS_DEST_ATTR_ADDR, IPVS_DEST_ATTR_INACT_CONNS, IPVS_DEST_ATTR_PORT, IPVS_DEST_ATTR_STATS64,
    IPVS_DEST_ATTR_WEIGHT, IPVS_STATS_ATTR_CONNS, IPVS_STATS_ATTR_INBYTES, IPVS_STATS_ATTR_INPKTS,
    IPVS_STATS_ATTR_OUTBYTES, IPVS_STATS_ATTR_OUTPKTS, IPVS_SVC_ATTR_ADDR, IPVS_SVC_ATTR_AF,
    IPVS_SVC_ATTR_FLAGS, IPVS_SVC_ATTR_PORT, IPVS_SVC_ATTR_PROTOCOL, IPVS_SVC_ATTR_SCHED_NAME,
    IPVS_SVC_ATTR_STATS64, IPVS_SVC_ATTR_TIMEOUT,
};
use ferrovia_netlink::{Attr, Attrs, Message, genetlink};

/// What went through a server or to a destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Connections that were scheduled.
    pub connections: u64,
    /// Packets of clients.
    pub packets_in: u64,
    /// Packets to clients.
    pub packets_out: u64,
    /// Bytes of clients.
    pub bytes_in: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
}

/// A virtual server that is in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundServer {
    pub server: VirtualServer,
    /// What went through it.
    pub stats: Stats,
}

/// A destination that is in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundDestination {
    pub address: SocketAddr,
    pub weight: u32,
    /// Connections that are established.
    pub active: u32,
    /// Connections that are being made or have ended, and UDP flows.
    pub inactive: u32,
    /// What went to it.
    pub stats: Stats,
}

/// How long connections are remembered, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// Established ones of TCP.
    pub tcp: u32,
    /// Those of TCP that are being closed.
    pub tcp_fin: u32,
    pub udp: u32,
}

/// The server that a message is about. `None` for one that is known by a mark, of a protocol or a scheduler that we do not know: such a
/// server is another process's.
pub(super) fn found_server(message: &Message<'_>) -> Option<FoundServer> {
    let attrs = Attrs::of(message, genetlink::HEADER_LEN)
        .get(IPVS_CMD_ATTR_SERVICE)?
        .nested();
    let family = family(attrs.get(IPVS_SVC_ATTR_AF)?.u16()?)?;
    let number = attrs.get(IPVS_SVC_ATTR_PROTOCOL)?.u16()?;
    let protocol = Protocol::ALL
        .into_iter()
        .find(|protocol| u16::from(protocol.number()) == number)?;
    let flags = attrs.get(IPVS_SVC_ATTR_FLAGS)?.value.first_chunk()?;
    let flags = u32::from_ne_bytes(*flags);
    let timeout = attrs.get(IPVS_SVC_ATTR_TIMEOUT)?.u32()?;
    Some(FoundServer {
        server: VirtualServer {
            key: VirtualServerKey {
                address: address(family, attrs.get(IPVS_SVC_ATTR_ADDR)?)?,
                port: attrs.get(IPVS_SVC_ATTR_PORT)?.be16()?,
                protocol,
            },
            scheduler: Scheduler::new(attrs.get(IPVS_SVC_ATTR_SCHED_NAME)?.text()?)?,
            flags: flags & SCHEDULER_FLAGS,
            persistence: (flags & IP_VS_SVC_F_PERSISTENT != 0).then_some(timeout),
        },
        stats: attrs.get(IPVS_SVC_ATTR_STATS64).map(read_stats)?,
    })
}

/// The destination that a message is about.
pub(super) fn found_destination(of: Family, message: &Message<'_>) -> Option<FoundDestination> {
    let attrs = Attrs::of(message, genetlink::HEADER_LEN)
        .get(IPVS_CMD_ATTR_DEST)?
        .nested();
    let number = |kind| attrs.get(kind).and_then(Attr::u32);
    let ip = address(of, attrs.get(IPVS_DEST_ATTR_ADDR)?)?;
    let port = attrs.get(IPVS_DEST_ATTR_PORT)?.be16()?;
    Some(FoundDestination {
        address: SocketAddr::new(ip, port),
        weight: number(IPVS_DEST_ATTR_WEIGHT)?,
        active: number(IPVS_DEST_ATTR_ACTIVE_CONNS)?,
        inactive: number(IPVS_DEST_ATTR_INACT_CONNS)?,
        stats: attrs.get(IPVS_DEST_ATTR_STATS64).map(read_stats)?,
    })
}

fn read_stats(attr: Attr<'_>) -> Stats {
    let attrs = attr.nested();
    let number = |kind| attrs.get(kind).and_then(Attr::u64).unwrap_or_default();
    Stats {
        connections: number(IPVS_STATS_ATTR_CONNS),
        packets_in: number(IPVS_STATS_ATTR_INPKTS),
        packets_out: number(IPVS_STATS_ATTR_OUTPKTS),
        bytes_in: number(IPVS_STATS_ATTR_INBYTES),
        bytes_out: number(IPVS_STATS_ATTR_OUTBYTES),
    }
}

fn family(number: u16) -> Option<Family> {
    match libc::c_int::from(number) {
        libc::AF_INET => Some(Family::V4),
        libc::AF_INET6 => Some(Family::V6),
        _ => None,
    }
}

/// An address, which the kernel always sends with room for either family's.
fn address(family: Family, attr: Attr<'_>) -> Option<IpAddr> {
    match family {
        Family::V4 => attr.value.first_chunk::<4>().map(|v4| IpAddr::from(*v4)),
        Family::V6 => attr.value.first_chunk::<16>().map(|v6| IpAddr::from(*v6)),
    }
}
