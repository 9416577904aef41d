//! What the test's thread and the server's thread share.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::faults::Faults;
use super::kind::Kind;
use super::options::Options;
use super::request::Request;
use super::store::Store;
use super::watch::Order;
use super::wire::{Fate, Interference};

/// The server's insides.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: Options,
    state: Mutex<State>,
    /// How often something was told; the test waits for it to rise.
    told: Mutex<u64>,
    news: Condvar,
    /// Wakes the watches; the value means nothing.
    changed: watch::Sender<()>,
}

/// Everything that changes.
#[derive(Debug)]
pub(super) struct State {
    pub(super) store: Store,
    pub(super) faults: Faults,
    pub(super) interference: Interference,
    pub(super) requests: Vec<Request>,
    pub(super) events: Vec<Value>,
    /// How many answers were compressed.
    pub(super) compressed: usize,
    /// The bearer token that is accepted now.
    pub(super) token: String,
    next_id: u64,
    watches: Vec<OpenWatch>,
    connections: Vec<OpenConnection>,
    connections_made: usize,
}

#[derive(Debug)]
struct OpenWatch {
    id: u64,
    kind: Kind,
    orders: mpsc::UnboundedSender<Order>,
}

#[derive(Debug)]
struct OpenConnection {
    id: u64,
    fate: Arc<Fate>,
    orders: mpsc::UnboundedSender<ConnectionOrder>,
}

/// What a test tells an open connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum ConnectionOrder {
    /// Reset it, now.
    Reset,
    /// Take no more requests: `GOAWAY` over HTTP/2.
    GoAway,
}

impl Shared {
    pub(super) fn new(options: Options, token: String) -> Self {
        let state = State {
            store: Store::new(options.history),
            faults: Faults::default(),
            interference: Interference::None,
            requests: vec![],
            events: vec![],
            compressed: 0,
            token,
            next_id: 0,
            watches: vec![],
            connections: vec![],
            connections_made: 0,
        };
        Self {
            options,
            state: Mutex::new(state),
            told: Mutex::new(0),
            news: Condvar::new(),
            changed: watch::Sender::new(()),
        }
    }

    /// Everything that changes, locked. Nobody waits for anything while holding it.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes whoever waits for a change.
    pub(super) fn tell(&self) {
        self.changed.send_replace(());
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.news.notify_all();
    }

    /// Wakes a watch whenever something was told.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// How often something was told.
    pub(super) fn news(&self) -> u64 {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until more was told than this, or some time has passed.
    pub(super) fn wait_for_news(&self, seen: u64, time: Duration) {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        // Which of the two it was is for the waiting one to see.
        drop(
            self.news
                .wait_timeout_while(told, time, |told| *told == seen),
        );
    }
}

impl State {
    pub(super) fn open_watch(&mut self, kind: Kind) -> (u64, mpsc::UnboundedReceiver<Order>) {
        let (orders, receiver) = mpsc::unbounded_channel();
        let id = self.new_id();
        self.watches.push(OpenWatch { id, kind, orders });
        (id, receiver)
    }

    pub(super) fn close_watch(&mut self, id: u64) {
        self.watches.retain(|watch| watch.id != id);
    }

    /// How many watches of a kind are open.
    pub(super) fn watches(&self, kind: Kind) -> usize {
        self.watches.iter().filter(|w| w.kind == kind).count()
    }

    pub(super) fn order_watches(&self, kind: Kind, order: &Order) {
        for watch in self.watches.iter().filter(|watch| watch.kind == kind) {
            // A watch that is just ending need not obey.
            let _ = watch.orders.send(order.clone());
        }
    }

    pub(super) fn open_connection(
        &mut self,
        fate: Arc<Fate>,
    ) -> (u64, mpsc::UnboundedReceiver<ConnectionOrder>) {
        let (orders, receiver) = mpsc::unbounded_channel();
        let id = self.new_id();
        self.connections.push(OpenConnection { id, fate, orders });
        self.connections_made += 1;
        (id, receiver)
    }

    pub(super) fn close_connection(&mut self, id: u64) {
        self.connections.retain(|connection| connection.id != id);
    }

    /// How many connections are open.
    pub(super) fn connections(&self) -> usize {
        self.connections.len()
    }

    pub(super) fn connections_made(&self) -> usize {
        self.connections_made
    }

    /// Has nothing pass on any connection from now on.
    pub(super) fn freeze_connections(&self) {
        for connection in &self.connections {
            connection.fate.freeze();
        }
    }

    /// Has every connection reset in the middle of its next write.
    pub(super) fn reset_in_next_write(&self) {
        for connection in &self.connections {
            connection.fate.reset_in_next_write();
        }
    }

    pub(super) fn order_connections(&self, order: ConnectionOrder) {
        for connection in &self.connections {
            // As above.
            let _ = connection.orders.send(order);
        }
    }

    pub(super) fn order_connection(&self, id: u64, order: ConnectionOrder) {
        for connection in self.connections.iter().filter(|c| c.id == id) {
            // As above.
            let _ = connection.orders.send(order);
        }
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}
