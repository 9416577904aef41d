//! `/metrics`: made on a thread of its own, because it reads the kernel, and sent as it is made, because it may be long.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::serve::health::{Health, Moment};
use crate::serve::http::answer::{Answer, Content, Piece, TEXT, answer, set};
use crate::serve::metrics::Metrics;

/// The text format of Prometheus.
pub(super) const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";
const PROCESS_START: HeaderName = HeaderName::from_static("process-start-time-unix");

/// Scrapes at once; each may hold a table of all services for a moment.
const AT_ONCE: usize = 2;
/// How long a scrape waits for its turn, and for a client to take the next piece. Shorter than any sensible scrape interval.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a whole scrape may take, however steadily its client reads. A scraper has given up by then.
const DEADLINE: Duration = Duration::from_secs(60);
/// The size of a piece, and how many may be on their way.
const PIECE: usize = 16 * 1024;
const PIECES: usize = 2;

/// Makes the text for those who ask.
pub(super) struct Scrapes {
    metrics: Arc<Metrics>,
    health: Arc<Health>,
    turns: Arc<Semaphore>,
}

impl Scrapes {
    pub(super) fn new(metrics: Arc<Metrics>, health: Arc<Health>) -> Self {
        Self {
            metrics,
            health,
            turns: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Begins to answer.
    pub(super) async fn answer(&self) -> Answer {
        let turn = Arc::clone(&self.turns).acquire_owned();
        let Ok(Ok(turn)) = timeout(PATIENCE, turn).await else {
            let busy = "too many scrapes at once; try again\n";
            return answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, busy);
        };
        if let Some(age) = self.health.data_age(Moment::now()) {
            self.metrics.data_age(age);
        }
        let (pieces, content) = mpsc::channel(PIECES);
        let metrics = Arc::clone(&self.metrics);
        let writer = Writer::new(pieces, turn, Instant::now() + DEADLINE);
        tokio::task::spawn_blocking(move || write(&metrics, writer));
        let mut answer = Response::new(Content::Stream(content));
        set(
            &mut answer,
            CONTENT_TYPE,
            HeaderValue::from_static(EXPOSITION),
        );
        if let Some(started) = self.metrics.started() {
            set(
                &mut answer,
                PROCESS_START,
                HeaderValue::from(started as u64),
            );
        }
        answer
    }
}

fn write(metrics: &Metrics, mut writer: Writer) {
    // It only fails if the client does not want the rest.
    if metrics.expose(&mut writer).is_ok() {
        writer.finish();
    }
}

/// Gathers text into pieces and sends them.
struct Writer {
    pieces: Sender<Piece>,
    runtime: Handle,
    buffer: String,
    deadline: Instant,
    _turn: OwnedSemaphorePermit,
}

impl Writer {
    fn new(pieces: Sender<Piece>, turn: OwnedSemaphorePermit, deadline: Instant) -> Self {
        Self {
            pieces,
            runtime: Handle::current(),
            buffer: String::with_capacity(PIECE),
            deadline,
            _turn: turn,
        }
    }

    fn finish(mut self) {
        if self.flush().is_ok() {
            let _ = self.send(Piece::End);
        }
    }

    fn flush(&mut self) -> fmt::Result {
        let text = std::mem::replace(&mut self.buffer, String::with_capacity(PIECE));
        self.send(Piece::Text(Bytes::from(text)))
    }

    fn send(&self, piece: Piece) -> fmt::Result {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(fmt::Error);
        }
        let sent = self.pieces.send_timeout(piece, PATIENCE.min(left));
        self.runtime.block_on(sent).map_err(|_| fmt::Error)
    }
}

impl fmt::Write for Writer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.buffer.push_str(text);
        if self.buffer.len() >= PIECE {
            self.flush()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    /// A client that takes a piece now and then is never late for one, but for the whole.
    #[tokio::test]
    async fn a_client_that_reads_steadily_but_slowly_is_not_waited_for() {
        let turns = Arc::new(Semaphore::new(1));
        let turn = Arc::clone(&turns).acquire_owned().await.unwrap();
        let (pieces, mut content) = mpsc::channel(PIECES);
        let deadline = Instant::now() + Duration::from_millis(300);
        let mut writer = Writer::new(pieces, turn, deadline);
        let writing = tokio::task::spawn_blocking(move || {
            let line = "x".repeat(PIECE);
            while writer.write_str(&line).is_ok() {}
        });
        while content.recv().await.is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        writing.await.unwrap();
        assert!(Instant::now() >= deadline);
        assert_eq!(turns.available_permits(), 1);
    }
}
