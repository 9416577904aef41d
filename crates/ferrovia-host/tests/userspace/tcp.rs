//! Bytes both ways, and their ends.

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use ferrovia_host::userspace::{Address, AddressPresence, Endpoint, Listen, Protocol};

use crate::support::{
    Numbers, ask, connect, echo_server, engine, in_namespace, named_server, run, serve, service,
    wait_until,
};

/// Bytes that depend on their position in a stream.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut numbers = Numbers(seed | 1);
    let mut bytes: Vec<u8> = (0..len.div_ceil(8))
        .flat_map(|_| numbers.next().to_ne_bytes())
        .collect();
    bytes.truncate(len);
    bytes
}

#[test]
fn a_message_and_its_echo() {
    in_namespace(|| {
        let engine = engine();
        let (service, address) = service(&engine, Protocol::Tcp, &[echo_server()]);
        let mut stream = connect(address);
        let mut answer = [0; 5];
        for _ in 0..100 {
            stream.write_all(b"hello").unwrap();
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"hello");
        }
        drop(stream);
        wait_until("the connection ends", || service.figures().open == 0);
        let figures = service.figures();
        assert_eq!(figures.connections, 1);
        assert_eq!((figures.bytes_in, figures.bytes_out), (500, 500));
        assert_eq!(figures.dials.iter().sum::<u64>(), 1);
        let endpoint = &service.endpoint_figures()[0].figures;
        assert_eq!(
            (endpoint.connections, endpoint.open, endpoint.bytes_out),
            (1, 0, 500)
        );
    });
}

/// How the open connection to a port finds out how fast it may send.
fn congestion_control(port: u16) -> String {
    let listed = run(&format!("ss -tinH state established dport = :{port}"));
    // A line of addresses, and one of facts that begins with it.
    let facts = listed.lines().nth(1).unwrap_or_default();
    facts
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn only_what_stays_on_the_machine_ignores_the_nodes_congestion_control() {
    in_namespace(|| {
        // The machine's, which a namespace begins with.
        let setting = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
        let engine = engine();
        for (is_local, expected) in [(true, "reno"), (false, setting.trim())] {
            let server = echo_server();
            let (service, address) = service(&engine, Protocol::Tcp, &[server]);
            let endpoint = Endpoint {
                is_local,
                ..server.into()
            };
            service.set_endpoints(&[endpoint], None);
            let mut stream = connect(address);
            stream.write_all(b"hello").unwrap();
            stream.read_exact(&mut [0; 5]).unwrap();
            assert_eq!(congestion_control(server.port()), expected);
        }
    });
}

#[test]
fn client_that_shut_down_writing_still_receives() {
    in_namespace(|| {
        let engine = engine();
        let server = serve(|mut stream| {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            all.reverse();
            stream.write_all(&all).unwrap();
        });
        let (_service, address) = service(&engine, Protocol::Tcp, &[server]);
        let mut stream = connect(address);
        stream.write_all(b"abc").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "cba");
    });
}

#[test]
fn server_that_shut_down_writing_still_receives() {
    in_namespace(|| {
        let engine = engine();
        let (sender, receiver) = std::sync::mpsc::channel();
        let server = serve(move |mut stream| {
            stream.write_all(b"go on").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut all = String::new();
            stream.read_to_string(&mut all).unwrap();
            sender.send(all).unwrap();
        });
        let (service, address) = service(&engine, Protocol::Tcp, &[server]);
        let mut stream = connect(address);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "go on");
        stream.write_all(b"after the end").unwrap();
        drop(stream);
        assert_eq!(receiver.recv().unwrap(), "after the end");
        wait_until("the connection ends", || service.figures().open == 0);
    });
}

#[test]
fn random_sizes_arrive_whole_both_ways_at_once() {
    in_namespace(|| {
        let engine = engine();
        let (service, address) = service(&engine, Protocol::Tcp, &[echo_server()]);
        let streams: Vec<_> = (1..=4_u64)
            .map(|seed| thread::spawn(move || through_echo(address, seed)))
            .collect();
        streams
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        wait_until("the connections end", || service.figures().open == 0);
        let figures = service.figures();
        assert_eq!(figures.bytes_in, figures.bytes_out);
    });
}

/// Sends some 20 MiB in pieces of random sizes, while what comes back is compared. The sizes make flows change between copying and splicing.
fn through_echo(address: SocketAddr, seed: u64) {
    let stream = connect(address);
    let data = pattern(20 << 20, seed);
    let mut sender = stream.try_clone().unwrap();
    let sent = data.clone();
    let writer = thread::spawn(move || {
        let mut numbers = Numbers(seed.wrapping_mul(0x9E37_79B9));
        let mut rest = sent.as_slice();
        while !rest.is_empty() {
            let most = if numbers.next().is_multiple_of(3) {
                1 << 20
            } else {
                3000
            };
            let size = (numbers.next() % most + 1) as usize;
            let (piece, after) = rest.split_at(size.min(rest.len()));
            sender.write_all(piece).unwrap();
            rest = after;
        }
        sender.shutdown(Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    (&stream).read_to_end(&mut back).unwrap();
    writer.join().unwrap();
    assert!(back == data, "stream {seed} was changed on its way");
}

#[test]
fn a_slow_reader_slows_the_sender_and_costs_little() {
    in_namespace(|| {
        let engine = engine();
        let size = 64 << 20;
        let server = serve(move |mut stream| {
            stream.write_all(&pattern(size, 7)).unwrap();
        });
        let (service, address) = service(&engine, Protocol::Tcp, &[server]);
        let mut stream = connect(address);
        // It reads nothing until no more moves.
        let before = Cell::new(u64::MAX);
        wait_until("the flow comes to rest", || {
            thread::sleep(Duration::from_millis(100));
            let moved = service.figures().bytes_out;
            moved > 0 && moved == before.replace(moved)
        });
        assert!(
            service.figures().bytes_out < (size / 2) as u64,
            "nothing held it back"
        );
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        assert!(all == pattern(size, 7));
    });
}

#[test]
fn both_families_and_an_address_that_comes_later() {
    in_namespace(|| {
        let engine = engine();
        let server = named_server();
        let (service, _) = service(&engine, Protocol::Tcp, &[server]);
        let v6 = service.listen("[::1]:0".parse::<SocketAddr>().unwrap().into());
        assert_eq!(ask(v6.unwrap()).unwrap(), server.port());

        let later: SocketAddr = "198.51.100.7:8080".parse().unwrap();
        let error = service.listen(later.into()).unwrap_err();
        assert!(error.to_string().contains("198.51.100.7:8080"), "{error}");
        let listen = Listen {
            address: Address::At(later),
            presence: AddressPresence::Later,
            gate: None,
        };
        service.listen(listen).unwrap();
        run("ip address add 198.51.100.7/32 dev lo");
        assert_eq!(ask(later).unwrap(), server.port());
    });
}

#[test]
fn a_client_that_vanishes_leaves_nothing() {
    in_namespace(|| {
        let engine = engine();
        let server = serve(|mut stream| {
            let result = stream.read(&mut [0; 16]);
            assert_eq!(result.unwrap_err().kind(), ErrorKind::ConnectionReset);
        });
        let (service, address) = service(&engine, Protocol::Tcp, &[server]);
        let stream: TcpStream = connect(address);
        wait_until("it is open", || {
            service.endpoint_figures()[0].figures.open == 1
        });
        let socket = socket2::Socket::from(stream);
        socket.set_linger(Some(Duration::ZERO)).unwrap();
        drop(socket);
        wait_until("it is closed", || service.figures().open == 0);
    });
}

#[test]
fn a_server_that_speaks_first_is_not_kept_waiting() {
    in_namespace(|| {
        let engine = engine();
        let server = named_server();
        let (_service, address) = service(&engine, Protocol::Tcp, &[server]);
        // Were the last packet of the handshake held back for bytes of the client, none would take less than a fifth of a second.
        let fastest = (0..40).map(|_| {
            let start = Instant::now();
            assert_eq!(ask(address).unwrap(), server.port());
            start.elapsed()
        });
        let fastest = fastest.min().unwrap();
        assert!(fastest < Duration::from_millis(150), "{fastest:?}");
    });
}
