//! Reads the body of an answer, a bounded amount at a time.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::Response;
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use kube::client::Body;
use tokio::time::{Instant, timeout_at};

use super::unpack::Unpacker;

/// What has come by now is taken together, up to this many bytes: one batch, one sync.
const TOGETHER: usize = 64 * 1024;

/// Why no more can be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// Nothing came in time.
    #[error("nothing came for {}", shown(*.0))]
    Silent(Duration),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(String),
}

/// A body that is being read.
#[derive(Debug)]
pub(super) struct Chunks {
    body: Body,
    unpacker: Unpacker,
    /// What has come and was not handed over.
    rest: Bytes,
}

impl Chunks {
    pub(super) fn new(answer: Response<Body>) -> Self {
        Self {
            unpacker: Unpacker::of(answer.headers()),
            body: answer.into_body(),
            rest: Bytes::new(),
        }
    }

    /// Waits for bytes until the deadline and hands over all that have come. `false` when the body has ended.
    pub(super) async fn read(
        &mut self,
        deadline: Instant,
        each: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<bool, ReadError> {
        if self.rest.is_empty() {
            let asked = Instant::now();
            let frame = timeout_at(deadline, self.body.frame())
                .await
                .map_err(|_| ReadError::Silent(asked.elapsed()))?;
            if !self.take(frame)? {
                return self.finish(each);
            }
        }
        let mut taken = 0;
        loop {
            while !self.rest.is_empty() {
                let piece = self.rest.split_to(self.unpacker.step(self.rest.len()));
                let unpacked = self.unpacker.feed(&piece, each);
                taken += unpacked.map_err(|error| unreadable(&error))?;
                if taken >= TOGETHER {
                    return Ok(true);
                }
            }
            let Some(frame) = self.body.frame().now_or_never() else {
                return Ok(true);
            };
            if !self.take(frame)? {
                return self.finish(each);
            }
        }
    }

    /// Takes in what came. `false` if that is the end.
    fn take(&mut self, frame: Option<kube::Result<Frame<Bytes>>>) -> Result<bool, ReadError> {
        let Some(content) = frame else {
            return Ok(false);
        };
        let content = content.map_err(|error| ReadError::Broken(error.to_string()))?;
        // Trailers say nothing of interest.
        if let Ok(bytes) = content.into_data() {
            self.rest = bytes;
        }
        Ok(true)
    }

    fn finish(&mut self, each: &mut (dyn FnMut(&[u8]) + Send)) -> Result<bool, ReadError> {
        let finished = self.unpacker.finish(each);
        finished.map_err(|error| unreadable(&error))?;
        Ok(false)
    }
}

fn unreadable(error: &io::Error) -> ReadError {
    ReadError::Broken(format!("cannot unpack the answer: {error}"))
}

fn shown(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
