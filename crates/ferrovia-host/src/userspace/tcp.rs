//! TCP connections of one thread: accepted (`accept.rs`), dialled (`dial.rs`), carried both ways (`connection.rs`, `direction.rs`).

mod accept;
mod connection;
mod dial;
mod direction;
mod pipes;

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use self::connection::{Connection, Verdict};
use self::direction::Means;
use super::shared::Port;
use super::slab::{Key, Slab};
use super::sys::Ready;
use super::worker::Context;

/// All connections of a thread, and the listeners it shares with the others.
pub(super) struct Tcp {
    listeners: Slab<Arc<Port<TcpListener>>>,
    connections: Slab<Connection>,
    means: Means,
    /// Connections that have more to carry than they may at once.
    busy: Vec<Key>,
    /// When a limit was last spoken of.
    complained: Option<Instant>,
}

impl Tcp {
    pub(super) fn new() -> Self {
        Self {
            listeners: Slab::new(),
            connections: Slab::new(),
            means: Means::new(),
            busy: Vec::new(),
            complained: None,
        }
    }

    /// Whether there is work that no event will tell of.
    pub(super) fn is_busy(&self) -> bool {
        !self.busy.is_empty()
    }

    /// Something happened on the client's side.
    pub(super) fn on_client(&mut self, context: &mut Context, key: Key, ready: Ready) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.note_client(ready);
            self.carry_on(context, key);
        }
    }

    /// Something happened on the endpoint's side.
    pub(super) fn on_upstream(&mut self, context: &mut Context, key: Key, ready: Ready) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.is_dialling() {
            self.on_dialled(context, key, ready);
        } else {
            connection.note_upstream(ready);
            self.carry_on(context, key);
        }
    }

    /// Gives those their turn that had more to carry.
    pub(super) fn go_on(&mut self, context: &mut Context) {
        for key in std::mem::take(&mut self.busy) {
            self.carry_on(context, key);
        }
    }

    /// Cuts connections off whose endpoint went and whose time is over.
    pub(super) fn cut(&mut self, context: &mut Context) {
        let now = context.shared.micros(Instant::now());
        for key in self.connections.keys_where(|it| it.is_over(now)) {
            self.end(context, key, Verdict::Reset);
        }
    }

    /// Ends everything.
    pub(super) fn close_all(&mut self, context: &mut Context) {
        for key in self.connections.keys_where(|_| true) {
            self.end(context, key, Verdict::Reset);
        }
    }

    /// Moves what can be moved, both ways.
    fn carry_on(&mut self, context: &mut Context, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let verdict = connection.carry(&mut self.means);
        self.conclude(context, key, verdict);
    }

    fn conclude(&mut self, context: &mut Context, key: Key, verdict: Verdict) {
        match verdict {
            Verdict::Wait => {}
            Verdict::More => self.busy.push(key),
            Verdict::Done | Verdict::Reset => self.end(context, key, verdict),
        }
    }

    fn end(&mut self, context: &mut Context, key: Key, verdict: Verdict) {
        if let Some(connection) = self.connections.remove(key) {
            connection.close(verdict, &mut self.means);
            context.mailbox().open.fetch_sub(1, Ordering::Relaxed);
            context.shared.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
