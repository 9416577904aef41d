//! Watches: each is a task that reads the log of its kind and writes events into the body of a response.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout_at};

use super::body::{Aborted, Body, Feed};
use super::encoding::Encoding;
use super::faults::{End, Fault};
use super::kind::Kind;
use super::list::PIECE;
use super::object::Object;
use super::options::WatchListSupport;
use super::query::{ListOptions, Version};
use super::state::ServerState;
use super::status::Status;
use super::store::{Change, Cursor};

/// The default of `timeoutSeconds`. Real servers use 30 to 60 minutes.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// A command for a running watch.
#[derive(Clone, Debug)]
pub(super) enum WatchCommand {
    Write(Bytes),
    End(End),
}

/// Responds to a watch request: validates it and starts its task.
pub(super) fn watch(
    shared: &Arc<ServerState>,
    kind: Kind,
    namespace: Option<String>,
    options: ListOptions,
    encoding: Encoding,
) -> Result<Body, Status> {
    let mut state = shared.state();
    let store = &state.store;
    let current = store.revision();
    let is_without_progress = shared.options.watch_lists == WatchListSupport::WithoutProgress;
    let (whole, after) = match (options.initial_events, options.version) {
        (Some(true), Version::NotOlderThan(asked)) if asked > current => {
            return Ok(failed(encoding, &Status::too_large_version(asked, current)));
        }
        (Some(true), Version::Newest) if is_without_progress => {
            return Ok(failed(encoding, &Status::no_watch_progress()));
        }
        (Some(true), _) | (None, Version::Newest | Version::Any) => (true, current),
        (Some(false), Version::Newest | Version::Any) => (false, current),
        (_, Version::NotOlderThan(asked) | Version::Exact(asked)) => (false, asked),
    };
    if after < store.oldest(kind) {
        let status = Status::watch_expired(after, store.oldest(kind));
        return Ok(failed(encoding, &status));
    }
    let initial = if whole { store.all(kind) } else { vec![] };
    let cursor = store.cursor_after(kind, after);
    let seconds = options.timeout_seconds.filter(|seconds| *seconds > 0);
    let timeout = seconds.map_or(DEFAULT_TIMEOUT, Duration::from_secs);
    let (feed, body) = Body::stream();
    let (id, commands) = state.open_watch(kind);
    let task = Watch {
        shared: shared.clone(),
        id,
        kind,
        encoding,
        namespace,
        deadline: Instant::now() + timeout.min(DEFAULT_TIMEOUT),
        options,
        cursor,
        sent: after,
        held: None,
        feed,
    };
    drop(state);
    tokio::spawn(task.run(initial, commands));
    shared.tell();
    Ok(body)
}

/// A watch that consists of an error.
fn failed(encoding: Encoding, status: &Status) -> Body {
    Body::one(encoding.error_event(status))
}

struct Watch {
    shared: Arc<ServerState>,
    id: u64,
    kind: Kind,
    encoding: Encoding,
    namespace: Option<String>,
    options: ListOptions,
    deadline: Instant,
    cursor: Cursor,
    /// The client has seen everything up to this revision.
    sent: u64,
    /// A line that is sent after the next one.
    held: Option<BytesMut>,
    feed: Feed,
}

/// The client disconnected, or the watch was ended.
struct WatchEnded;

impl Watch {
    async fn run(
        mut self,
        initial: Vec<Arc<Object>>,
        commands: mpsc::UnboundedReceiver<WatchCommand>,
    ) {
        // The reason of the end does not matter.
        let _ = self.serve(initial, commands).await;
    }

    async fn serve(
        &mut self,
        initial: Vec<Arc<Object>>,
        mut commands: mpsc::UnboundedReceiver<WatchCommand>,
    ) -> Result<(), WatchEnded> {
        let period = self.shared.options.bookmark_every;
        let mut bookmarks = interval_at(Instant::now() + period, period);
        bookmarks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut changes = self.shared.changes();
        let mut initial = Some(initial);
        loop {
            if !self.is_silent() {
                if let Some(initial) = initial.take() {
                    self.send_initial(initial).await?;
                }
                self.send_changes(false).await?;
            }
            tokio::select! {
                _ = changes.changed() => {}
                command = commands.recv() => self.execute(command.ok_or(WatchEnded)?).await?,
                _ = bookmarks.tick(), if initial.is_none() => {
                    self.send_changes(self.options.bookmarks).await?;
                }
                () = sleep_until(self.deadline) => {
                    // The client can resume from here, however old the last event is.
                    return self.send_changes(self.options.bookmarks).await;
                }
                () = self.feed.closed() => return Err(WatchEnded),
            }
        }
    }

    fn is_silent(&self) -> bool {
        let state = self.shared.state();
        state.faults.holds(self.kind, Fault::Silence)
    }

    /// Sends the initial objects as ADDED events.
    async fn send_initial(&mut self, initial: Vec<Arc<Object>>) -> Result<(), WatchEnded> {
        let mut piece = BytesMut::new();
        for object in initial {
            if self.sees(&object) {
                self.append(&mut piece, "ADDED", &object);
            }
            if piece.len() >= PIECE {
                self.send(piece.split().freeze()).await?;
            }
        }
        if self.options.initial_events == Some(true) && self.options.bookmarks {
            self.append_bookmark(&mut piece, true);
        }
        self.send(piece.freeze()).await
    }

    /// Sends all new changes, and a bookmark after them if requested.
    async fn send_changes(&mut self, bookmark: bool) -> Result<(), WatchEnded> {
        loop {
            let (piece, finished) = self.collect(bookmark)?;
            self.send(piece).await?;
            if finished {
                return Ok(());
            }
        }
    }

    /// A piece of new changes, and whether it is the last.
    fn collect(&mut self, with_bookmark: bool) -> Result<(Bytes, bool), WatchEnded> {
        let shared = self.shared.clone();
        let state = shared.state();
        if state.faults.holds(self.kind, Fault::Silence) {
            return Ok((Bytes::new(), true));
        }
        let twice = state.faults.holds(self.kind, Fault::Duplicate);
        let swapped = state.faults.holds(self.kind, Fault::Reorder);
        let mut piece = BytesMut::new();
        if let Some(held) = self.held.take_if(|_| !swapped) {
            piece.extend_from_slice(&held);
        }
        while piece.len() < PIECE {
            let mut cursor = self.cursor;
            let Some(change) = state
                .store
                .read(self.kind, &mut cursor)
                .map_err(|_| WatchEnded)?
            else {
                // A watch from a future revision gets no bookmarks.
                let is_reached = state.store.revision() >= self.sent;
                self.sent = self.sent.max(state.store.revision());
                if with_bookmark && is_reached {
                    self.append_bookmark(&mut piece, false);
                }
                return Ok((piece.freeze(), true));
            };
            self.cursor = cursor;
            // A watch from a future revision waits until it is reached.
            if change.revision <= self.sent {
                continue;
            }
            let mut line = BytesMut::new();
            self.append_change(&mut line, change);
            if line.is_empty() {
                continue;
            }
            if twice {
                piece.extend_from_slice(&line);
            }
            match self.held.take() {
                None if swapped => self.held = Some(line),
                before => {
                    piece.extend_from_slice(&line);
                    piece.extend_from_slice(&before.unwrap_or_default());
                }
            }
        }
        Ok((piece.freeze(), false))
    }

    /// Appends a change: an object that starts or stops matching is added or deleted.
    fn append_change(&self, piece: &mut BytesMut, change: &Change) {
        let before = change.before.as_ref().filter(|object| self.sees(object));
        let after = change.after.as_ref().filter(|object| self.sees(object));
        match (before, after) {
            (None, Some(after)) => self.append(piece, "ADDED", after),
            (Some(_), Some(after)) => self.append(piece, "MODIFIED", after),
            (Some(before), None) => {
                let last = before.last_state(change.revision);
                let last = self.encoding.of_json(self.kind, last);
                self.encoding
                    .append_event(piece, self.kind, "DELETED", &last);
            }
            (None, None) => {}
        }
    }

    fn append(&self, piece: &mut BytesMut, event: &str, object: &Object) {
        let object = self.encoding.of(object);
        self.encoding.append_event(piece, self.kind, event, &object);
    }

    /// Appends a bookmark with the current revision.
    fn append_bookmark(&self, piece: &mut BytesMut, ends_initial_events: bool) {
        let mut object = self.kind.zero();
        object["metadata"] = json!({"resourceVersion": self.sent.to_string()});
        if ends_initial_events {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = self.encoding.of_json(self.kind, object.to_string().into());
        self.encoding
            .append_event(piece, self.kind, "BOOKMARK", &object);
    }

    fn sees(&self, object: &Object) -> bool {
        object.is_in(self.namespace.as_deref())
            && object.is_selected(self.kind, &self.options.selector)
    }

    async fn execute(&mut self, command: WatchCommand) -> Result<(), WatchEnded> {
        self.send_changes(false).await?;
        match command {
            WatchCommand::Write(bytes) => self.send(bytes).await,
            WatchCommand::End(End::Clean) => Err(WatchEnded),
            WatchCommand::End(End::Abort) => {
                // If the client has disconnected, there is nothing to abort.
                let _ = self.feed.send(Err(Aborted)).await;
                Err(WatchEnded)
            }
        }
    }

    async fn send(&mut self, piece: Bytes) -> Result<(), WatchEnded> {
        if piece.is_empty() {
            return Ok(());
        }
        // A client that does not read must not prolong the watch.
        let sent = timeout_at(self.deadline, self.feed.send(Ok(piece))).await;
        sent.map_err(|_| WatchEnded)?.map_err(|_| WatchEnded)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.state().close_watch(self.id);
        self.shared.tell();
    }
}
