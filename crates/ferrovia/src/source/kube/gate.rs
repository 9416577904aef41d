//! One attempt to connect at a time.
//!
//! All resources are asked for at once, and over HTTP/2 one connection serves them all. But which version the server speaks is known only
//! after the TLS handshake, so the HTTP library would begin a connection for each request and throw away all but one: four handshakes where
//! one is enough, on every node, when an API server returns.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::Connection;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};
use tower::{BoxError, Service};

/// How long to try to connect, with TLS and what a proxy does. A server that many nodes come back to takes its time.
const CONNECT: Duration = Duration::from_secs(10);

/// How long an HTTP/2 connection that was just made may take to be offered to the requests that wait for one.
const HANDED_OVER: Duration = Duration::from_secs(5);

/// A connector that makes no second HTTP/2 connection for requests that can share the first, and gives up after a while.
#[derive(Clone)]
pub(super) struct Gate<C> {
    connector: C,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Held by the attempt that is under way.
    turn: Mutex<Outcome>,
    /// Attempts that came to an end.
    attempts: AtomicU64,
}

/// How the last attempt ended.
#[derive(Clone, Debug, Default)]
enum Outcome {
    /// There was none.
    #[default]
    None,
    Http1,
    Http2,
    Failed(String),
}

impl<C> Gate<C> {
    pub(super) fn new(connector: C) -> Self {
        Self {
            connector,
            shared: Arc::default(),
        }
    }
}

impl<C> Service<Uri> for Gate<C>
where
    C: Service<Uri>,
    C::Response: Connection + Send,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        // Does nothing until it is polled.
        let connecting = self.connector.call(server);
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { shared.connect(connecting).await })
    }
}

impl Shared {
    async fn connect<F, S, E>(&self, connecting: F) -> Result<S, BoxError>
    where
        F: Future<Output = Result<S, E>>,
        S: Connection,
        E: Into<BoxError>,
    {
        let before = self.attempts.load(Ordering::Acquire);
        let mut turn = self.turn.lock().await;
        if self.attempts.load(Ordering::Acquire) != before {
            match &*turn {
                // The request that waits here is given that connection, and this attempt is dropped or its result not looked at.
                Outcome::Http2 => {
                    drop(turn);
                    sleep(HANDED_OVER).await;
                    return Err("another request has connected".into());
                }
                Outcome::Failed(error) => return Err(error.clone().into()),
                Outcome::Http1 | Outcome::None => {}
            }
        }
        if matches!(*turn, Outcome::Http1) {
            // Each request has a connection of its own, and need not wait for the others.
            drop(turn);
            return bounded(connecting).await;
        }
        let connected = bounded(connecting).await;
        *turn = match &connected {
            Ok(stream) if stream.connected().is_negotiated_h2() => Outcome::Http2,
            Ok(_) => Outcome::Http1,
            Err(error) => Outcome::Failed(error.to_string()),
        };
        self.attempts.fetch_add(1, Ordering::Release);
        connected
    }
}

async fn bounded<F, S, E>(connecting: F) -> Result<S, BoxError>
where
    F: Future<Output = Result<S, E>>,
    E: Into<BoxError>,
{
    let late = |_| format!("no connection within {} s", CONNECT.as_secs());
    let connected = timeout(CONNECT, connecting).await.map_err(late)?;
    connected.map_err(Into::into)
}
