//! A TCP connection that can be slowed down, stalled or reset, below TLS and HTTP.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use super::state::ServerState;

/// How often a stalled connection checks whether it may continue.
const TICK: Duration = Duration::from_millis(5);

/// What happens to the bytes of all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interference {
    /// They pass.
    #[default]
    None,
    /// They stop in both directions while connections stay open, as with a crashed machine or a
    /// firewall that drops packets: not even HTTP/2 pings are answered.
    Freeze,
    /// The server's bytes are sent slowly.
    Drip {
        /// The size of a piece.
        bytes: usize,
        /// The pause between pieces.
        every: Duration,
    },
}

/// How a connection is going to be closed.
#[derive(Debug, Default)]
pub(super) struct ConnectionFate(AtomicU8);

const RESET: u8 = 1;
const RESET_IN_NEXT_WRITE: u8 = 2;
const FROZEN: u8 = 3;

impl ConnectionFate {
    /// The peer gets a RST when the connection is dropped.
    pub(super) fn reset(&self) {
        self.0.store(RESET, Ordering::Relaxed);
    }

    /// The next write is half done, and then the connection is reset.
    pub(super) fn reset_in_next_write(&self) {
        self.0.store(RESET_IN_NEXT_WRITE, Ordering::Relaxed);
    }

    /// Nothing passes any more.
    pub(super) fn freeze(&self) {
        self.0.store(FROZEN, Ordering::Relaxed);
    }

    fn is(&self, fate: u8) -> bool {
        self.0.load(Ordering::Relaxed) == fate
    }
}

#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    shared: Arc<ServerState>,
    fate: Arc<ConnectionFate>,
    reading: Option<Pin<Box<Sleep>>>,
    writing: Option<Pin<Box<Sleep>>>,
}

impl Wire {
    pub(super) fn new(
        stream: TcpStream,
        shared: Arc<ServerState>,
        fate: Arc<ConnectionFate>,
    ) -> Self {
        Self {
            stream,
            shared,
            fate,
            reading: None,
            writing: None,
        }
    }

    fn interference(&self) -> Interference {
        if self.fate.is(FROZEN) {
            return Interference::Freeze;
        }
        self.shared.state().interference
    }

    /// Writes half of the bytes, at least one, and marks the connection for a reset.
    fn write_half(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let half = bytes.get(..bytes.len().div_ceil(2)).unwrap_or(bytes);
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, half))?;
        self.fate.reset();
        Poll::Ready(Ok(written))
    }
}

/// Waits for a time from the first call on.
fn wait(slot: &mut Option<Pin<Box<Sleep>>>, context: &mut Context<'_>, time: Duration) -> Poll<()> {
    let pause = slot.get_or_insert_with(|| Box::pin(sleep(time)));
    ready!(pause.as_mut().poll(context));
    *slot = None;
    Poll::Ready(())
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.interference() == Interference::Freeze {
            ready!(wait(&mut this.reading, context, TICK));
        }
        Pin::new(&mut this.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.fate.is(RESET) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if this.fate.is(RESET_IN_NEXT_WRITE) {
            return this.write_half(context, bytes);
        }
        loop {
            match this.interference() {
                Interference::None => {
                    return Pin::new(&mut this.stream).poll_write(context, bytes);
                }
                Interference::Freeze => ready!(wait(&mut this.writing, context, TICK)),
                Interference::Drip { bytes: some, every } => {
                    ready!(wait(&mut this.writing, context, every));
                    let drop = bytes.get(..some.max(1)).unwrap_or(bytes);
                    return Pin::new(&mut this.stream).poll_write(context, drop);
                }
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.fate.is(RESET) {
            // If it fails the peer sees a close instead of a reset.
            let _ = self.stream.set_zero_linger();
        }
    }
}
