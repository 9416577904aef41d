//! What the engine's threads and its callers have in common: service ports as the threads see them, and the messages to the threads.

use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::take;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::figures::ServiceCounters;
use super::gate::Gateway;
use super::{ConnectFailure, Protocol, sys};
use crate::balance::Balancer;
use crate::locked;

/// Names a listener, forever.
pub(super) type ListenerId = u64;

/// What all threads and callers see.
#[derive(Debug)]
pub(super) struct EngineState {
    pub(super) threads: Vec<Mailbox>,
    /// Connections that are open, of all threads.
    pub(super) open: AtomicUsize,
    pub(super) most_connections: usize,
    pub(super) most_flows_each: usize,
    /// Times that threads and callers exchange count from here.
    pub(super) start: Instant,
    pub(super) next_id: AtomicU64,
}

impl EngineState {
    /// Sends the same message to every thread.
    pub(super) fn tell_all(&self, mut message: impl FnMut() -> WorkerMessage) {
        for thread in &self.threads {
            thread.post(message());
        }
    }

    /// A time as it is kept in an atomic.
    pub(super) fn micros(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.start).as_micros();
        u64::try_from(since).unwrap_or(NEVER)
    }
}

/// A time that does not come.
const NEVER: u64 = u64::MAX;

/// No flow is kept longer without datagrams, in milliseconds: a year, which can be added to any time.
const LONGEST_IDLE: u64 = 365 * 24 * 3_600_000;

/// A message to a worker thread.
#[derive(Debug)]
pub(super) enum WorkerMessage {
    /// Accept connections here.
    ListenTcp(Arc<ThreadListener<TcpListener>>),
    /// Serve datagrams that come here.
    ListenUdp(ThreadListener<UdpSocket>),
    /// Close a listener. The sender is dropped once that is done.
    Close(ListenerId, Sender<()>),
    /// Carry a connection that another thread accepted.
    Carry(Accepted),
    /// Endpoints of UDP service ports have gone: drop their flows.
    DropFlows,
    /// At this time, look for connections whose time is over.
    CutAt(Instant),
    Stop,
}

/// A socket that listens for a service port.
#[derive(Debug)]
pub(super) struct ThreadListener<S> {
    pub(super) id: ListenerId,
    pub(super) service: Arc<ServiceState>,
    pub(super) socket: S,
    pub(super) gateway: Arc<Gateway>,
}

impl<S> ThreadListener<S> {
    /// The service port that serves a client of this listener; none, which is counted, if the client is not allowed.
    pub(super) fn admit(&self, client: IpAddr) -> Option<Arc<ServiceState>> {
        let carrier = self.gateway.admit(client, &self.service);
        if carrier.is_none() {
            self.service.counters.failed(ConnectFailure::NotAllowed);
        }
        carrier
    }
}

/// A connection that was accepted.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) stream: TcpStream,
    pub(super) client: SocketAddr,
    pub(super) service: Arc<ServiceState>,
}

/// What waits for a thread, and how busy it is.
#[derive(Debug)]
pub(super) struct Mailbox {
    /// Does nothing once the thread has exited, so that no caller waits for it.
    messages: Mutex<Option<Vec<WorkerMessage>>>,
    counter: File,
    /// Connections this thread carries.
    pub(super) open: AtomicUsize,
}

impl Mailbox {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            messages: Mutex::new(Some(Vec::new())),
            counter: File::from(sys::wake_counter()?),
            open: AtomicUsize::new(0),
        })
    }

    pub(super) fn post(&self, message: WorkerMessage) {
        let mut messages = locked(&self.messages);
        let Some(waiting) = messages.as_mut() else {
            return;
        };
        waiting.push(message);
        // A thread that has not yet fetched its messages has been woken already.
        if waiting.len() == 1 {
            drop(messages);
            // Fails only if the counter is full, and then the thread is awake.
            let _ = (&self.counter).write(&1_u64.to_ne_bytes());
        }
    }

    pub(super) fn fetch(&self) -> Vec<WorkerMessage> {
        let mut number = [0; 8];
        // Nothing to read means that it was read before.
        let _ = (&self.counter).read(&mut number);
        locked(&self.messages)
            .as_mut()
            .map(take)
            .unwrap_or_default()
    }

    /// Takes no more messages, and drops those that wait.
    pub(super) fn shut(&self) {
        drop(locked(&self.messages).take());
    }

    /// What becomes readable when there are messages.
    pub(super) fn counter(&self) -> BorrowedFd<'_> {
        self.counter.as_fd()
    }
}

/// A service port, as the threads see it.
#[derive(Debug)]
pub(super) struct ServiceState {
    pub(super) name: String,
    pub(super) protocol: Protocol,
    pub(super) counters: ServiceCounters,
    pub(super) choice: Mutex<EndpointChoice>,
    idle_millis: AtomicU64,
}

/// Its endpoints, in the order the balancer knows them by.
#[derive(Debug, Default)]
pub(super) struct EndpointChoice {
    pub(super) balancer: Balancer,
    pub(super) endpoints: Vec<Arc<Target>>,
}

impl ServiceState {
    pub(super) fn new(name: String, protocol: Protocol, idle: Duration) -> Self {
        let state = Self {
            name,
            protocol,
            counters: ServiceCounters::default(),
            choice: Mutex::default(),
            idle_millis: AtomicU64::new(0),
        };
        state.set_idle(idle);
        state
    }

    /// How long a flow of datagrams lives without any.
    pub(super) fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_millis.load(Ordering::Relaxed))
    }

    pub(super) fn set_idle(&self, idle: Duration) {
        let millis = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
        let millis = millis.clamp(1, LONGEST_IDLE);
        self.idle_millis.store(millis, Ordering::Relaxed);
    }

    /// The endpoint for a client.
    pub(super) fn pick(
        &self,
        now: Instant,
        client: IpAddr,
        tried: &[SocketAddr],
    ) -> Option<Arc<Target>> {
        let mut choice = locked(&self.choice);
        let place = choice.balancer.pick(now, client, tried)?;
        choice.endpoints.get(place).cloned()
    }

    /// Ends a client's claim to the endpoint it had.
    pub(super) fn forget(&self, client: IpAddr) {
        locked(&self.choice).balancer.forget(client);
    }
}

/// An endpoint of one service port.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    pub(super) counters: ServiceCounters,
    is_local: AtomicBool,
    /// From when on its connections are cut off: it has gone.
    cut_at: AtomicU64,
    gone: AtomicBool,
}

impl Target {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            counters: ServiceCounters::default(),
            is_local: AtomicBool::new(false),
            cut_at: AtomicU64::new(NEVER),
            gone: AtomicBool::new(false),
        }
    }

    /// It runs on this machine.
    pub(super) fn is_local(&self) -> bool {
        self.is_local.load(Ordering::Relaxed)
    }

    pub(super) fn set_local(&self, is_local: bool) {
        self.is_local.store(is_local, Ordering::Relaxed);
    }

    /// It gets no more clients; those it has are cut off at a time, if there is one.
    pub(super) fn retire(&self, cut_at: Option<u64>) {
        self.cut_at
            .store(cut_at.unwrap_or(NEVER), Ordering::Relaxed);
        self.gone.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Its connections are to be cut off by now.
    pub(super) fn is_over(&self, now: u64) -> bool {
        self.cut_at.load(Ordering::Relaxed) <= now
    }
}
