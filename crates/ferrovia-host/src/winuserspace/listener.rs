//! A thread that waits for clients at one address, and how it is made to end.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use ferrovia_core::model::Protocol;

use super::service::WindowsService;
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
    end: StopFlag,
    /// Nothing ever comes, and from the thread's end on nothing can.
    thread: Receiver<()>,
}

/// Makes the threads of a listener stop.
#[derive(Clone, Debug, Default)]
pub(super) struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    pub(super) fn has_come(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Listener {
    /// Listens there for clients of a service.
    pub(super) fn open(
        protocol: Protocol,
        at: SocketAddr,
        service: Arc<WindowsService>,
    ) -> io::Result<Self> {
        let end = StopFlag::default();
        let (stop, (alive, thread)) = (end.clone(), mpsc::channel());
        match protocol {
            Protocol::Tcp => {
                let socket = TcpListener::bind(at)?;
                spawn(move || {
                    tcp::accept(&socket, &service, &stop);
                    drop(socket);
                    drop(alive);
                })?;
            }
            Protocol::Udp => {
                let socket = UdpSocket::bind(at)?;
                spawn(move || {
                    udp::receive(socket, &service, &stop);
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

    /// A thread that waits for a client can only be woken by a client, so we connect to it.
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
    /// Afterwards the port is free. Connections go on; flows of datagrams end, because nothing could send replies to their clients.
    fn drop(&mut self) {
        self.end.0.store(true, Ordering::Release);
        let woken = self.wake();
        if let Err(RecvTimeoutError::Timeout) = self.thread.recv_timeout(FAREWELL) {
            tracing::warn!(address = %self.at, ?woken, "Failed to stop the thread of a listener; its port stays in use");
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
