//! Accepting: from listeners that all threads share, within the limits of connections and descriptors.
//!
//! One socket for all threads, rather than one for each: with ten thousand service ports that saves tens of thousands of descriptors, a port
//! that another process holds is always found out, and an idle thread accepts. This module balances connections between threads.

use std::io;
use std::net::{Shutdown, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use socket2::SockRef;

use super::Tcp;
use super::connection::Connection;
use crate::userspace::ConnectFailure;
use crate::userspace::shared::{Accepted, ListenerId, ThreadListener, WorkerMessage};
use crate::userspace::slab::SlabKey;
use crate::userspace::socket;
use crate::userspace::sys::{self, EpollInterest};
use crate::userspace::worker::{Due, Token, WorkerContext};

/// How many connections of a listener are accepted before others have their turn.
const AT_ONCE: usize = 16;
/// How long a listener rests when a limit is met. Its clients wait meanwhile, in the kernel.
const REST: Duration = Duration::from_millis(50);
/// A limit that is met is spoken of once in so long.
const COMPLAIN_EVERY: Duration = Duration::from_secs(30);
/// A thread that has this many connections more than another one gives new ones away.
const SLACK: usize = 2;

impl Tcp {
    pub(in crate::userspace) fn listen(
        &mut self,
        context: &mut WorkerContext,
        port: Arc<ThreadListener<TcpListener>>,
    ) {
        let key = self.listeners.insert(port);
        self.watch(context, key);
    }

    /// Closes a listener. The first thread to do so ends its listening, the last one closes the socket.
    pub(in crate::userspace) fn close(&mut self, context: &mut WorkerContext, id: ListenerId) {
        for key in self.listeners.keys_where(|port| port.id == id) {
            if let Some(port) = self.listeners.remove(key) {
                // The socket stays open for as long as another thread has it, so it does not leave by itself. Not being watched, while
                // it rests, is fine.
                let _ = context.epoll.remove(&port.socket);
                // A program that is just being started has a copy of every descriptor. Closing ours alone would leave it listening for that
                // long, and its port taken. Fails if another thread has done it.
                let _ = SockRef::from(&port.socket).shutdown(Shutdown::Read);
            }
        }
    }

    /// Accepts some of the connections that wait.
    pub(in crate::userspace) fn accept(&mut self, context: &mut WorkerContext, key: SlabKey) {
        for _ in 0..AT_ONCE {
            let Some(port) = self.listeners.get(key) else {
                return;
            };
            let service = &port.service;
            if context.shared.open.load(Ordering::Relaxed) >= context.shared.most_connections {
                service.counters.failed(ConnectFailure::Limit);
                let most = context.shared.most_connections;
                return self.rest(
                    context,
                    key,
                    &format!("{most} connections are open, the most there may be"),
                );
            }
            match sys::accept(&port.socket) {
                Ok((stream, client)) => match port.admit(client.ip()) {
                    Some(service) => {
                        let accepted = Accepted {
                            stream,
                            client,
                            service,
                        };
                        self.place(context, accepted);
                    }
                    // It gets a reset at once.
                    None => socket::reset_on_close(&stream),
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if ConnectFailure::of(&error) == ConnectFailure::Limit => {
                    service.counters.failed(ConnectFailure::Limit);
                    return self.rest(context, key, &error.to_string());
                }
                // A connection that ended before it was accepted, or a network error of its own: the next one may be well.
                Err(_) => {}
            }
        }
    }

    /// Carries a connection that another thread accepted.
    pub(in crate::userspace) fn carry(&mut self, context: &mut WorkerContext, accepted: Accepted) {
        let connection = Connection::new(accepted);
        let key = self.connections.insert(connection);
        self.dial(context, key);
    }

    /// Lets a listener accept again.
    pub(in crate::userspace) fn resume(&mut self, context: &mut WorkerContext, key: SlabKey) {
        if self.listeners.get(key).is_some() {
            self.watch(context, key);
        }
    }

    /// Serves a new connection on this thread, or passes it to a thread with fewer. The first thread that wakes accepts, and without this that would
    /// often be the same one.
    fn place(&mut self, context: &mut WorkerContext, accepted: Accepted) {
        accepted.service.counters.opened();
        context.shared.open.fetch_add(1, Ordering::Relaxed);
        let load = |index: &usize| context.shared.threads[*index].open.load(Ordering::Relaxed);
        let here = context.index;
        let idlest = (0..context.shared.threads.len())
            .min_by_key(load)
            .unwrap_or(here);
        let most = load(&idlest) + load(&idlest) / 4 + SLACK;
        let chosen = if load(&here) > most { idlest } else { here };
        let mailbox = &context.shared.threads[chosen];
        mailbox.open.fetch_add(1, Ordering::Relaxed);
        if chosen == here {
            self.carry(context, accepted);
        } else {
            mailbox.post(WorkerMessage::Carry(accepted));
        }
    }

    fn watch(&mut self, context: &mut WorkerContext, key: SlabKey) {
        let Some(port) = self.listeners.get(key) else {
            return;
        };
        let token = Token::Listener(key).pack();
        if let Err(error) = context
            .epoll
            .add(&port.socket, token, EpollInterest::ReadableByOne)
        {
            self.complain(context, key, &error.to_string());
            context.timers.set(context.now + REST, Due::Resume(key));
        }
    }

    /// Leaves a listener alone for a while: it would be reported as ready again and again.
    fn rest(&mut self, context: &mut WorkerContext, key: SlabKey, why: &str) {
        if let Some(port) = self.listeners.get(key) {
            // Fails only if it is not watched.
            let _ = context.epoll.remove(&port.socket);
            context.timers.set(context.now + REST, Due::Resume(key));
            self.complain(context, key, why);
        }
    }

    fn complain(&mut self, context: &WorkerContext, key: SlabKey, why: &str) {
        let now = context.now;
        let recently = |then| now.saturating_duration_since(then) < COMPLAIN_EVERY;
        if self.complained.is_some_and(recently) {
            return;
        }
        self.complained = Some(now);
        if let Some(port) = self.listeners.get(key) {
            let open = context.shared.open.load(Ordering::Relaxed);
            tracing::warn!(service = %port.service.name, openConnections = open, reason = why, "Paused accepting connections");
        }
    }
}
