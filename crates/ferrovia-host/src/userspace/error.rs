//! What can go wrong in starting the engine and opening its listeners. Failures of connections are counted instead.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

/// Why the engine does not start, or does not listen somewhere.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot start the userspace proxy: cannot {action}: {source}")]
    Start {
        action: &'static str,
        source: io::Error,
    },
    /// Another process listens there already.
    #[error(
        "cannot listen on {address} for {service}: the port is taken by another socket; free it or use another port"
    )]
    Taken {
        service: String,
        address: SocketAddr,
    },
    /// The address is not on this machine.
    #[error("cannot listen on {address} for {service}: this machine does not have the address")]
    NotHere {
        service: String,
        address: SocketAddr,
    },
    /// No port of a range is free.
    #[error("cannot listen on {ip} for {service}: all ports from {} to {} are taken; widen the range", ports.start(), ports.end())]
    NoFreePort {
        service: String,
        ip: IpAddr,
        ports: RangeInclusive<u16>,
    },
    /// The system refuses for another reason.
    #[error("cannot listen on {address} for {service}: cannot {action}: {source}")]
    Listen {
        service: String,
        address: SocketAddr,
        action: &'static str,
        source: io::Error,
    },
}
