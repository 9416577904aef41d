//! The body of an answer: all there at once, or a stream that a task feeds.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::sync::mpsc;

/// How many pieces of a stream may wait for the client before its task is held up.
const QUEUE: usize = 4;

/// The body of an answer.
#[derive(Debug)]
pub(super) enum Body {
    /// Pieces in a row. More than one are sent without saying the length first, as real servers
    /// send long lists.
    Whole(VecDeque<Bytes>),
    /// Pieces as they come.
    Stream(mpsc::Receiver<Result<Bytes, Aborted>>),
}

/// An answer that ends before its end. Over HTTP/1.1 the connection closes without the last chunk,
/// over HTTP/2 the stream is reset.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the lab was told to abort the answer")]
pub(super) struct Aborted;

/// Where a stream's task writes.
pub(super) type Feed = mpsc::Sender<Result<Bytes, Aborted>>;

impl Body {
    /// A body of one piece.
    pub(super) fn one(bytes: impl Into<Bytes>) -> Self {
        Self::Whole([bytes.into()].into())
    }

    /// A body that somebody feeds.
    pub(super) fn stream() -> (Feed, Self) {
        let (feed, receiver) = mpsc::channel(QUEUE);
        (feed, Self::Stream(receiver))
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        match &mut *self {
            Self::Whole(pieces) => Poll::Ready(pieces.pop_front().map(|b| Ok(Frame::data(b)))),
            Self::Stream(receiver) => receiver
                .poll_recv(context)
                .map(|piece| piece.map(|piece| piece.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(pieces) if pieces.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(pieces) if pieces.len() <= 1 => {
                SizeHint::with_exact(pieces.iter().map(|b| b.len() as u64).sum())
            }
            _ => SizeHint::default(),
        }
    }
}
