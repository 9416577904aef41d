//! The server's thread: accepts connections and serves them.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, mpsc as std_mpsc};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener as TokioListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use super::serve::{Peer, answer};
use super::shared::{ConnectionOrder, Shared};
use super::wire::{Fate, Wire};

/// How long a client may take for its part of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// What the server's thread can be told.
pub(super) enum Order {
    /// Have a listening socket, or have none; the answer comes when it is so.
    Listen(bool, std_mpsc::Sender<io::Result<()>>),
}

/// The server's address, and the socket that listens there.
pub(super) struct Door {
    pub(super) address: SocketAddr,
    listener: TcpListener,
    /// Bound to the same address but never listening, so that nobody else is given the port while
    /// connections are refused.
    _placeholder: TcpSocket,
}

impl Door {
    /// Opens a listening socket in the network namespace of the calling thread.
    pub(super) fn open(address: SocketAddr) -> io::Result<Self> {
        let placeholder = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        placeholder.set_reuseaddr(true)?;
        placeholder.bind(address)?;
        let address = placeholder.local_addr()?;
        Ok(Self {
            address,
            listener: listen(address)?,
            _placeholder: placeholder,
        })
    }
}

/// The standard library sets `SO_REUSEADDR`, without which the placeholder would be in the way.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Accepts connections until the sender of orders is gone.
pub(super) async fn run(
    door: Door,
    shared: Arc<Shared>,
    acceptor: Option<TlsAcceptor>,
    mut orders: mpsc::UnboundedReceiver<Order>,
) -> io::Result<()> {
    let mut listener = Some(TokioListener::from_std(door.listener)?);
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                None => return Ok(()),
                Some(Order::Listen(wanted, done)) => {
                    let result = set_listening(&mut listener, door.address, wanted);
                    // Whoever asked waits, unless it is gone.
                    let _ = done.send(result);
                }
            },
            stream = accept(listener.as_ref()) => {
                let Ok(stream) = stream else {
                    // Gone before it was accepted, or there are too many; never a busy loop.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                };
                tokio::spawn(connection(stream, shared.clone(), acceptor.clone()));
            }
        }
    }
}

/// This thread was started by the one that opened the door, so it is in the same namespace.
fn set_listening(
    listener: &mut Option<TokioListener>,
    address: SocketAddr,
    wanted: bool,
) -> io::Result<()> {
    match wanted {
        false => *listener = None,
        true if listener.is_none() => *listener = Some(TokioListener::from_std(listen(address)?)?),
        true => {}
    }
    Ok(())
}

async fn accept(listener: Option<&TokioListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

/// Serves one connection, and keeps it in the books while it lasts.
async fn connection(stream: TcpStream, shared: Arc<Shared>, acceptor: Option<TlsAcceptor>) {
    // Watches write small pieces; a test that waits for one shall not wait for the next.
    let _ = stream.set_nodelay(true);
    let fate = Arc::new(Fate::default());
    let wire = Wire::new(stream, shared.clone(), fate.clone());
    let (id, orders) = shared.state().open_connection(fate.clone());
    let entry = Entry { id, shared };
    let Some(acceptor) = acceptor else {
        return speak(wire, None, &entry, orders, &fate).await;
    };
    let handshake = tokio::time::timeout(HANDSHAKE, acceptor.accept(wire)).await;
    if let Ok(Ok(stream)) = handshake {
        let shown = stream.get_ref().1.peer_certificates();
        let certificate = shown.and_then(|chain| Some(chain.first()?.to_vec()));
        speak(stream, certificate, &entry, orders, &fate).await;
    }
}

/// A connection in the books.
struct Entry {
    id: u64,
    shared: Arc<Shared>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.shared.state().close_connection(self.id);
        self.shared.tell();
    }
}

/// Speaks HTTP, whichever version the client begins with.
async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    certificate: Option<Vec<u8>>,
    entry: &Entry,
    mut orders: mpsc::UnboundedReceiver<ConnectionOrder>,
    fate: &Fate,
) {
    let peer = Peer {
        connection: entry.id,
        certificate,
    };
    let service = service_fn(|request| answer(entry.shared.clone(), peer.clone(), request));
    let builder = Builder::new(TokioExecutor::new());
    let mut connection = Box::pin(builder.serve_connection(TokioIo::new(stream), service));
    loop {
        tokio::select! {
            // How a connection ends is the client's or the test's business.
            _ = connection.as_mut() => return,
            order = orders.recv() => match order {
                Some(ConnectionOrder::Reset) => return fate.reset(),
                Some(ConnectionOrder::GoAway) => connection.as_mut().graceful_shutdown(),
                None => return,
            },
        }
    }
}
