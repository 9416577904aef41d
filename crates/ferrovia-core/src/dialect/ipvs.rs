//! The kernel's own load balancer: virtual servers, the destinations behind them, and what is done to both.
//!
//! [`IpvsOp`] is one change. It prints in the manner of `ipvsadm --save`, for people and tests; what is sent to the kernel is made from the
//! values. A name that is not [checked](Scheduler::new) cannot get into one.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::model::Protocol;
pub use crate::model::Scheduler;

/// The identity of a virtual server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VirtualServerKey {
    pub address: IpAddr,
    pub port: u16,
    pub protocol: Protocol,
}

/// A virtual server without its destinations, which are always reached by rewriting addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtualServer {
    pub key: VirtualServerKey,
    pub scheduler: Scheduler,
    /// The scheduler's own flags: any of [`FLAG_FALLBACK`], [`FLAG_PORT`] and 0x20. The kernel's other flags follow from the rest.
    pub flags: u32,
    /// Seconds a client sticks to its destination. A client is one address: the granularity is /32 or /128.
    pub persistence: Option<u32>,
}

/// Of `sh` and `mh`: a destination of weight 0 gets no new connections. Without it they are refused.
pub const FLAG_FALLBACK: u32 = 0x08;
/// Of `sh` and `mh`: the client's port counts besides its address.
pub const FLAG_PORT: u32 = 0x10;
/// All flags that belong to schedulers.
pub const SCHEDULER_FLAGS: u32 = 0x38;

/// Where a virtual server sends connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpvsDestination {
    /// Its address and port.
    pub address: SocketAddr,
    /// Its share; 0 takes no new connections.
    pub weight: u32,
}

/// One change of the load balancer's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpvsOp {
    /// Makes a server, or changes what differs in the one that is there. Its destinations and connections stay.
    PutServer(VirtualServer),
    /// Removes a server with its destinations.
    DeleteServer(VirtualServerKey),
    /// Makes a destination, or changes its weight. Takes a draining one back into service.
    PutDestination(VirtualServerKey, IpvsDestination),
    RemoveDestination {
        server: VirtualServerKey,
        destination: SocketAddr,
        removal: DestinationRemoval,
    },
}

/// When an undesired destination is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DestinationRemoval {
    /// It gets weight 0 now, and goes when its connections are done.
    Drain,
    /// Immediately. Flows that never end would keep it indefinitely.
    AtOnce,
}

impl DestinationRemoval {
    /// How destinations of a protocol go: connections of TCP come to an end, the kernel only guesses about the others.
    pub fn of(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Tcp => Self::Drain,
            Protocol::Udp | Protocol::Sctp => Self::AtOnce,
        }
    }
}

impl fmt::Display for VirtualServerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let option = match self.protocol {
            Protocol::Tcp => "-t",
            Protocol::Udp => "-u",
            Protocol::Sctp => "--sctp-service",
        };
        write!(f, "{option} {}", SocketAddr::new(self.address, self.port))
    }
}

impl fmt::Display for VirtualServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -s {}", self.key, self.scheduler)?;
        if let Some(seconds) = self.persistence {
            write!(f, " -p {seconds}")?;
        }
        let names = [(0x08, "flag-1"), (0x10, "flag-2"), (0x20, "flag-3")];
        let set = names.iter().filter(|(flag, _)| self.flags & flag != 0);
        for (n, (_, name)) in set.enumerate() {
            f.write_str(if n == 0 { " -b " } else { "," })?;
            f.write_str(name)?;
        }
        Ok(())
    }
}

impl fmt::Display for IpvsOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PutServer(server) => write!(f, "-A {server}"),
            Self::DeleteServer(key) => write!(f, "-D {key}"),
            Self::PutDestination(server, IpvsDestination { address, weight }) => {
                write!(f, "-a {server} -r {address} -m -w {weight}")
            }
            Self::RemoveDestination {
                server,
                destination,
                removal,
            } => {
                let when = match removal {
                    DestinationRemoval::Drain => " drain",
                    DestinationRemoval::AtOnce => "",
                };
                write!(f, "-d {server} -r {destination}{when}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_read_like_the_tools_lines() {
        let key = |at: &str, protocol| {
            let at: SocketAddr = at.parse().unwrap();
            VirtualServerKey {
                address: at.ip(),
                port: at.port(),
                protocol,
            }
        };
        let tcp = key("10.96.0.1:80", Protocol::Tcp);
        let udp = key("[fd00::1]:53", Protocol::Udp);
        let server = |key, scheduler, flags, persistence| {
            IpvsOp::PutServer(VirtualServer {
                key,
                scheduler,
                flags,
                persistence,
            })
        };
        let destination: SocketAddr = "10.244.1.5:8080".parse().unwrap();
        let remove = |removal| IpvsOp::RemoveDestination {
            server: tcp,
            destination,
            removal,
        };
        let put = IpvsDestination {
            address: destination,
            weight: 3,
        };
        let lines = [
            (
                server(tcp, Scheduler::RR, 0, Some(600)),
                "-A -t 10.96.0.1:80 -s rr -p 600",
            ),
            (
                server(udp, Scheduler::MH, FLAG_FALLBACK | FLAG_PORT, None),
                "-A -u [fd00::1]:53 -s mh -b flag-1,flag-2",
            ),
            (
                IpvsOp::DeleteServer(key("10.96.0.1:80", Protocol::Sctp)),
                "-D --sctp-service 10.96.0.1:80",
            ),
            (
                IpvsOp::PutDestination(tcp, put),
                "-a -t 10.96.0.1:80 -r 10.244.1.5:8080 -m -w 3",
            ),
            (
                remove(DestinationRemoval::Drain),
                "-d -t 10.96.0.1:80 -r 10.244.1.5:8080 drain",
            ),
            (
                remove(DestinationRemoval::AtOnce),
                "-d -t 10.96.0.1:80 -r 10.244.1.5:8080",
            ),
        ];
        for (op, line) in lines {
            assert_eq!(op.to_string(), line);
        }
    }
}
