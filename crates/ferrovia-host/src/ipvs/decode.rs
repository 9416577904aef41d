//! What the kernel says about servers and destinations, read without trusting it.

use std::net::{IpAddr, SocketAddr};

use ferrovia_core::dialect::ipvs::{SCHEDULER_FLAGS, Scheduler, VirtualServer, VirtualServerKey};
use ferrovia_core::family::Family;
use ferrovia_core::model::Protocol;

use super::uapi::{HEADER_LEN, PERSISTENT, attr, destination, server, stats};
use crate::netlink::{Attr, Attrs, Message};

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
    /// What it is.
    pub server: VirtualServer,
    /// What went through it.
    pub stats: Stats,
}

/// A destination that is in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundDestination {
    /// Where it is.
    pub address: SocketAddr,
    /// Its share.
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
    /// Of UDP.
    pub udp: u32,
}

/// The server that a message is about. `None` for one that is known by a mark, of a protocol or a scheduler that we do not know: such a
/// server is somebody else's.
pub(super) fn found_server(message: &Message<'_>) -> Option<FoundServer> {
    let attrs = Attrs::of(message, HEADER_LEN).get(attr::SERVER)?.nested();
    let family = family(attrs.get(server::FAMILY)?.u16()?)?;
    let number = attrs.get(server::PROTOCOL)?.u16()?;
    let protocol = Protocol::ALL
        .into_iter()
        .find(|protocol| u16::from(protocol.number()) == number)?;
    let flags = attrs.get(server::FLAGS)?.value.first_chunk()?;
    let flags = u32::from_ne_bytes(*flags);
    let timeout = attrs.get(server::TIMEOUT)?.u32()?;
    Some(FoundServer {
        server: VirtualServer {
            key: VirtualServerKey {
                address: address(family, attrs.get(server::ADDRESS)?)?,
                port: attrs.get(server::PORT)?.be16()?,
                protocol,
            },
            scheduler: Scheduler::new(attrs.get(server::SCHEDULER)?.text()?)?,
            flags: flags & SCHEDULER_FLAGS,
            persistence: (flags & PERSISTENT != 0).then_some(timeout),
        },
        stats: attrs.get(server::STATS64).map(read_stats)?,
    })
}

/// The destination that a message is about.
pub(super) fn found_destination(of: Family, message: &Message<'_>) -> Option<FoundDestination> {
    let attrs = Attrs::of(message, HEADER_LEN)
        .get(attr::DESTINATION)?
        .nested();
    let number = |kind| attrs.get(kind).and_then(Attr::u32);
    let ip = address(of, attrs.get(destination::ADDRESS)?)?;
    let port = attrs.get(destination::PORT)?.be16()?;
    Some(FoundDestination {
        address: SocketAddr::new(ip, port),
        weight: number(destination::WEIGHT)?,
        active: number(destination::ACTIVE)?,
        inactive: number(destination::INACTIVE)?,
        stats: attrs.get(destination::STATS64).map(read_stats)?,
    })
}

fn read_stats(attr: Attr<'_>) -> Stats {
    let attrs = attr.nested();
    let number = |kind| attrs.get(kind).and_then(Attr::u64).unwrap_or_default();
    Stats {
        connections: number(stats::CONNECTIONS),
        packets_in: number(stats::PACKETS_IN),
        packets_out: number(stats::PACKETS_OUT),
        bytes_in: number(stats::BYTES_IN),
        bytes_out: number(stats::BYTES_OUT),
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
