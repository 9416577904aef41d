//! Datagrams: flows, their ends, bursts, and where answers come from.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use ferrovia_host::userspace::{ConnectFailure, Engine, Options, Protocol};

use crate::support::{
    ANYWHERE, engine, in_namespace, run, service, set_endpoints, udp_ask, udp_client, udp_server,
    wait_until,
};

const SOON: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(3600);

#[test]
fn a_client_keeps_its_flow_and_another_gets_its_own() {
    in_namespace(|| {
        let engine = engine();
        let servers = [udp_server(), udp_server()];
        let (service, address) = service(&engine, Protocol::Udp, &servers);
        service.set_idle_timeout(LONG);
        let clients = [udp_client(address, SOON), udp_client(address, SOON)];
        let first = [udp_ask(&clients[0]).unwrap(), udp_ask(&clients[1]).unwrap()];
        assert_ne!(first[0], first[1]);
        for _ in 0..20 {
            assert_eq!(udp_ask(&clients[0]).unwrap(), first[0]);
            assert_eq!(udp_ask(&clients[1]).unwrap(), first[1]);
        }
        let figures = service.figures();
        assert_eq!((figures.connections, figures.open), (2, 2));
        assert_eq!(figures.bytes_in, 2 * 21 * 3);
    });
}

#[test]
fn a_silent_flow_ends_and_the_next_may_go_elsewhere() {
    in_namespace(|| {
        let engine = engine();
        let servers = [udp_server(), udp_server()];
        let (service, address) = service(&engine, Protocol::Udp, &servers);
        // Longer than a server on a busy machine takes to answer.
        service.set_idle_timeout(Duration::from_secs(2));
        let client = udp_client(address, SOON);
        let first = udp_ask(&client).unwrap();
        wait_until("the flow ends", || service.figures().open == 0);
        assert_ne!(udp_ask(&client).unwrap(), first);
    });
}

/// A server that sends each client its port.
fn mirror() -> SocketAddr {
    let socket = UdpSocket::bind(ANYWHERE).unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        while let Ok((_, peer)) = socket.recv_from(&mut [0; 64]) {
            socket
                .send_to(peer.port().to_string().as_bytes(), peer)
                .ok();
        }
    });
    address
}

#[test]
fn the_socket_of_a_flow_that_ended_serves_another_client() {
    in_namespace(|| {
        let one_thread = Options {
            threads: Some(1),
            ..Options::default()
        };
        let engine = Engine::start(&one_thread).unwrap();
        let (service, address) = service(&engine, Protocol::Udp, &[mirror()]);
        service.set_idle_timeout(Duration::from_millis(300));
        let next_client = || {
            // An answer that comes after the end of its flow is lost.
            let ask = || udp_ask(&udp_client(address, Duration::from_secs(1))).ok();
            let port = (0..60).find_map(|_| ask()).unwrap();
            wait_until("the flow ends", || service.figures().open == 0);
            port
        };
        // A machine that is busy may take longer than sockets are kept.
        let mut before = next_client();
        let again = (0..20).any(|_| {
            let port = next_client();
            std::mem::replace(&mut before, port) == port
        });
        assert!(again, "each client had a socket of its own");
    });
}

#[test]
fn a_flow_ends_with_its_endpoint() {
    in_namespace(|| {
        let engine = engine();
        let servers = [udp_server(), udp_server()];
        let (service, address) = service(&engine, Protocol::Udp, &servers);
        service.set_idle_timeout(LONG);
        let clients = [udp_client(address, SOON), udp_client(address, SOON)];
        let first = clients.each_ref().map(|client| udp_ask(client).unwrap());
        let stays = servers.iter().find(|it| it.port() == first[1]).unwrap();
        set_endpoints(&service, &[*stays]);
        wait_until("one flow is left", || service.figures().open == 1);
        assert_eq!(
            clients.map(|client| udp_ask(&client).unwrap()),
            [first[1]; 2]
        );
        set_endpoints(&service, &[]);
        wait_until("no flow is left", || service.figures().open == 0);
    });
}

#[test]
fn a_burst_of_many_clients_arrives() {
    in_namespace(|| {
        let engine = engine();
        let (service, address) = service(&engine, Protocol::Udp, &[udp_server()]);
        service.set_idle_timeout(LONG);
        let clients: Vec<_> = (0..8_u8)
            .map(|number| thread::spawn(move || burst(address, number)))
            .collect();
        clients
            .into_iter()
            .for_each(|client| client.join().unwrap());
        assert_eq!(service.figures().connections, 8);
    });
}

/// Sends bursts of twenty datagrams and waits for all answers of each. They are short, so that a server that is slow to wake up has room for
/// those of all clients.
fn burst(address: SocketAddr, number: u8) {
    let client = udp_client(address, SOON);
    let mut buffer = [0; 2000];
    for round in 0..20 {
        for index in 0..20 {
            let datagram = vec![number; 1 + index + round];
            client.send(&datagram).unwrap();
        }
        for index in 0..20 {
            let len = client.recv(&mut buffer).unwrap();
            let start = buffer.iter().position(|byte| *byte == b':').unwrap() + 1;
            assert_eq!(len - start, 1 + index + round, "in order, and whole");
            assert!(buffer[start..len].iter().all(|byte| *byte == number));
        }
    }
}

#[test]
fn long_and_empty_datagrams_arrive_whole() {
    in_namespace(|| {
        let engine = engine();
        let (service, address) = service(&engine, Protocol::Udp, &[udp_server()]);
        service.set_idle_timeout(LONG);
        let client = udp_client(address, SOON);
        let mut buffer = vec![0; 65536];
        for len in [0, 1, 4096, 5000, 60000] {
            client.send(&vec![b'x'; len]).unwrap();
            let received = client.recv(&mut buffer).unwrap();
            let start = buffer.iter().position(|byte| *byte == b':').unwrap() + 1;
            assert_eq!(received - start, len);
        }
    });
}

#[test]
fn answers_come_from_the_address_that_was_asked() {
    in_namespace(|| {
        run("ip address add 198.51.100.1/32 dev lo");
        run("ip address add 198.51.100.2/32 dev lo");
        run("ip address add 2001:db8::1/128 dev lo nodad");
        // The kernel makes an IPv6 address usable in its own time.
        wait_until("the address is usable", || {
            receives_from_itself("[2001:db8::1]:0")
        });
        let engine = engine();
        let server = udp_server();
        for (any, asked) in [
            (
                "0.0.0.0:0",
                vec!["198.51.100.1", "198.51.100.2", "127.0.0.1"],
            ),
            ("[::]:0", vec!["2001:db8::1", "::1"]),
        ] {
            let service = engine.service("test", Protocol::Udp);
            service.set_idle_timeout(LONG);
            set_endpoints(&service, &[server]);
            let any: SocketAddr = any.parse().unwrap();
            let port = service.listen(any.into()).unwrap().port();
            // One socket for all, so that the source of each answer is seen.
            let socket = UdpSocket::bind(SocketAddr::new(any.ip(), 0)).unwrap();
            socket.set_read_timeout(Some(SOON)).unwrap();
            for ip in asked {
                let to = SocketAddr::new(ip.parse().unwrap(), port);
                socket.send_to(b"who", to).unwrap();
                let received = socket.recv_from(&mut [0; 64]);
                let (_, from) = received.unwrap_or_else(|error| panic!("{to} is silent: {error}"));
                assert_eq!(from, to);
            }
        }
    });
}

/// Whether a socket with this address can send to itself.
fn receives_from_itself(address: &str) -> bool {
    let receive = || {
        let socket = UdpSocket::bind(address)?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        socket.send_to(b"me", socket.local_addr()?)?;
        socket.recv(&mut [0; 2])
    };
    receive().is_ok()
}

#[test]
fn a_refused_flow_goes_elsewhere() {
    in_namespace(|| {
        let engine = engine();
        let closed = UdpSocket::bind(ANYWHERE).unwrap().local_addr().unwrap();
        let good = udp_server();
        let (service, address) = service(&engine, Protocol::Udp, &[closed, good]);
        service.set_idle_timeout(LONG);
        service.set_affinity(Some(LONG));
        let client = udp_client(address, SOON);
        client.send(b"lost").unwrap();
        wait_until("it is refused", || {
            service.figures().failures(ConnectFailure::Refused) == 1
        });
        assert_eq!(udp_ask(&client).unwrap(), good.port());
    });
}

#[test]
fn without_endpoints_datagrams_are_dropped_and_counted() {
    in_namespace(|| {
        let engine = engine();
        let (service, address) = service(&engine, Protocol::Udp, &[]);
        let client = udp_client(address, Duration::from_millis(50));
        let error = udp_ask(&client).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        wait_until("it is counted", || {
            service.figures().failures(ConnectFailure::NoEndpoints) == 1
        });
    });
}

#[test]
fn of_too_many_flows_the_oldest_goes() {
    in_namespace(|| {
        let engine = Engine::start(&Options {
            threads: Some(1),
            most_flows: Some(10),
            ..Options::default()
        })
        .unwrap();
        let (service, address) = service(&engine, Protocol::Udp, &[udp_server()]);
        service.set_idle_timeout(LONG);
        let clients: Vec<UdpSocket> = (0..30).map(|_| udp_client(address, SOON)).collect();
        for client in &clients {
            udp_ask(client).unwrap();
        }
        let figures = service.figures();
        assert_eq!((figures.open, figures.connections), (10, 30));
        assert_eq!(figures.failures(ConnectFailure::Limit), 20);
        // The last ones still have theirs.
        for client in &clients[20..] {
            udp_ask(client).unwrap();
        }
        assert_eq!(service.figures().connections, 30);
    });
}
