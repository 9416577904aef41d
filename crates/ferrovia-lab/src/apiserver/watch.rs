//! Watches: each is a task that reads the log of its kind and writes lines into an answer's body.

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
use super::options::StreamingLists;
use super::query::{ListOptions, Version};
use super::shared::Shared;
use super::status::Status;
use super::store::{Change, Cursor};

/// How long a watch lasts whose client does not say. Real servers take 30 to 60 minutes.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// What a test tells a running watch.
#[derive(Clone, Debug)]
pub(super) enum Order {
    /// Write these bytes, whatever they are.
    Write(Bytes),
    /// End.
    End(End),
}

/// Answers a watch: checks it, and starts its task.
pub(super) fn watch(
    shared: &Arc<Shared>,
    kind: Kind,
    namespace: Option<String>,
    options: ListOptions,
    encoding: Encoding,
) -> Result<Body, Status> {
    let mut state = shared.state();
    let store = &state.store;
    let current = store.revision();
    let is_without_progress = shared.options.streaming_lists == StreamingLists::WithoutProgress;
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
    let (id, orders) = state.open_watch(kind);
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
    tokio::spawn(task.run(initial, orders));
    shared.tell();
    Ok(body)
}

/// A watch that begins and ends with an error.
fn failed(encoding: Encoding, status: &Status) -> Body {
    Body::one(encoding.error_event(status))
}

struct Watch {
    shared: Arc<Shared>,
    id: u64,
    kind: Kind,
    encoding: Encoding,
    namespace: Option<String>,
    options: ListOptions,
    deadline: Instant,
    cursor: Cursor,
    /// The client has seen everything up to this revision.
    sent: u64,
    /// A line that waits to be sent behind its successor.
    held: Option<BytesMut>,
    feed: Feed,
}

/// The client has gone, or the watch shall end.
struct Over;

impl Watch {
    async fn run(mut self, initial: Vec<Arc<Object>>, orders: mpsc::UnboundedReceiver<Order>) {
        // Whatever ends it, there is nobody to tell.
        let _ = self.serve(initial, orders).await;
    }

    async fn serve(
        &mut self,
        initial: Vec<Arc<Object>>,
        mut orders: mpsc::UnboundedReceiver<Order>,
    ) -> Result<(), Over> {
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
                order = orders.recv() => self.obey(order.ok_or(Over)?).await?,
                _ = bookmarks.tick(), if initial.is_none() => {
                    self.send_changes(self.options.bookmarks).await?;
                }
                () = sleep_until(self.deadline) => {
                    // The client may go on from here, however old the last event is.
                    return self.send_changes(self.options.bookmarks).await;
                }
                () = self.feed.closed() => return Err(Over),
            }
        }
    }

    fn is_silent(&self) -> bool {
        let state = self.shared.state();
        state.faults.holds(self.kind, Fault::Silence)
    }

    /// Sends what there was when the watch began, as if it had just been added.
    async fn send_initial(&mut self, initial: Vec<Arc<Object>>) -> Result<(), Over> {
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

    /// Sends all changes the client has not seen yet, and a bookmark behind them if asked.
    async fn send_changes(&mut self, bookmark: bool) -> Result<(), Over> {
        loop {
            let (piece, finished) = self.collect(bookmark)?;
            self.send(piece).await?;
            if finished {
                return Ok(());
            }
        }
    }

    /// A piece of unseen changes, and whether it was the last.
    fn collect(&mut self, with_bookmark: bool) -> Result<(Bytes, bool), Over> {
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
            let Some(change) = state.store.read(self.kind, &mut cursor).map_err(|_| Over)? else {
                // Of a watch from the future nothing is known, not even that nothing happened.
                let is_reached = state.store.revision() >= self.sent;
                self.sent = self.sent.max(state.store.revision());
                if with_bookmark && is_reached {
                    self.append_bookmark(&mut piece, false);
                }
                return Ok((piece.freeze(), true));
            };
            self.cursor = cursor;
            // A watch from the future waits until the future is there.
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

    /// A change as this watch sees it: an object that starts or stops to match comes or goes.
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

    /// Says how far the client has seen everything.
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

    async fn obey(&mut self, order: Order) -> Result<(), Over> {
        self.send_changes(false).await?;
        match order {
            Order::Write(bytes) => self.send(bytes).await,
            Order::End(End::Clean) => Err(Over),
            Order::End(End::Abort) => {
                // If the client is gone already, there is nothing to abort.
                let _ = self.feed.send(Err(Aborted)).await;
                Err(Over)
            }
        }
    }

    async fn send(&mut self, piece: Bytes) -> Result<(), Over> {
        if piece.is_empty() {
            return Ok(());
        }
        // A client that does not read must not keep the watch alive beyond its time.
        let sent = timeout_at(self.deadline, self.feed.send(Ok(piece))).await;
        sent.map_err(|_| Over)?.map_err(|_| Over)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.state().close_watch(self.id);
        self.shared.tell();
    }
}
