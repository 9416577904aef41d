//! Answers: their bodies, and the headers that all of a kind have.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc::Receiver;

/// Plain text.
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
/// JSON.
pub(crate) const JSON: &str = "application/json";

/// An answer with a body of ours.
pub(crate) type Answer = Response<Content>;

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum Content {
    /// All of it; none once it is sent.
    Whole(Option<Bytes>),
    /// Piece by piece, as somebody makes it.
    Stream(Receiver<Piece>),
}

/// A part of a body that is made while it is sent.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Some of it.
    Text(Bytes),
    /// There is no more. Without it the body was broken off, and the client must not take it for whole.
    End,
}

/// Whoever made the body gave up.
#[derive(Debug, thiserror::Error)]
#[error("the answer was broken off")]
pub(crate) struct BrokenOff;

impl Body for Content {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        Poll::Ready(match self.get_mut() {
            Self::Whole(bytes) => bytes.take().map(|bytes| Ok(Frame::data(bytes))),
            Self::Stream(pieces) => match ready!(pieces.poll_recv(context)) {
                Some(Piece::Text(bytes)) => Some(Ok(Frame::data(bytes))),
                Some(Piece::End) => None,
                None => Some(Err(BrokenOff)),
            },
        })
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// An answer of some type. Browsers are told not to guess another.
pub(crate) fn answer(code: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Content::Whole(Some(body.into())));
    *answer.status_mut() = code;
    set(&mut answer, CONTENT_TYPE, HeaderValue::from_static(kind));
    set(
        &mut answer,
        X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    answer
}

/// Text, and all is well.
pub(crate) fn text(body: impl Into<Bytes>) -> Answer {
    answer(StatusCode::OK, TEXT, body)
}

/// JSON of a health check.
pub(crate) fn verdict(is_ok: bool, body: String) -> Answer {
    let code = if is_ok {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    answer(code, JSON, body)
}

/// There is nothing at this path.
pub(crate) fn not_found() -> Answer {
    answer(StatusCode::NOT_FOUND, TEXT, "404 page not found\n")
}

/// Sets a header.
pub(crate) fn set(answer: &mut Answer, name: HeaderName, value: HeaderValue) {
    answer.headers_mut().insert(name, value);
}

/// Makes a result of an answer that cannot fail, as hyper wants one.
pub(crate) fn certainly(answer: Answer) -> Result<Answer, Infallible> {
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_stream_without_its_end_is_not_taken_for_whole() {
        for is_whole in [true, false] {
            let (sender, pieces) = mpsc::channel(2);
            sender.send(Piece::Text("a".into())).await.unwrap();
            if is_whole {
                sender.send(Piece::End).await.unwrap();
            }
            drop(sender);
            let body = Content::Stream(pieces).collect().await;
            assert_eq!(body.is_ok(), is_whole);
        }
    }
}
