//! A thread that waits for clients at one address, and how it is made to end.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use ferrovia_core::model::Protocol;

use super::service::Service;
use super::{tcp, udp};

/// How long a thread may take to end. It does so at once, unless calling it does not reach it.
const FAREWELL: Duration = Duration::from_secs(2);
/// The threads only copy.
const STACK: usize = 256 << 10;

/// An address that is listened on for as long as this value lives.
#[derive(Debug)]
pub(super) struct Listener {
    at: SocketAddr,
    protocol: Protocol,
    end: End,
    /// Nothing ever comes, and from the thread's end on nothing can.
    thread: Receiver<()>,
}

/// Tells the threads of a listener that it is to end.
#[derive(Clone, Debug, Default)]
pub(super) struct End(Arc<AtomicBool>);

impl End {
    pub(super) fn has_come(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Listener {
    /// Listens there for clients of a service.
    pub(super) fn open(
        protocol: Protocol,
        at: SocketAddr,
        service: Arc<Service>,
    ) -> io::Result<Self> {
        let end = End::default();
        let (told, (alive, thread)) = (end.clone(), mpsc::channel());
        match protocol {
            Protocol::Tcp => {
                let socket = TcpListener::bind(at)?;
                spawn(move || {
                    tcp::accept(&socket, &service, &told);
                    drop(socket);
                    drop(alive);
                })?;
            }
            Protocol::Udp => {
                let socket = UdpSocket::bind(at)?;
                spawn(move || {
                    udp::receive(socket, &service, &told);
                    drop(alive);
                })?;
            }
            // The planner opens none for what cannot be proxied.
            Protocol::Sctp => return Err(io::ErrorKind::Unsupported.into()),
        }
        Ok(Self {
            at,
            protocol,
            end,
            thread,
        })
    }

    /// A thread that waits for a call cannot be told anything else, so it is called.
    fn wake(&self) -> io::Result<()> {
        let (any, here): (IpAddr, IpAddr) = match self.at {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::LOCALHOST.into()),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::LOCALHOST.into()),
        };
        let mut at = self.at;
        if at.ip().is_unspecified() {
            at.set_ip(here);
        }
        match self.protocol {
            Protocol::Udp => UdpSocket::bind((any, 0))?.send_to(&[], at).map(drop),
            Protocol::Tcp | Protocol::Sctp => TcpStream::connect_timeout(&at, FAREWELL).map(drop),
        }
    }
}

impl Drop for Listener {
    /// Afterwards the port is free. Connections go on; flows of datagrams end, for nobody could answer their clients any more.
    fn drop(&mut self) {
        self.end.0.store(true, Ordering::Release);
        let woken = self.wake();
        if let Err(RecvTimeoutError::Timeout) = self.thread.recv_timeout(FAREWELL) {
            tracing::warn!(address = %self.at, ?woken, "a proxy's thread does not end, and keeps its port");
        }
    }
}

/// Starts a thread, if the system has another one.
pub(super) fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread_of_own().spawn(work).map(drop)
}

pub(super) fn thread_of_own() -> thread::Builder {
    thread::Builder::new().stack_size(STACK)
}
