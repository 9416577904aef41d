//! What to compare with: a proxy as one writes it first, two threads for a connection and a buffer for each.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A thread of a connection needs little.
const STACK: usize = 64 << 10;
/// After so long a flow is over, as in the engine.
const IDLE: Duration = Duration::from_millis(250);

/// Carries connections, forever.
pub(crate) fn carry_tcp(from: SocketAddr, to: SocketAddr) {
    let listener = TcpListener::bind(from).unwrap();
    spawn(move || {
        for client in listener.incoming().flatten() {
            spawn(move || carry(&client, to));
        }
    });
}

/// Carries datagrams, forever.
pub(crate) fn carry_udp(from: SocketAddr, to: SocketAddr) {
    let listener = Arc::new(UdpSocket::bind(from).unwrap());
    spawn(move || {
        let flows: Arc<Mutex<HashMap<SocketAddr, Arc<UdpSocket>>>> = Arc::default();
        let mut data = [0; 4096];
        while let Ok((len, client)) = listener.recv_from(&mut data) {
            let known = flows.lock().unwrap().get(&client).cloned();
            let socket = known.unwrap_or_else(|| {
                let socket = Arc::new(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap());
                socket.connect(to).unwrap();
                socket.set_read_timeout(Some(IDLE)).unwrap();
                flows.lock().unwrap().insert(client, socket.clone());
                let (listener, flows, answers) = (listener.clone(), flows.clone(), socket.clone());
                spawn(move || {
                    let mut data = [0; 4096];
                    while let Ok(len) = answers.recv(&mut data) {
                        listener.send_to(&data[..len], client).ok();
                    }
                    flows.lock().unwrap().remove(&client);
                });
                socket
            });
            socket.send(&data[..len]).ok();
        }
    });
}

fn carry(client: &TcpStream, to: SocketAddr) {
    let Ok(server) = TcpStream::connect(to) else {
        return;
    };
    for stream in [client, &server] {
        stream.set_nodelay(true).ok();
    }
    let (Ok(client_copy), Ok(server_copy)) = (client.try_clone(), server.try_clone()) else {
        return;
    };
    spawn(move || copy(&server_copy, &client_copy));
    copy(client, &server);
}

fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    let mut data = vec![0; 32 << 10];
    while let Ok(len @ 1..) = from.read(&mut data) {
        if to.write_all(&data[..len]).is_err() {
            break;
        }
    }
    to.shutdown(Shutdown::Write).ok();
}

fn spawn(work: impl FnOnce() + Send + 'static) {
    // Out of threads, this one piece of work is not done; that is what such a proxy is like.
    thread::Builder::new().stack_size(STACK).spawn(work).ok();
}
