//! Connections: two threads each, one for either direction.

use std::io;
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use socket2::SockRef;

use super::listener::{StopFlag, spawn, thread_of_own};
use super::service::WindowsService;
use crate::balance::PATIENCE;

/// The pause when the system accepts nothing, which is as a rule for lack of something.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections until the end has come.
pub(super) fn accept(socket: &TcpListener, service: &Arc<WindowsService>, end: &StopFlag) {
    loop {
        let accepted = socket.accept();
        if end.has_come() {
            return;
        }
        let started = accepted.and_then(|(client, from)| start(client, from.ip(), service));
        if let Err(error) = started {
            tracing::warn!(proxy = service.name, err = %error, retryAfter = ?PAUSE, "Failed to accept a connection");
            thread::sleep(PAUSE);
        }
    }
}

/// Gives a connection a thread.
fn start(client: TcpStream, from: IpAddr, service: &Arc<WindowsService>) -> io::Result<()> {
    let Some(place) = service.room.enter() else {
        reset(&client);
        return Ok(());
    };
    let service = Arc::clone(service);
    spawn(move || {
        // A client without an endpoint gets a reset, so that it can distinguish this from an endpoint that sent nothing.
        match dial(from, &service) {
            Some(endpoint) => carry(&client, &endpoint),
            None => reset(&client),
        }
        drop(place);
    })
}

/// A connection to an endpoint; one that does not answer is followed by another.
fn dial(client: IpAddr, service: &WindowsService) -> Option<TcpStream> {
    let mut tried = Vec::new();
    for patience in PATIENCE {
        let endpoint = service.pick(client, &tried)?;
        match TcpStream::connect_timeout(&endpoint, patience) {
            Ok(stream) => return Some(stream),
            Err(error) => {
                tracing::debug!(proxy = service.name, %endpoint, err = %error, "Failed to connect to endpoint");
                tried.push(endpoint);
            }
        }
    }
    None
}

/// Carries bytes both ways until both sides have no more to say.
fn carry(client: &TcpStream, endpoint: &TcpStream) {
    for side in [client, endpoint] {
        // Without these it works too: later, and for clients that vanish silently forever.
        let _ = side.set_nodelay(true);
        let _ = SockRef::from(side).set_keepalive(true);
    }
    thread::scope(|scope| {
        let inwards = || copy(client, endpoint);
        match thread_of_own().spawn_scoped(scope, inwards) {
            Ok(_) => copy(endpoint, client),
            Err(_) => [client, endpoint].into_iter().for_each(reset),
        }
    });
}

/// Copies until one side closes, then shuts the other down for writing. An error on one side closes both.
fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    // A side that has disconnected meanwhile needs no shutdown.
    match io::copy(&mut from, &mut to) {
        Ok(_) => drop(to.shutdown(Shutdown::Write)),
        Err(_) => [from, to]
            .into_iter()
            .for_each(|side| drop(side.shutdown(Shutdown::Both))),
    }
}

/// Makes the connection close with a reset.
fn reset(stream: &TcpStream) {
    // If this fails, the client sees an orderly close.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
