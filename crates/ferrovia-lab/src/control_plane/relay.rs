//! A TCP relay in front of a server, which can throttle, reset or refuse connections.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How often a throttled relay checks its limit.
const TICK: Duration = Duration::from_millis(20);

/// The size of the copy buffer.
const PIECE: usize = 16 * 1024;

/// A relay, with a thread for each direction of each connection. Dropping it closes all connections.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    shared: Arc<RelayState>,
}

#[derive(Debug, Default)]
struct RelayState {
    connections: Mutex<Vec<TcpStream>>,
    /// Whether new connections are closed at once.
    is_refusing: AtomicBool,
    is_over: AtomicBool,
    /// Bytes a second from the server on each connection; 0 for no limit.
    rate: AtomicU64,
    /// Bytes from the server so far.
    received: AtomicU64,
    /// Connections of clients so far.
    accepted: AtomicU64,
}

impl Relay {
    /// Listens in the network namespace of the calling thread, on a port of the target's address.
    ///
    /// # Errors
    /// If it cannot listen there.
    pub fn start(target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((target.ip(), 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(RelayState::default());
        let served = Arc::clone(&shared);
        thread::Builder::new()
            .name("relay".to_owned())
            .spawn(move || accept(&listener, target, &served))?;
        Ok(Self { address, shared })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes all connections, and new ones at once, until [`Relay::pass`].
    pub fn cut(&self) {
        self.shared.is_refusing.store(true, Ordering::Release);
        self.reset();
    }

    /// Closes all connections; new ones are served.
    pub fn reset(&self) {
        for connection in self.shared.connections().drain(..) {
            // It fails if the connection is closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Serves connections again.
    pub fn pass(&self) {
        self.shared.is_refusing.store(false, Ordering::Release);
    }

    /// Limits the bytes per second from the server on each connection; 0 for no limit.
    pub fn throttle(&self, bytes_per_second: u64) {
        self.shared.rate.store(bytes_per_second, Ordering::Relaxed);
    }

    /// How many connections clients have made so far, those that were refused not counted.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// How many bytes the server has sent so far.
    pub fn received(&self) -> u64 {
        self.shared.received.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.cut();
        // Wakes the accepting thread, which then exits.
        let _ = TcpStream::connect_timeout(&self.address, TICK);
    }
}

impl RelayState {
    fn connections(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn accept(listener: &TcpListener, target: SocketAddr, shared: &Arc<RelayState>) {
    for client in listener.incoming() {
        if shared.is_over.load(Ordering::Acquire) {
            return;
        }
        // If the server is down, the client's connection is closed at once.
        if let Ok(client) = client
            && !shared.is_refusing.load(Ordering::Acquire)
        {
            shared.accepted.fetch_add(1, Ordering::Relaxed);
            let _ = join(client, target, shared);
        }
    }
}

fn join(client: TcpStream, target: SocketAddr, shared: &Arc<RelayState>) -> io::Result<()> {
    let server = TcpStream::connect(target)?;
    let both = [client.try_clone()?, server.try_clone()?];
    let (to_client, to_server) = (client.try_clone()?, server.try_clone()?);
    {
        let mut connections = shared.connections();
        connections.extend(both);
        // Cut while it was being opened.
        if shared.is_refusing.load(Ordering::Acquire) {
            drop(connections);
            client.shutdown(Shutdown::Both)?;
            return server.shutdown(Shutdown::Both);
        }
    }
    let shared = Arc::clone(shared);
    thread::spawn(move || copy(client, to_server, |_| {}));
    thread::spawn(move || copy(server, to_client, |bytes| shared.slow_down(bytes)));
    Ok(())
}

impl RelayState {
    /// Sleeps for the time of these bytes at the current limit.
    fn slow_down(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
        let mut left = bytes as u64;
        loop {
            let rate = self.rate.load(Ordering::Relaxed);
            let in_a_tick = rate * TICK.as_millis() as u64 / 1000;
            if rate == 0 || left == 0 || self.is_over.load(Ordering::Acquire) {
                return;
            }
            thread::sleep(TICK);
            left = left.saturating_sub(in_a_tick.max(1));
        }
    }
}

/// Copies bytes until one side is closed, then closes both.
fn copy(mut from: TcpStream, mut to: TcpStream, before_write: impl Fn(usize)) {
    let mut piece = vec![0; PIECE];
    while let Ok(length) = from.read(&mut piece) {
        let Some(bytes) = piece.get(..length).filter(|bytes| !bytes.is_empty()) else {
            break;
        };
        before_write(length);
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    // They fail if the connection is closed already.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_bytes_until_it_is_cut() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay::start(server.local_addr().unwrap()).unwrap();
        thread::spawn(move || {
            for stream in server.incoming() {
                let mut stream = stream.unwrap();
                stream.write_all(b"hello").unwrap();
                // Until the relay closes it.
                let _ = stream.read(&mut [0]);
            }
        });
        let mut hello = [0; 5];
        let mut client = TcpStream::connect(relay.address()).unwrap();
        client.read_exact(&mut hello).unwrap();
        assert_eq!((&hello, relay.received()), (b"hello", 5));
        relay.cut();
        assert_eq!(client.read(&mut hello).unwrap_or(0), 0);
        let mut refused = TcpStream::connect(relay.address()).unwrap();
        assert_eq!(refused.read(&mut hello).unwrap_or(0), 0);
        relay.pass();
        relay.throttle(50);
        let mut client = TcpStream::connect(relay.address()).unwrap();
        client.read_exact(&mut hello).unwrap();
    }
}
