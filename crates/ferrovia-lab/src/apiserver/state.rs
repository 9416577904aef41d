//! The state that the test's thread and the server's thread share.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::faults::Faults;
use super::kind::Kind;
use super::options::ApiServerOptions;
use super::request::Request;
use super::store::Store;
use super::watch::WatchCommand;
use super::wire::{ConnectionFate, Interference};

/// The shared state of a server.
#[derive(Debug)]
pub(super) struct ServerState {
    pub(super) options: ApiServerOptions,
    state: Mutex<State>,
    /// The number of notifications so far; tests wait for it to increase.
    notifications: Mutex<u64>,
    news: Condvar,
    /// Wakes the watches; the value means nothing.
    changed: watch::Sender<()>,
}

/// The mutable state.
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
    commands: mpsc::UnboundedSender<WatchCommand>,
}

#[derive(Debug)]
struct OpenConnection {
    id: u64,
    fate: Arc<ConnectionFate>,
    commands: mpsc::UnboundedSender<ConnectionCommand>,
}

/// A command for an open connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum ConnectionCommand {
    /// Reset it at once.
    Reset,
    /// Accept no more requests: `GOAWAY` over HTTP/2.
    GoAway,
}

impl ServerState {
    pub(super) fn new(options: ApiServerOptions, token: String) -> Self {
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
            notifications: Mutex::new(0),
            news: Condvar::new(),
            changed: watch::Sender::new(()),
        }
    }

    /// Locks the mutable state. Never blocks while holding it.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies watches and waiting tests of a change.
    pub(super) fn tell(&self) {
        self.changed.send_replace(());
        *self
            .notifications
            .lock()
            .unwrap_or_else(PoisonError::into_inner) += 1;
        self.news.notify_all();
    }

    /// Wakes a watch at every notification.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The number of notifications so far.
    pub(super) fn news(&self) -> u64 {
        *self
            .notifications
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there are more notifications than this, or a time has passed.
    pub(super) fn wait_for_news(&self, seen: u64, time: Duration) {
        let notifications = self
            .notifications
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // The caller checks which of the two it was.
        drop(
            self.news
                .wait_timeout_while(notifications, time, |notifications| *notifications == seen),
        );
    }
}

impl State {
    pub(super) fn open_watch(
        &mut self,
        kind: Kind,
    ) -> (u64, mpsc::UnboundedReceiver<WatchCommand>) {
        let (commands, receiver) = mpsc::unbounded_channel();
        let id = self.new_id();
        self.watches.push(OpenWatch { id, kind, commands });
        (id, receiver)
    }

    pub(super) fn close_watch(&mut self, id: u64) {
        self.watches.retain(|watch| watch.id != id);
    }

    /// How many watches of a kind are open.
    pub(super) fn watches(&self, kind: Kind) -> usize {
        self.watches.iter().filter(|w| w.kind == kind).count()
    }

    pub(super) fn send_to_watches(&self, kind: Kind, command: &WatchCommand) {
        for watch in self.watches.iter().filter(|watch| watch.kind == kind) {
            // A watch that is just ending ignores the command.
            let _ = watch.commands.send(command.clone());
        }
    }

    pub(super) fn open_connection(
        &mut self,
        fate: Arc<ConnectionFate>,
    ) -> (u64, mpsc::UnboundedReceiver<ConnectionCommand>) {
        let (commands, receiver) = mpsc::unbounded_channel();
        let id = self.new_id();
        self.connections.push(OpenConnection { id, fate, commands });
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

    pub(super) fn send_to_connections(&self, command: ConnectionCommand) {
        for connection in &self.connections {
            // As above.
            let _ = connection.commands.send(command);
        }
    }

    pub(super) fn send_to_connection(&self, id: u64, command: ConnectionCommand) {
        for connection in self.connections.iter().filter(|c| c.id == id) {
            // As above.
            let _ = connection.commands.send(command);
        }
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}
