//! Flows of datagrams: each client has a socket to its endpoint, and a thread that carries the answers back.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::listener::{StopFlag, spawn};
use super::service::{ConnectionSlot, WindowsService};
use crate::locked;

/// No datagram is longer.
const LONGEST: usize = 65_535;
/// How often a flow looks whether it is over, at least and at most.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_SOON: Duration = Duration::from_millis(10);
/// The pause when the system gives no datagrams.
const PAUSE: Duration = Duration::from_millis(50);

/// What goes to one client's endpoint and comes back. It lives as long as the thread that carries the answers.
#[derive(Debug)]
struct UdpFlow {
    endpoint: SocketAddr,
    socket: UdpSocket,
    used: Mutex<Instant>,
    _place: ConnectionSlot,
}

/// Receives datagrams until the end has come.
pub(super) fn receive(socket: UdpSocket, service: &Arc<WindowsService>, end: &StopFlag) {
    // Flows hold it only while they answer: the port is free when this function returns.
    let socket = Arc::new(socket);
    let mut flows: HashMap<SocketAddr, Weak<UdpFlow>> = HashMap::new();
    let mut buffer = vec![0; LONGEST];
    loop {
        let received = socket.recv_from(&mut buffer);
        if end.has_come() {
            return;
        }
        match received {
            Ok((length, client)) => {
                let known = flows.get(&client).and_then(Weak::upgrade);
                let flow = match known.filter(|flow| service.has(flow.endpoint)) {
                    Some(flow) => Ok(flow),
                    None => start(client, &socket, service, end).inspect(|flow| {
                        flows.retain(|_, flow| flow.strong_count() > 0);
                        flows.insert(client, Arc::downgrade(flow));
                    }),
                };
                if let Err(error) = flow.and_then(|flow| flow.send(&buffer[..length])) {
                    // Usually nothing listens at the endpoint: the next datagram tries another one.
                    service.forget(client.ip());
                    flows.remove(&client);
                    tracing::debug!(proxy = service.name, %client, err = %error, "Dropped datagram");
                }
            }
            // Windows reports it of a client that did not wait for its answer.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => {
                tracing::warn!(proxy = service.name, err = %error, retryAfter = ?PAUSE, "Failed to receive datagrams");
                thread::sleep(PAUSE);
            }
        }
    }
}

/// Leads a client to an endpoint, and has a thread carry the answers.
fn start(
    client: SocketAddr,
    listening: &Arc<UdpSocket>,
    service: &Arc<WindowsService>,
    end: &StopFlag,
) -> io::Result<Arc<UdpFlow>> {
    let place = service.room.enter();
    let place = place.ok_or_else(|| io::Error::other("the limit of flows is reached"))?;
    let endpoint = service.pick(client.ip(), &[]);
    let endpoint = endpoint.ok_or_else(|| io::Error::other("the service has no endpoint"))?;
    let any: IpAddr = match endpoint {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(endpoint)?;
    socket.set_read_timeout(Some(service.idle.clamp(LOOK_SOON, LOOK)))?;
    let flow = Arc::new(UdpFlow {
        endpoint,
        socket,
        used: Mutex::new(Instant::now()),
        _place: place,
    });
    let (answering, listening) = (Arc::clone(&flow), Arc::downgrade(listening));
    let (service, end) = (Arc::clone(service), end.clone());
    spawn(move || answering.answer(client, &listening, &service, &end))?;
    Ok(flow)
}

impl UdpFlow {
    fn send(&self, datagram: &[u8]) -> io::Result<()> {
        *locked(&self.used) = Instant::now();
        self.socket.send(datagram).map(drop)
    }

    /// Carries answers to the client until the flow is over: idle for too long, or without its endpoint.
    fn answer(
        &self,
        client: SocketAddr,
        listening: &Weak<UdpSocket>,
        service: &WindowsService,
        end: &StopFlag,
    ) {
        let mut buffer = vec![0; LONGEST];
        while !end.has_come() {
            match self.socket.recv(&mut buffer) {
                Ok(length) => {
                    let Some(listening) = listening.upgrade() else {
                        return;
                    };
                    *locked(&self.used) = Instant::now();
                    // A client that cannot be reached is not waited for.
                    let _ = listening.send_to(&buffer[..length], client);
                }
                Err(error) if is_timeout(&error) => {
                    let is_idle = locked(&self.used).elapsed() >= service.idle;
                    if is_idle || !service.has(self.endpoint) {
                        return;
                    }
                }
                // Nothing listens there: the next datagram tries another one.
                Err(_) => return service.forget(client.ip()),
            }
        }
    }
}

/// Nothing came in time, as Linux says it and as Windows does.
fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
