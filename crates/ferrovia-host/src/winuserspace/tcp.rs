//! Connections: two threads each, one for either direction.

use std::io;
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use socket2::SockRef;

use super::listener::{End, spawn, thread_of_own};
use super::service::Service;
use crate::balance::PATIENCE;

/// The pause when the system accepts nothing, which is as a rule for lack of something.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections until the end has come.
pub(super) fn accept(socket: &TcpListener, service: &Arc<Service>, end: &End) {
    loop {
        let accepted = socket.accept();
        if end.has_come() {
            return;
        }
        let started = accepted.and_then(|(client, from)| start(client, from.ip(), service));
        if let Err(error) = started {
            tracing::warn!(proxy = service.name, %error, "cannot take a connection");
            thread::sleep(PAUSE);
        }
    }
}

/// Gives a connection a thread.
fn start(client: TcpStream, from: IpAddr, service: &Arc<Service>) -> io::Result<()> {
    let Some(place) = service.room.enter() else {
        reset(&client);
        return Ok(());
    };
    let service = Arc::clone(service);
    spawn(move || {
        // Whoever cannot be led anywhere gets a reset, so that it can tell this from an endpoint that had nothing to say.
        match dial(from, &service) {
            Some(endpoint) => carry(&client, &endpoint),
            None => reset(&client),
        }
        drop(place);
    })
}

/// A connection to an endpoint; one that does not answer is followed by another.
fn dial(client: IpAddr, service: &Service) -> Option<TcpStream> {
    let mut tried = Vec::new();
    for patience in PATIENCE {
        let endpoint = service.pick(client, &tried)?;
        match TcpStream::connect_timeout(&endpoint, patience) {
            Ok(stream) => return Some(stream),
            Err(error) => {
                tracing::debug!(proxy = service.name, %endpoint, %error, "an endpoint does not answer");
                tried.push(endpoint);
            }
        }
    }
    None
}

/// Carries bytes both ways until both sides have no more to say.
fn carry(client: &TcpStream, endpoint: &TcpStream) {
    for side in [client, endpoint] {
        // Without these it works too: later, and for clients that vanish without a word for ever.
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

/// Copies until one side has no more to say and tells the other, who may go on. Broken on one side, it ends on both.
fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    // That a side has gone meanwhile is no matter: it needs not be told.
    match io::copy(&mut from, &mut to) {
        Ok(_) => drop(to.shutdown(Shutdown::Write)),
        Err(_) => [from, to]
            .into_iter()
            .for_each(|side| drop(side.shutdown(Shutdown::Both))),
    }
}

/// Has the client told that this is no orderly end, once the connection is closed.
fn reset(stream: &TcpStream) {
    // Without that it is told of an end.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
