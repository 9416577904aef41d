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

use self::connection::{Connection, NextStep};
use self::direction::Means;
use super::shared::ThreadListener;
use super::slab::{Slab, SlabKey};
use super::sys::Ready;
use super::worker::WorkerContext;

/// All connections of a thread, and the listeners it shares with the others.
pub(super) struct Tcp {
    listeners: Slab<Arc<ThreadListener<TcpListener>>>,
    connections: Slab<Connection>,
    means: Means,
    /// Connections that have more to carry than they may at once.
    busy: Vec<SlabKey>,
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

    /// Whether there is work that no event will report.
    pub(super) fn is_busy(&self) -> bool {
        !self.busy.is_empty()
    }

    /// Something happened on the client's side.
    pub(super) fn on_client(&mut self, context: &mut WorkerContext, key: SlabKey, ready: Ready) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.note_client(ready);
            self.carry_on(context, key);
        }
    }

    /// Something happened on the endpoint's side.
    pub(super) fn on_upstream(&mut self, context: &mut WorkerContext, key: SlabKey, ready: Ready) {
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
    pub(super) fn go_on(&mut self, context: &mut WorkerContext) {
        for key in std::mem::take(&mut self.busy) {
            self.carry_on(context, key);
        }
    }

    /// Cuts connections off whose endpoint went and whose time is over.
    pub(super) fn cut(&mut self, context: &mut WorkerContext) {
        let now = context.shared.micros(Instant::now());
        for key in self.connections.keys_where(|it| it.is_over(now)) {
            self.end(context, key, NextStep::Reset);
        }
    }

    pub(super) fn close_all(&mut self, context: &mut WorkerContext) {
        for key in self.connections.keys_where(|_| true) {
            self.end(context, key, NextStep::Reset);
        }
    }

    /// Moves what can be moved, both ways.
    fn carry_on(&mut self, context: &mut WorkerContext, key: SlabKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let verdict = connection.carry(&mut self.means);
        self.conclude(context, key, verdict);
    }

    fn conclude(&mut self, context: &mut WorkerContext, key: SlabKey, verdict: NextStep) {
        match verdict {
            NextStep::Wait => {}
            NextStep::More => self.busy.push(key),
            NextStep::Done | NextStep::Reset => self.end(context, key, verdict),
        }
    }

    fn end(&mut self, context: &mut WorkerContext, key: SlabKey, verdict: NextStep) {
        if let Some(connection) = self.connections.remove(key) {
            connection.close(verdict, &mut self.means);
            context.mailbox().open.fetch_sub(1, Ordering::Relaxed);
            context.shared.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
