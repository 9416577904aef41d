//! The body of a response: complete, or a stream that a task writes.

use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::body::{Frame, SizeHint};
use tokio::sync::mpsc;

/// How many pieces of a stream are buffered before its task is blocked.
const QUEUE: usize = 4;

/// The body of a response.
pub(super) enum Body {
    /// One piece, with `Content-Length`.
    One(Option<Bytes>),
    /// Pieces created while they are sent, without `Content-Length`, as for long lists.
    Pieces(Box<dyn Iterator<Item = Bytes> + Send>),
    /// Pieces of a stream.
    Stream {
        pieces: mpsc::Receiver<Result<Bytes, Aborted>>,
        /// Whether the stream is aborted next.
        aborting: bool,
    },
}

/// A truncated response. Over HTTP/1.1 the connection is closed without the last chunk,
/// over HTTP/2 the stream is reset.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the test aborted the response")]
pub(super) struct Aborted;

/// The sending side of a stream.
pub(super) type Feed = mpsc::Sender<Result<Bytes, Aborted>>;

impl Body {
    /// A body of one piece.
    pub(super) fn one(bytes: impl Into<Bytes>) -> Self {
        Self::One(Some(bytes.into()))
    }

    /// A body of these pieces.
    pub(super) fn pieces(pieces: impl Iterator<Item = Bytes> + Send + 'static) -> Self {
        let mut pieces = pieces.peekable();
        let first = pieces.next();
        match pieces.peek() {
            None => Self::One(first),
            Some(_) => Self::Pieces(Box::new(first.into_iter().chain(pieces))),
        }
    }

    /// The body compressed, if all of it is there and larger than this; else as it is.
    pub(super) fn compressed(self, than: usize) -> Result<Self, Self> {
        let pieces: Vec<Bytes> = match self {
            Self::One(piece) => piece.into_iter().collect(),
            Self::Pieces(pieces) => pieces.collect(),
            stream @ Self::Stream { .. } => return Err(stream),
        };
        if pieces.iter().map(Bytes::len).sum::<usize>() <= than {
            return Err(Self::pieces(pieces.into_iter()));
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        let packed = pieces.iter().try_for_each(|piece| encoder.write_all(piece));
        match packed.and_then(|()| encoder.finish()) {
            Ok(packed) => Ok(Self::one(packed)),
            // Writing into memory does not fail.
            Err(_) => Err(Self::pieces(pieces.into_iter())),
        }
    }

    /// Waits for the first piece of a stream, so that the headers are not sent before it.
    pub(super) async fn begun(self) -> Self {
        let Self::Stream { mut pieces, .. } = self else {
            return self;
        };
        let first = pieces.recv().await;
        let (feed, body) = Self::stream();
        tokio::spawn(async move {
            let mut next = first;
            while let Some(piece) = next {
                if feed.send(piece).await.is_err() {
                    return;
                }
                next = tokio::select! {
                    piece = pieces.recv() => piece,
                    () = feed.closed() => return,
                };
            }
        });
        body
    }

    /// A body that a task writes.
    pub(super) fn stream() -> (Feed, Self) {
        let (feed, receiver) = mpsc::channel(QUEUE);
        let body = Self::Stream {
            pieces: receiver,
            aborting: false,
        };
        (feed, body)
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
            Self::One(piece) => Poll::Ready(piece.take().map(|b| Ok(Frame::data(b)))),
            Self::Pieces(pieces) => Poll::Ready(pieces.next().map(|b| Ok(Frame::data(b)))),
            Self::Stream { aborting: true, .. } => Poll::Ready(Some(Err(Aborted))),
            Self::Stream { pieces, aborting } => match ready!(pieces.poll_recv(context)) {
                Some(Ok(piece)) => Poll::Ready(Some(Ok(Frame::data(piece)))),
                Some(Err(Aborted)) => {
                    // On an error the transport discards unsent data. So the error is returned one
                    // poll later, and the pieces before it are sent.
                    *aborting = true;
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
                None => Poll::Ready(None),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::One(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::One(piece) => SizeHint::with_exact(piece.as_ref().map_or(0, |b| b.len() as u64)),
            Self::Pieces(_) | Self::Stream { .. } => SizeHint::default(),
        }
    }
}
