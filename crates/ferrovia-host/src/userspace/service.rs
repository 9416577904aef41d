//! A service port, as the engine's caller holds it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::gate::{Gate, Gateway};
use super::shared::{
    EndpointChoice, EngineState, ListenerId, ServiceState, Target, ThreadListener, WorkerMessage,
};
use super::socket::{self, Listen, Opened};
use super::{Error, Figures, Protocol};
use crate::locked;

/// Threads answer at once; this only keeps a bug from hanging the caller.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where connections are carried to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub address: SocketAddr,
    /// How often it is chosen, compared with the others; never with weight zero.
    pub weight: u16,
    /// It runs on this machine, so there is no network on the way to it that could be congested.
    pub is_local: bool,
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self {
            address,
            weight: 1,
            is_local: false,
        }
    }
}

/// What was counted for an endpoint of a service port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointFigures {
    pub address: SocketAddr,
    /// The figures, since it became an endpoint.
    pub figures: Figures,
}

/// A service port: listeners that share endpoints. Dropped, its listeners are closed; connections go on until they end by themselves.
#[derive(Debug)]
pub struct Service {
    shared: Arc<EngineState>,
    state: Arc<ServiceState>,
    listeners: Mutex<HashMap<SocketAddr, ServiceListener>>,
}

/// A listener that is open.
#[derive(Debug)]
struct ServiceListener {
    id: ListenerId,
    gateway: Arc<Gateway>,
}

impl Service {
    pub(super) fn new(shared: Arc<EngineState>, state: Arc<ServiceState>) -> Self {
        Self {
            shared,
            state,
            listeners: Mutex::default(),
        }
    }

    /// The service port as the threads see it.
    pub(super) fn state(&self) -> Arc<ServiceState> {
        Arc::clone(&self.state)
    }

    /// Replaces the endpoints; of an address given twice the first counts. Connections to those that stay are not touched. Of those that
    /// go, TCP connections may go on for as long as `drain` says, without it until they end by themselves; flows of datagrams are dropped
    /// at once.
    pub fn set_endpoints(&self, endpoints: &[Endpoint], drain: Option<Duration>) {
        let gone = self.replace_endpoints(endpoints);
        if !gone.is_empty() {
            self.retire(&gone, drain);
        }
    }

    /// Clients return to their endpoint until they have stayed away for so long. Shared by all listeners.
    pub fn set_affinity(&self, affinity: Option<Duration>) {
        locked(&self.state.choice).balancer.set_affinity(affinity);
    }

    /// How long a flow of datagrams lives without any. Flows that are there follow within seconds.
    pub fn set_idle_timeout(&self, idle: Duration) {
        self.state.set_idle(idle);
    }

    /// Opens a listener, in the network namespace of the caller; the address it has.
    ///
    /// # Errors
    /// [`Error::Taken`], [`Error::NotHere`] and [`Error::NoFreePort`], or another refusal of the system. Nothing else changes.
    pub fn listen(&self, mut listen: Listen) -> Result<SocketAddr, Error> {
        let threads = self.shared.threads.len();
        let gate = listen.gate.take();
        let (opened, address) =
            socket::open(&self.state.name, self.state.protocol, listen, threads)?;
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let service = &self.state;
        let gateway = Arc::new(Gateway::new(address.ip(), gate));
        match opened {
            Opened::Tcp(socket) => {
                let port = Arc::new(ThreadListener {
                    id,
                    service: service.clone(),
                    socket,
                    gateway: gateway.clone(),
                });
                self.shared
                    .tell_all(|| WorkerMessage::ListenTcp(port.clone()));
            }
            Opened::Udp(sockets) => {
                for (thread, socket) in self.shared.threads.iter().zip(sockets) {
                    thread.post(WorkerMessage::ListenUdp(ThreadListener {
                        id,
                        service: service.clone(),
                        socket,
                        gateway: gateway.clone(),
                    }));
                }
            }
        }
        locked(&self.listeners).insert(address, ServiceListener { id, gateway });
        Ok(address)
    }

    /// Replaces what holds for the clients of a listener; returns whether there is one. Those that are connected stay.
    pub fn set_gate(&self, address: SocketAddr, gate: Option<Gate>) -> bool {
        let listeners = locked(&self.listeners);
        let listener = listeners.get(&address);
        if let Some(listener) = listener {
            listener.gateway.set(gate);
        }
        listener.is_some()
    }

    /// Closes a listener; returns whether there was one. When this returns the port is free, save that a program that is being started this
    /// very moment has copies of all descriptors, and those of UDP sockets count. Connections go on; flows of datagrams end, because nothing could
    /// answer their clients any more.
    pub fn unlisten(&self, address: SocketAddr) -> bool {
        let listener = locked(&self.listeners).remove(&address);
        let id = listener.map(|listener| listener.id);
        self.close(id.as_slice());
        id.is_some()
    }

    /// Where it listens, sorted.
    pub fn listeners(&self) -> Vec<SocketAddr> {
        let mut addresses: Vec<_> = locked(&self.listeners).keys().copied().collect();
        addresses.sort_unstable();
        addresses
    }

    /// What was counted, for the service port as a whole.
    pub fn figures(&self) -> Figures {
        self.state.counters.read()
    }

    /// What was counted for each endpoint, in the order they were given.
    pub fn endpoint_figures(&self) -> Vec<EndpointFigures> {
        let endpoints = locked(&self.state.choice).endpoints.clone();
        let read = |target: Arc<Target>| EndpointFigures {
            address: target.address,
            figures: target.counters.read(),
        };
        endpoints.into_iter().map(read).collect()
    }

    /// Takes over those endpoints that were there before, with all that was counted for them; those that were and are no more.
    fn replace_endpoints(&self, endpoints: &[Endpoint]) -> Vec<Arc<Target>> {
        let mut choice = locked(&self.state.choice);
        let before = std::mem::take(&mut choice.endpoints);
        let mut before: HashMap<_, _> = before.into_iter().map(|it| (it.address, it)).collect();
        let mut weights: HashMap<SocketAddr, u16> = HashMap::new();
        for endpoint in endpoints {
            let address = endpoint.address;
            if weights.contains_key(&address) {
                continue;
            }
            weights.insert(address, endpoint.weight);
            let target = before.remove(&address);
            let target = target.unwrap_or_else(|| Arc::new(Target::new(address)));
            target.set_local(endpoint.is_local);
            choice.endpoints.push(target);
        }
        let EndpointChoice {
            balancer,
            endpoints,
        } = &mut *choice;
        let addresses = endpoints.iter().map(|target| target.address);
        balancer.set_endpoints(addresses.map(|address| (address, weights[&address])));
        before.into_values().collect()
    }

    fn retire(&self, gone: &[Arc<Target>], drain: Option<Duration>) {
        // A deadline that cannot be represented means no deadline.
        let cut_at = drain.and_then(|drain| Instant::now().checked_add(drain));
        for target in gone {
            target.retire(cut_at.map(|at| self.shared.micros(at)));
        }
        match (self.state.protocol, cut_at) {
            (Protocol::Udp, _) => self.shared.tell_all(|| WorkerMessage::DropFlows),
            (Protocol::Tcp, Some(at)) => self.shared.tell_all(|| WorkerMessage::CutAt(at)),
            (Protocol::Tcp, None) => {}
        }
    }

    fn close_all(&self) {
        let listeners = std::mem::take(&mut *locked(&self.listeners));
        let ids: Vec<ListenerId> = listeners.values().map(|listener| listener.id).collect();
        self.close(&ids);
    }

    /// Has all threads close these listeners, and waits until they have.
    fn close(&self, ids: &[ListenerId]) {
        if ids.is_empty() {
            return;
        }
        let (done, all_done) = mpsc::channel();
        for id in ids {
            self.shared
                .tell_all(|| WorkerMessage::Close(*id, done.clone()));
        }
        drop(done);
        // Nothing is ever sent: the receiver waits until the last sender is dropped.
        if all_done.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            tracing::error!(service = %self.state.name, "Failed to close a listener in time");
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.close_all();
    }
}
