//! Flows of datagrams: each client has a socket to its endpoint, and a thread that carries the answers back.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::listener::{End, spawn};
use super::service::{Place, Service, locked};

/// No datagram is longer.
const LONGEST: usize = 65_535;
/// How often a flow looks whether it is over.
const LOOK: Duration = Duration::from_secs(1);
/// The pause when the system gives no datagrams.
const PAUSE: Duration = Duration::from_millis(50);

/// The clients of one listener.
type Flows = Arc<Mutex<HashMap<SocketAddr, Arc<Flow>>>>;

/// What goes to one client's endpoint and comes back.
#[derive(Debug)]
struct Flow {
    client: SocketAddr,
    endpoint: SocketAddr,
    socket: UdpSocket,
    used: Mutex<Instant>,
    _place: Place,
}

/// Receives datagrams until the end has come.
pub(super) fn receive(socket: UdpSocket, service: &Arc<Service>, end: &End) {
    // Flows hold it only while they answer: the port is free when this function returns.
    let socket = Arc::new(socket);
    let flows = Flows::default();
    let mut buffer = vec![0; LONGEST];
    loop {
        let received = socket.recv_from(&mut buffer);
        if end.has_come() {
            return;
        }
        match received {
            Ok((length, client)) => {
                let flow = known(&flows, service, client)
                    .map_or_else(|| start(client, &socket, service, &flows, end), Ok);
                let carried = flow.and_then(|flow| flow.socket.send(&buffer[..length]));
                if let Err(error) = carried {
                    tracing::debug!(proxy = service.name, %client, %error, "a datagram is lost");
                }
            }
            // Windows says so of a client that did not wait for its answer.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => {
                tracing::warn!(proxy = service.name, %error, "cannot receive datagrams");
                thread::sleep(PAUSE);
            }
        }
    }
}

/// The flow of a client, if its endpoint is still one. From now on it is not idle.
fn known(flows: &Flows, service: &Service, client: SocketAddr) -> Option<Arc<Flow>> {
    let mut flows = locked(flows);
    let flow = Arc::clone(flows.get(&client)?);
    if !service.has(flow.endpoint) {
        flows.remove(&client);
        return None;
    }
    *locked(&flow.used) = Instant::now();
    Some(flow)
}

fn start(
    client: SocketAddr,
    listening: &Arc<UdpSocket>,
    service: &Arc<Service>,
    flows: &Flows,
    end: &End,
) -> io::Result<Arc<Flow>> {
    let place =
        (service.room.enter()).ok_or_else(|| io::Error::other("there are too many flows"))?;
    let endpoint = service
        .pick(client.ip(), &[])
        .ok_or_else(|| io::Error::other("there is no endpoint"))?;
    let any: IpAddr = match endpoint {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(endpoint)?;
    socket.set_read_timeout(Some(LOOK.min(service.idle)))?;
    let flow = Arc::new(Flow {
        client,
        endpoint,
        socket,
        used: Mutex::new(Instant::now()),
        _place: place,
    });
    let (answering, service) = (Arc::clone(&flow), Arc::clone(service));
    let (listening, kept, end) = (Arc::downgrade(listening), Arc::clone(flows), end.clone());
    locked(flows).insert(client, Arc::clone(&flow));
    let started = spawn(move || answer(&answering, &listening, &service, &kept, &end));
    if started.is_err() {
        locked(flows).remove(&client);
    }
    started.map(|()| flow)
}

/// Carries answers to the client until the flow is over.
fn answer(
    flow: &Arc<Flow>,
    listening: &Weak<UdpSocket>,
    service: &Service,
    flows: &Flows,
    end: &End,
) {
    let mut buffer = vec![0; LONGEST];
    while !end.has_come() {
        match flow.socket.recv(&mut buffer) {
            Ok(length) => {
                let Some(listening) = listening.upgrade() else {
                    return;
                };
                *locked(&flow.used) = Instant::now();
                // A client that cannot be reached is not waited for.
                let _ = listening.send_to(&buffer[..length], flow.client);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if is_over(flow, service, flows) {
                    return;
                }
            }
            Err(_) => {
                // Nobody is at the endpoint: the next datagram tries another one.
                service.forget(flow.client.ip());
                leave(flow, &mut locked(flows));
                return;
            }
        }
    }
}

/// The flow has been idle for too long, or has been replaced, or its endpoint is none any more. If so, it is forgotten.
fn is_over(flow: &Arc<Flow>, service: &Service, flows: &Flows) -> bool {
    // With the lock held nobody sends by this flow just now.
    let mut flows = locked(flows);
    let is_current = (flows.get(&flow.client)).is_some_and(|current| Arc::ptr_eq(current, flow));
    let is_idle = locked(&flow.used).elapsed() >= service.idle;
    let is_over = !is_current || is_idle || !service.has(flow.endpoint);
    if is_over {
        leave(flow, &mut flows);
    }
    is_over
}

/// Forgets a flow, but not one that has taken its place.
fn leave(flow: &Arc<Flow>, flows: &mut HashMap<SocketAddr, Arc<Flow>>) {
    if (flows.get(&flow.client)).is_some_and(|current| Arc::ptr_eq(current, flow)) {
        flows.remove(&flow.client);
    }
}
