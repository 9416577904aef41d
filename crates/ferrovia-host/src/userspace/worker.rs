//! One thread of the engine: an event loop that hands each event to whom it concerns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::shared::{EngineState, Mailbox, WorkerMessage};
use super::slab::SlabKey;
use super::sys::{Epoll, EpollInterest, Events, Ready};
use super::tcp::Tcp;
use super::timer::Wheel;
use super::udp::Udp;

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Messages,
    /// A TCP listener has connections.
    Listener(SlabKey),
    /// The client's side of a connection.
    Client(SlabKey),
    /// The endpoint's side of a connection.
    Upstream(SlabKey),
    /// A UDP listener has datagrams.
    UdpListener(SlabKey),
    /// An endpoint answered a flow.
    Flow(SlabKey),
}

impl Token {
    pub(super) fn pack(self) -> u64 {
        let (kind, key) = match self {
            Self::Messages => (0, 0),
            Self::Listener(key) => (1, key.pack()),
            Self::Client(key) => (2, key.pack()),
            Self::Upstream(key) => (3, key.pack()),
            Self::UdpListener(key) => (4, key.pack()),
            Self::Flow(key) => (5, key.pack()),
        };
        kind << 61 | key
    }

    fn unpack(number: u64) -> Self {
        let key = SlabKey::unpack(number);
        match number >> 61 {
            1 => Self::Listener(key),
            2 => Self::Client(key),
            3 => Self::Upstream(key),
            4 => Self::UdpListener(key),
            5 => Self::Flow(key),
            _ => Self::Messages,
        }
    }
}

/// What is due at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// An attempt at dialling, by its number, has had its time.
    Dial(SlabKey, u8),
    /// A listener that was paused may accept again.
    Resume(SlabKey),
    /// A flow may have been silent for too long.
    Flow(SlabKey),
    /// Sockets that flows have no more use for may have been kept for long enough.
    Spares,
    /// Connections of endpoints that have gone may have to be cut.
    Cut,
}

/// What all parts of a thread use.
pub(super) struct WorkerContext {
    pub(super) shared: Arc<EngineState>,
    pub(super) epoll: Epoll,
    pub(super) timers: Wheel<Due>,
    /// The time when the present events were fetched; the clock is asked once for all of them.
    pub(super) now: Instant,
    pub(super) index: usize,
}

impl WorkerContext {
    /// What others see of this thread.
    pub(super) fn mailbox(&self) -> &Mailbox {
        &self.shared.threads[self.index]
    }
}

pub(super) struct Worker {
    context: WorkerContext,
    tcp: Tcp,
    udp: Udp,
    stopping: bool,
}

impl Worker {
    pub(super) fn new(shared: Arc<EngineState>, epoll: Epoll, index: usize) -> Self {
        let now = Instant::now();
        let most_flows = shared.most_flows_each;
        let context = WorkerContext {
            shared,
            epoll,
            timers: Wheel::new(now),
            now,
            index,
        };
        Self {
            context,
            tcp: Tcp::new(),
            udp: Udp::new(most_flows),
            stopping: false,
        }
    }

    /// Runs until it receives [`WorkerMessage::Stop`].
    pub(super) fn run(mut self) {
        let token = Token::Messages.pack();
        let counter = self.context.mailbox().counter();
        if let Err(error) = self
            .context
            .epoll
            .add(counter, token, EpollInterest::Readable)
        {
            tracing::error!(err = %error, "Failed to watch for changes; stopping a thread of the userspace proxy");
            self.stopping = true;
        }
        let mut events = Events::new();
        let mut due = Vec::new();
        while !self.stopping {
            let limit = self.patience();
            if let Err(error) = self.context.epoll.wait(&mut events, limit) {
                tracing::error!(err = %error, "Failed to wait for events; stopping a thread of the userspace proxy");
                break;
            }
            self.context.now = Instant::now();
            for index in 0..events.len() {
                let (token, ready) = events.get(index);
                self.on_event(Token::unpack(token), ready);
            }
            self.tcp.go_on(&mut self.context);
            self.udp.flush();
            self.context.timers.take_due(self.context.now, &mut due);
            for what in due.drain(..) {
                self.on_due(what);
            }
        }
        self.tcp.close_all(&mut self.context);
        self.context.mailbox().shut();
    }

    fn patience(&self) -> Option<Duration> {
        if self.tcp.is_busy() {
            Some(Duration::ZERO)
        } else {
            self.context.timers.wait(self.context.now)
        }
    }

    fn on_event(&mut self, token: Token, ready: Ready) {
        let context = &mut self.context;
        match token {
            Token::Messages => {
                for message in context.mailbox().fetch() {
                    self.on_message(message);
                }
            }
            Token::Listener(key) => self.tcp.accept(context, key),
            Token::Client(key) => self.tcp.on_client(context, key, ready),
            Token::Upstream(key) => self.tcp.on_upstream(context, key, ready),
            Token::UdpListener(key) => self.udp.on_port(context, key),
            Token::Flow(key) => self.udp.on_flow(context, key),
        }
    }

    fn on_message(&mut self, message: WorkerMessage) {
        let context = &mut self.context;
        match message {
            WorkerMessage::ListenTcp(port) => self.tcp.listen(context, port),
            WorkerMessage::ListenUdp(port) => self.udp.listen(context, port),
            WorkerMessage::Close(id, _done) => {
                // Datagrams that were answered go out before their socket goes.
                self.udp.flush();
                self.tcp.close(context, id);
                self.udp.close(id);
            }
            WorkerMessage::Carry(accepted) => self.tcp.carry(context, accepted),
            WorkerMessage::DropFlows => self.udp.drop_gone(),
            WorkerMessage::CutAt(at) => context.timers.set(at, Due::Cut),
            WorkerMessage::Stop => self.stopping = true,
        }
    }

    fn on_due(&mut self, what: Due) {
        let context = &mut self.context;
        match what {
            Due::Dial(key, attempt) => self.tcp.on_dial_timeout(context, key, attempt),
            Due::Resume(key) => self.tcp.resume(context, key),
            Due::Flow(key) => self.udp.on_idle(context, key),
            Due::Spares => self.udp.on_spares(context),
            Due::Cut => self.tcp.cut(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::userspace::slab::Slab;

    #[test]
    fn tokens_survive_packing() {
        let mut slab = Slab::new();
        slab.insert(());
        let key = slab.insert(());
        for token in [
            Token::Messages,
            Token::Listener(key),
            Token::Client(key),
            Token::Upstream(key),
            Token::UdpListener(key),
            Token::Flow(key),
        ] {
            assert_eq!(Token::unpack(token.pack()), token);
        }
    }
}
