//! Reads the body of an answer, a bounded amount at a time.

use std::time::Duration;

use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::time::{Instant, timeout_at};

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
}

impl Chunks {
    pub(super) fn new(body: Body) -> Self {
        Self { body }
    }

    /// Waits for bytes until the deadline and hands over all that have come. `false` when the body has ended.
    pub(super) async fn read(
        &mut self,
        deadline: Instant,
        each: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<bool, ReadError> {
        let asked = Instant::now();
        let mut frame = timeout_at(deadline, self.body.frame())
            .await
            .map_err(|_| ReadError::Silent(asked.elapsed()))?;
        let mut taken = 0;
        loop {
            let Some(content) = frame else {
                return Ok(false);
            };
            let content = content.map_err(|error| ReadError::Broken(error.to_string()))?;
            // Trailers say nothing of interest.
            if let Ok(bytes) = content.into_data() {
                taken += bytes.len();
                each(&bytes);
            }
            if taken >= TOGETHER {
                return Ok(true);
            }
            match self.body.frame().now_or_never() {
                Some(next) => frame = next,
                None => return Ok(true),
            }
        }
    }
}

fn shown(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
