//! Datagrams of one thread: from clients to endpoints in flows (`flow.rs`), over sockets that are used again (`spares.rs`), and the answers
//! back (`outbox.rs`).

mod flow;
mod outbox;
mod spares;

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use self::flow::{Flows, Peer, UdpFlow};
use self::outbox::Outbox;
use self::spares::Spares;
use super::datagrams::DatagramBatch;
use super::shared::{ListenerId, ServiceState, ThreadListener};
use super::slab::{Slab, SlabKey};
use super::sys::EpollInterest;
use super::worker::{Due, Token, WorkerContext};
use super::{ConnectFailure, socket};

/// How many datagrams are read in one call.
const AT_ONCE: usize = 32;
/// How many in the first one: mostly few wait, and each that might costs something to ask for.
const AT_FIRST: usize = 8;
/// How often a listener or a flow is read before others have their turn.
const TURNS: usize = 4;
/// How long a flow is left alone at most, so that a new idle timeout soon holds for all.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// All flows of a thread, and its listeners.
pub(super) struct Udp {
    ports: Slab<UdpListener>,
    flows: Flows,
    inbox: DatagramBatch,
    outbox: Outbox,
    spares: Spares,
    /// Spare sockets will be looked through.
    will_sweep: bool,
}

/// A listener, and the flows that came by it.
pub(super) struct UdpListener {
    port: ThreadListener<UdpSocket>,
    flows: HashMap<Peer, SlabKey>,
}

impl Udp {
    pub(super) fn new(most_flows: usize) -> Self {
        Self {
            ports: Slab::new(),
            flows: Flows::new(most_flows),
            inbox: DatagramBatch::new(AT_ONCE),
            outbox: Outbox::new(),
            spares: Spares::new(spares::MOST.min(most_flows / 4)),
            will_sweep: false,
        }
    }

    pub(super) fn listen(&mut self, context: &mut WorkerContext, port: ThreadListener<UdpSocket>) {
        let flows = HashMap::new();
        let key = self.ports.insert(UdpListener { port, flows });
        let Some(listener) = self.ports.get(key) else {
            return;
        };
        let socket = &listener.port.socket;
        let watched = (context.epoll).add(
            socket,
            Token::UdpListener(key).pack(),
            EpollInterest::Readable,
        );
        if let Err(error) = watched {
            let service = &listener.port.service.name;
            tracing::error!(%service, err = %error, "Failed to serve datagrams on one thread; other threads continue");
            // The kernel would go on to lead clients here.
            self.ports.remove(key);
        }
    }

    /// Closes a listener and its flows.
    pub(super) fn close(&mut self, id: ListenerId) {
        for key in self.ports.keys_where(|listener| listener.port.id == id) {
            let Some(listener) = self.ports.remove(key) else {
                continue;
            };
            socket::deafen(&listener.port.socket);
            for flow in listener.flows.into_values() {
                self.flows.remove(flow);
            }
        }
    }

    /// Carries datagrams of clients.
    pub(super) fn on_port(&mut self, context: &mut WorkerContext, key: SlabKey) {
        for turn in 0..TURNS {
            let Some(listener) = self.ports.get(key) else {
                return;
            };
            let asked = if turn == 0 { AT_FIRST } else { AT_ONCE };
            match self.inbox.receive(&listener.port.socket, 0..asked) {
                Ok(count) => {
                    self.carry(context, key, count);
                    if count < asked {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // An error is reported once and then forgotten by the socket; datagrams may wait behind it.
                Err(_) => {}
            }
        }
    }

    /// Takes what an endpoint answered.
    pub(super) fn on_flow(&mut self, context: &mut WorkerContext, key: SlabKey) {
        for _ in 0..TURNS {
            let Some(flow) = self.flows.get(key) else {
                return;
            };
            match self.outbox.receive(flow) {
                Ok((count, drained)) => {
                    if count > 0 {
                        self.flows.touch(key, context.now);
                    }
                    if drained {
                        return;
                    }
                    // The outbox is full.
                    self.flush();
                }
                Err(error) => return self.fail(key, ConnectFailure::of(&error)),
            }
        }
    }

    /// Sends the answers that have been gathered.
    pub(super) fn flush(&mut self) {
        self.outbox.flush(&self.ports);
    }

    /// A flow may have been silent for too long.
    pub(super) fn on_idle(&mut self, context: &mut WorkerContext, key: SlabKey) {
        let Some(flow) = self.flows.get(key) else {
            return;
        };
        let until = flow.used + flow.service.idle();
        if until > context.now {
            let next = until.min(context.now + CHECK_EVERY);
            context.timers.set(next, Due::Flow(key));
        } else {
            self.retire(context, key);
        }
    }

    /// Spare sockets may have been kept for long enough.
    pub(super) fn on_spares(&mut self, context: &mut WorkerContext) {
        self.spares.expire(context.now);
        self.will_sweep = false;
        self.sweep_later(context);
    }

    /// Ends the flows of endpoints that have gone.
    pub(super) fn drop_gone(&mut self) {
        for key in self.flows.keys_where(|flow| flow.target.is_gone()) {
            self.end(key);
        }
        self.spares.clear();
    }

    /// Sends what was read to the endpoints: datagrams in a row that are of one flow in one call.
    fn carry(&mut self, context: &mut WorkerContext, port: SlabKey, count: usize) {
        let mut slot = 0;
        while slot < count {
            let Some(peer) = self.peer(slot) else {
                slot += 1;
                continue;
            };
            let same = (slot + 1..count).find(|next| self.peer(*next) != Some(peer));
            let run = slot..same.unwrap_or(count);
            slot = run.end;
            self.send(context, port, peer, run);
        }
    }

    fn peer(&self, slot: usize) -> Option<Peer> {
        Some(Peer {
            client: self.inbox.peer(slot)?,
            local: self.inbox.local(slot),
        })
    }

    /// Sends datagrams of one client. A flow that turns out to have failed is replaced, once, so that the datagram that found out is not
    /// lost.
    fn send(
        &mut self,
        context: &mut WorkerContext,
        port: SlabKey,
        peer: Peer,
        mut run: Range<usize>,
    ) {
        for _ in 0..2 {
            let Some(key) = self.flow_of(context, port, peer) else {
                return;
            };
            while !run.is_empty() {
                let Some(flow) = self.flows.get(key) else {
                    return;
                };
                match self.inbox.send(&flow.socket, run.clone()) {
                    Ok(sent) => {
                        let slots = run.start..run.start + sent.max(1);
                        let bytes = slots.clone().map(|slot| self.inbox.len(slot) as u64);
                        flow.count(bytes.sum(), 0);
                        run.start = slots.end;
                    }
                    // No room, or one that is too long for the way: a datagram may be lost.
                    Err(error) if is_passing(&error) => run.start += 1,
                    Err(error) => {
                        self.fail(key, ConnectFailure::of(&error));
                        break;
                    }
                }
            }
            if run.is_empty() {
                return self.flows.touch(key, context.now);
            }
        }
    }

    /// The flow of a client, made if there is none; nothing if there cannot be one.
    fn flow_of(
        &mut self,
        context: &mut WorkerContext,
        port: SlabKey,
        peer: Peer,
    ) -> Option<SlabKey> {
        let known = self.ports.get(port)?.flows.get(&peer).copied();
        if let Some(key) = known {
            // The endpoint may have gone this moment, with the message still on its way.
            if self
                .flows
                .get(key)
                .is_some_and(|flow| !flow.target.is_gone())
            {
                return Some(key);
            }
            self.end(key);
        }
        // Checked first: no flow is closed for a client that is rejected.
        let service = self.ports.get(port)?.port.admit(peer.client.ip())?;
        while self.flows.is_full() {
            self.end_oldest()?;
        }
        self.new_flow(context, port, peer, service)
    }

    fn new_flow(
        &mut self,
        context: &mut WorkerContext,
        port: SlabKey,
        peer: Peer,
        service: Arc<ServiceState>,
    ) -> Option<SlabKey> {
        let Some(target) = service.pick(context.now, peer.client.ip(), &[]) else {
            service.counters.failed(ConnectFailure::NoEndpoints);
            return None;
        };
        let flow = match self.socket_to(target.address) {
            Ok(socket) => UdpFlow::new(socket, service, target, port, peer, context.now),
            Err(error) => {
                service.counters.failed(ConnectFailure::of(&error));
                target.counters.failed(ConnectFailure::of(&error));
                return None;
            }
        };
        let idle = flow.service.idle();
        let key = self.flows.insert(flow);
        let flow = self.flows.get(key)?;
        let token = Token::Flow(key).pack();
        if context
            .epoll
            .add(&flow.socket, token, EpollInterest::Readable)
            .is_err()
        {
            self.fail(key, ConnectFailure::Limit);
            return None;
        }
        let next = context.now + idle.min(CHECK_EVERY);
        context.timers.set(next, Due::Flow(key));
        self.ports.get_mut(port)?.flows.insert(peer, key);
        Some(key)
    }

    /// A socket connected to this endpoint.
    fn socket_to(&mut self, endpoint: SocketAddr) -> io::Result<UdpSocket> {
        if let Some(spare) = self.spares.take(endpoint) {
            return Ok(spare);
        }
        match socket::connect_udp(endpoint) {
            // Out of descriptors: unused sockets are closed, then the flow that has been idle longest.
            Err(error) if ConnectFailure::of(&error) == ConnectFailure::Limit => {
                self.spares.clear();
                self.end_oldest();
                socket::connect_udp(endpoint)
            }
            result => result,
        }
    }

    /// Ends a flow that failed; its client may get another endpoint next time.
    fn fail(&mut self, key: SlabKey, failure: ConnectFailure) {
        if let Some(flow) = self.flows.get(key) {
            flow.service.counters.failed(failure);
            flow.target.counters.failed(failure);
            flow.service.forget(flow.peer.client.ip());
            self.end(key);
        }
    }

    fn end_oldest(&mut self) -> Option<()> {
        let oldest = self.flows.oldest()?;
        if let Some(flow) = self.flows.get(oldest) {
            flow.service.counters.failed(ConnectFailure::Limit);
        }
        self.end(oldest);
        Some(())
    }

    /// Ends a flow that has been silent long enough. Its socket may serve another one.
    fn retire(&mut self, context: &mut WorkerContext, key: SlabKey) {
        let Some(flow) = self.end(key) else {
            return;
        };
        // One that is still watched would be reported under a stale key.
        if !flow.target.is_gone() && context.epoll.remove(&flow.socket).is_ok() {
            self.spares
                .keep(context.now, flow.target.address, flow.socket);
            self.sweep_later(context);
        }
    }

    fn sweep_later(&mut self, context: &mut WorkerContext) {
        if !self.will_sweep && !self.spares.is_empty() {
            self.will_sweep = true;
            context.timers.set(context.now + spares::KEPT, Due::Spares);
        }
    }

    fn end(&mut self, key: SlabKey) -> Option<UdpFlow> {
        let flow = self.flows.remove(key)?;
        if let Some(listener) = self.ports.get_mut(flow.port) {
            listener.flows.remove(&flow.peer);
        }
        Some(flow)
    }
}

/// Whether an error concerns one datagram and not its flow.
fn is_passing(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    error.kind() == ErrorKind::WouldBlock
        || matches!(errno, Some(libc::EMSGSIZE | libc::ENOBUFS | libc::EPERM))
}
