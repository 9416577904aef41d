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
use super::state::{ConnectionCommand, ServerState};
use super::wire::{ConnectionFate, Wire};

/// How long a client may take for its part of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// A command for the server's thread.
pub(super) enum ListenerCommand {
    /// Open or close the listening socket; the result is sent when done.
    Listen(bool, std_mpsc::Sender<io::Result<()>>),
}

/// The server's address and listening socket.
pub(super) struct ListenerSocket {
    pub(super) address: SocketAddr,
    listener: TcpListener,
    /// Bound to the same address but never listening, so that no other process gets the port while
    /// connections are refused.
    _placeholder: TcpSocket,
}

impl ListenerSocket {
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

/// The standard library sets `SO_REUSEADDR`, without which the placeholder would block the address.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Accepts connections until the sender of commands is dropped.
pub(super) async fn run(
    socket: ListenerSocket,
    shared: Arc<ServerState>,
    acceptor: Option<TlsAcceptor>,
    mut commands: mpsc::UnboundedReceiver<ListenerCommand>,
) -> io::Result<()> {
    let mut listener = Some(TokioListener::from_std(socket.listener)?);
    loop {
        tokio::select! {
            command = commands.recv() => match command {
                None => return Ok(()),
                Some(ListenerCommand::Listen(wanted, done)) => {
                    let result = set_listening(&mut listener, socket.address, wanted);
                    // The receiver is gone if the caller has stopped waiting.
                    let _ = done.send(result);
                }
            },
            stream = accept(listener.as_ref()) => {
                let Ok(stream) = stream else {
                    // Closed before it was accepted, or out of descriptors; the pause avoids a busy loop.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                };
                tokio::spawn(connection(stream, shared.clone(), acceptor.clone()));
            }
        }
    }
}

/// The thread that opened the socket started this one, so it is in the same namespace.
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

/// Serves one connection, registered while it is open.
async fn connection(stream: TcpStream, shared: Arc<ServerState>, acceptor: Option<TlsAcceptor>) {
    // Watches write small pieces, which must not be delayed.
    let _ = stream.set_nodelay(true);
    let fate = Arc::new(ConnectionFate::default());
    let wire = Wire::new(stream, shared.clone(), fate.clone());
    let (id, commands) = shared.state().open_connection(fate.clone());
    let entry = Entry { id, shared };
    let Some(acceptor) = acceptor else {
        return speak(wire, None, &entry, commands, &fate).await;
    };
    let handshake = tokio::time::timeout(HANDSHAKE, acceptor.accept(wire)).await;
    if let Ok(Ok(stream)) = handshake {
        let shown = stream.get_ref().1.peer_certificates();
        let certificate = shown.and_then(|chain| Some(chain.first()?.to_vec()));
        speak(stream, certificate, &entry, commands, &fate).await;
    }
}

/// The registration of a connection.
struct Entry {
    id: u64,
    shared: Arc<ServerState>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.shared.state().close_connection(self.id);
        self.shared.tell();
    }
}

/// Serves HTTP/1.1 or HTTP/2, whichever the client uses.
async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    certificate: Option<Vec<u8>>,
    entry: &Entry,
    mut commands: mpsc::UnboundedReceiver<ConnectionCommand>,
    fate: &ConnectionFate,
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
            // The way a connection ends does not matter to the server.
            _ = connection.as_mut() => return,
            command = commands.recv() => match command {
                Some(ConnectionCommand::Reset) => return fate.reset(),
                Some(ConnectionCommand::GoAway) => connection.as_mut().graceful_shutdown(),
                None => return,
            },
        }
    }
}
