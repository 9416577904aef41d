//! What can go wrong in starting the engine and opening its listeners. Failures of connections are counted instead.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

/// Why the engine does not start, or does not listen somewhere.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The engine cannot start.
    #[error("cannot start the userspace proxy: cannot {action}: {source}")]
    Start {
        /// What failed.
        action: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Someone listens there already.
    #[error(
        "cannot listen on {address} for {service}: the port is taken by another socket; free it or use another port"
    )]
    Taken {
        /// The service port.
        service: String,
        /// Where.
        address: SocketAddr,
    },
    /// The address is not on this machine.
    #[error("cannot listen on {address} for {service}: this machine does not have the address")]
    NotHere {
        /// The service port.
        service: String,
        /// Where.
        address: SocketAddr,
    },
    /// No port of a range is free.
    #[error("cannot listen on {ip} for {service}: all ports from {} to {} are taken; widen the range", ports.start(), ports.end())]
    NoFreePort {
        /// The service port.
        service: String,
        /// Where.
        ip: IpAddr,
        /// The range.
        ports: RangeInclusive<u16>,
    },
    /// The system refuses for another reason.
    #[error("cannot listen on {address} for {service}: cannot {action}: {source}")]
    Listen {
        /// The service port.
        service: String,
        /// Where.
        address: SocketAddr,
        /// What failed.
        action: &'static str,
        /// Why.
        source: io::Error,
    },
}
