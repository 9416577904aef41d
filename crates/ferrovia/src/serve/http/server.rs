//! One listener at work: takes clients in, lets a handler answer, and bounds what each of them can hold.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::answer::{Answer, certainly};
use super::pool::Pool;

/// How long a client may take to send the head of a request, and how long it may be silent between two.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// The largest head of a request, and what is buffered of an answer.
const HEAD_SIZE: usize = 16 * 1024;
/// How long the last answer may take after that.
const LAST_ANSWER: Duration = Duration::from_secs(30);
/// The pause when no connection can be taken in, which is mostly because there are no file descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// What answers requests.
pub(crate) trait Handler: Send + Sync + 'static {
    /// How long a connection is kept. Prometheus opens a new one without a word.
    const LIFETIME: Duration = Duration::from_secs(120);

    /// Answers one. Handlers decide by path and method; bodies are not read unless they do so.
    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Answer> + Send;
}

/// Where clients come in.
pub(crate) trait Accept: Send + 'static {
    /// A client's connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Waits for the next client.
    fn client(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Accept for TcpListener {
    type Stream = TcpStream;

    async fn client(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.accept().await?;
        // Answers are small and clients wait for them.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }
}

impl Accept for UnixListener {
    type Stream = UnixStream;

    async fn client(&self) -> io::Result<UnixStream> {
        Ok(self.accept().await?.0)
    }
}

/// Serves until dropped; then every connection ends too.
pub(crate) async fn serve<L: Accept, H: Handler>(listener: L, handler: Arc<H>, pool: Arc<Pool>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            client = listener.client() => match client {
                Ok(stream) => {
                    pool.add(connections.spawn(converse(stream, Arc::clone(&handler), H::LIFETIME)));
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot take in a client");
                    pool.drop_oldest();
                    sleep(PAUSE).await;
                }
            },
            // Those that have ended are forgotten.
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn converse<S, H>(stream: S, handler: Arc<H>, lifetime: Duration)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    let service = service_fn(|request| {
        let handler = Arc::clone(&handler);
        async move { certainly(handler.answer(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_SIZE)
        .title_case_headers(true)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // What goes wrong on a connection is its client's affair.
    if timeout(lifetime, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(LAST_ANSWER, connection).await;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::serve::http::answer::text;

    struct Always;

    impl Handler for Always {
        async fn answer(&self, _: Request<Incoming>) -> Answer {
            text("ok")
        }
    }

    #[tokio::test]
    async fn a_connection_ends_after_its_time_however_busy_it_is() {
        // The first is long enough unless the machine is very busy.
        for lifetime in [300, 3_000, 30_000].map(Duration::from_millis) {
            if answers_within(lifetime).await > 0 {
                return;
            }
        }
        panic!("no answer came");
    }

    /// How many answers a client gets that asks without a pause, on a connection of this lifetime.
    async fn answers_within(lifetime: Duration) -> usize {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = std::thread::spawn(move || {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            let mut answers = 0;
            // Ended by the server, one way or the other.
            while stream
                .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                .is_ok()
                && stream.read(&mut [0; 1024]).is_ok_and(|n| n > 0)
            {
                answers += 1;
            }
            answers
        });
        let (stream, _) = listener.accept().await.unwrap();
        converse(stream, Arc::new(Always), lifetime).await;
        client.join().unwrap()
    }
}
