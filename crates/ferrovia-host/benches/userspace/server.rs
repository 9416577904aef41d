//! The server's pod: plain blocking threads, the same for every way.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::nodes::{SERVER_ADDRESS, Service, obey, own_namespace};

/// How many accept short connections, and how many answer datagrams.
const THREADS: usize = 8;
/// A connection of the benchmark needs little.
const STACK: usize = 64 << 10;

/// Connections that are kept until all of them are forgotten.
type Kept = Arc<Mutex<Vec<TcpStream>>>;

pub(crate) fn run() {
    own_namespace();
    let kept = Kept::default();
    obey(|words| {
        if words == ["forget"] {
            kept.lock().unwrap().clear();
        } else {
            for service in Service::ALL {
                serve(service, (SERVER_ADDRESS, service.port()).into(), &kept);
            }
        }
        "ok".to_owned()
    });
}

fn serve(service: Service, address: SocketAddr, kept: &Kept) {
    match service {
        Service::Short => {
            let listener = TcpListener::bind(address).unwrap();
            for _ in 0..THREADS {
                let listener = listener.try_clone().unwrap();
                thread::spawn(move || {
                    for mut stream in listener.incoming().flatten() {
                        answer_once(&mut stream);
                    }
                });
            }
        }
        Service::Echo => each_in_a_thread(address, echo),
        Service::Sink => each_in_a_thread(address, sink),
        Service::Keep => {
            let listener = TcpListener::bind(address).unwrap();
            let kept = kept.clone();
            thread::spawn(move || {
                for mut stream in listener.incoming().flatten() {
                    answer_once(&mut stream);
                    kept.lock().unwrap().push(stream);
                }
            });
        }
        Service::Udp => {
            let socket = UdpSocket::bind(address).unwrap();
            for _ in 0..2 {
                let socket = socket.try_clone().unwrap();
                thread::spawn(move || echo_datagrams(&socket));
            }
        }
    }
}

fn each_in_a_thread(address: SocketAddr, each: fn(TcpStream)) {
    let listener = TcpListener::bind(address).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let thread = thread::Builder::new().stack_size(STACK);
            thread.spawn(move || each(stream)).unwrap();
        }
    });
}

fn answer_once(stream: &mut TcpStream) {
    let mut message = [0; 64];
    if stream.read_exact(&mut message).is_ok() {
        stream.write_all(&message).ok();
    }
}

fn echo(mut stream: TcpStream) {
    stream.set_nodelay(true).ok();
    let mut message = [0; 64];
    while stream.read_exact(&mut message).is_ok() && stream.write_all(&message).is_ok() {}
}

fn sink(mut stream: TcpStream) {
    let mut data = vec![0; 128 << 10];
    while stream.read(&mut data).is_ok_and(|len| len > 0) {}
    stream.write_all(&[1]).ok();
}

fn echo_datagrams(socket: &UdpSocket) {
    let mut data = [0; 2048];
    loop {
        if let Ok((len, peer)) = socket.recv_from(&mut data) {
            socket.send_to(&data[..len], peer).ok();
        }
    }
}
