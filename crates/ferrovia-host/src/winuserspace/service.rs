//! What the threads of one proxy share: its endpoints, and the room there is for clients.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ferrovia_core::plan::userspace::ProxySpec;

use crate::balance::Balancer;
use crate::locked;

/// A proxy, as its threads see it.
#[derive(Debug)]
pub(super) struct WindowsService {
    /// Its name, for messages.
    pub(super) name: String,
    /// How long a client of UDP may be silent.
    pub(super) idle: Duration,
    pub(super) room: ConnectionLimit,
    choice: Mutex<EndpointChoice>,
}

/// Its endpoints, in the order the balancer knows them by.
#[derive(Debug, Default)]
struct EndpointChoice {
    balancer: Balancer,
    endpoints: Vec<SocketAddr>,
}

impl WindowsService {
    pub(super) fn new(name: String, idle: Duration, room: ConnectionLimit) -> Self {
        Self {
            name,
            idle,
            room,
            choice: Mutex::default(),
        }
    }

    /// Takes over where clients are led from now on.
    pub(super) fn set(&self, proxy: &ProxySpec) {
        // Field by field: whatever else a proxy comes to be must not be passed over here.
        let ProxySpec {
            name: _,
            listen: _,
            client_filters: _,
            endpoints,
            affinity,
        } = proxy;
        let endpoints: Vec<_> = endpoints
            .iter()
            .map(|endpoint| (SocketAddr::new(endpoint.ip, endpoint.port), endpoint.weight))
            .collect();
        let affinity = affinity.map(u64::from).map(Duration::from_secs);
        let mut choice = locked(&self.choice);
        choice.balancer.set_affinity(affinity);
        choice.balancer.set_endpoints(endpoints.iter().copied());
        choice.endpoints = endpoints.into_iter().map(|(address, _)| address).collect();
    }

    /// The endpoint for a client, one of those not tried if there is any.
    pub(super) fn pick(&self, client: IpAddr, tried: &[SocketAddr]) -> Option<SocketAddr> {
        let mut choice = locked(&self.choice);
        let place = choice.balancer.pick(Instant::now(), client, tried)?;
        choice.endpoints.get(place).copied()
    }

    /// Ends a client's claim to the endpoint it had.
    pub(super) fn forget(&self, client: IpAddr) {
        locked(&self.choice).balancer.forget(client);
    }

    /// It is one of the endpoints.
    pub(super) fn has(&self, endpoint: SocketAddr) -> bool {
        locked(&self.choice).endpoints.contains(&endpoint)
    }
}

/// Room for so many connections and flows of datagrams. Each has threads of its own, so there must be a limit.
#[derive(Clone, Debug)]
pub(super) struct ConnectionLimit(Arc<SlotCounter>);

#[derive(Debug)]
struct SlotCounter {
    free: AtomicUsize,
    /// The limit has been logged.
    is_logged: AtomicBool,
}

impl ConnectionLimit {
    pub(super) fn of(places: usize) -> Self {
        Self(Arc::new(SlotCounter {
            free: AtomicUsize::new(places),
            is_logged: AtomicBool::new(false),
        }))
    }

    /// A place, if one is free. It is given back when it is dropped.
    pub(super) fn enter(&self) -> Option<ConnectionSlot> {
        let less = |free: usize| free.checked_sub(1);
        let taken = (self.0.free).fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        if taken.is_err() && !self.0.is_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "Reached the connection limit; refusing new connections until others close"
            );
        }
        taken.ok().map(|_| ConnectionSlot(self.clone()))
    }
}

/// A place for one connection or flow.
#[derive(Debug)]
pub(super) struct ConnectionSlot(ConnectionLimit);

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.0.free.fetch_add(1, Ordering::Relaxed);
    }
}
