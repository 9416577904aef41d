//! Endpoints that refuse, hang, reset in the middle, cannot be reached.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use ferrovia_host::userspace::{ConnectFailure, Protocol};
use socket2::{Domain, Socket, Type};

use crate::support::{
    ANYWHERE, ask, connect, engine, in_namespace, named_server, serve, service, wait_until,
};

/// An address that is bound, so that no other socket gets it, and where nothing listens.
fn refusing() -> (SocketAddr, Socket) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&ANYWHERE.into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (address, socket)
}

/// An endpoint that answers no call, because its queue is full; for as long as what is returned lives.
fn hanging() -> (SocketAddr, Socket, Vec<TcpStream>) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&ANYWHERE.into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut waiting = Vec::new();
    // The queue has room for one or two.
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
        waiting.push(stream);
    }
    (address, socket, waiting)
}

#[test]
fn another_endpoint_answers_for_one_that_refuses() {
    in_namespace(|| {
        let engine = engine();
        let ((bad, _held), good) = (refusing(), named_server());
        let (service, address) = service(&engine, Protocol::Tcp, &[bad, good]);
        for _ in 0..10 {
            assert_eq!(ask(address).unwrap(), good.port());
        }
        wait_until("all end", || service.figures().open == 0);
        let figures = service.figures();
        assert_eq!(figures.connections, 10);
        assert!(figures.retries >= 5, "{figures:?}");
        assert!(figures.failures(ConnectFailure::Refused) > 0, "{figures:?}");
        // A refusal that a busy machine keeps back for a quarter of a second counts as a timeout, and is followed by a retry as well.
        assert_eq!(figures.retries, figures.failures.iter().sum::<u64>());
        let endpoints = service.endpoint_figures();
        let of_endpoints = endpoints.iter().flat_map(|it| it.figures.failures);
        assert_eq!(of_endpoints.sum::<u64>(), figures.retries);
        assert_eq!(endpoints[0].figures.connections, 0);
        assert_eq!(endpoints[1].figures.connections, 10);
    });
}

#[test]
fn another_endpoint_answers_for_one_that_hangs_and_others_do_not_wait() {
    in_namespace(|| {
        let engine = engine();
        let (bad, _socket, _waiting) = hanging();
        let good = named_server();
        let (service, address) = service(&engine, Protocol::Tcp, &[bad, good]);
        let start = Instant::now();
        let delayed = std::thread::spawn(move || ask(address).unwrap());
        wait_until("it is dialled", || service.figures().connections == 1);
        // Its turn has come, so this one gets the good one at once, while the other still waits.
        assert_eq!(ask(address).unwrap(), good.port());
        assert_eq!(delayed.join().unwrap(), good.port());
        assert!(start.elapsed() >= Duration::from_millis(250));
        // A connection that a busy machine takes a quarter of a second for counts as a timeout as well.
        let figures = service.figures();
        assert!(
            figures.failures(ConnectFailure::TimedOut) >= 1,
            "{figures:?}"
        );
        assert_eq!(figures.retries, figures.failures(ConnectFailure::TimedOut));
    });
}

#[test]
fn client_gets_a_reset_when_all_endpoints_fail() {
    in_namespace(|| {
        let engine = engine();
        let (first, second) = (refusing(), refusing());
        let (service, address) = service(&engine, Protocol::Tcp, &[first.0, second.0]);
        assert_eq!(ask(address).unwrap_err().kind(), ErrorKind::ConnectionReset);
        // Four attempts, as kube-proxy makes.
        wait_until("it ends", || service.figures().open == 0);
        assert_eq!(service.figures().failures.iter().sum::<u64>(), 4);
        assert_eq!(service.figures().retries, 3);
    });
}

#[test]
fn client_gets_a_reset_without_endpoints() {
    in_namespace(|| {
        let engine = engine();
        let (service, address) = service(&engine, Protocol::Tcp, &[]);
        assert_eq!(ask(address).unwrap_err().kind(), ErrorKind::ConnectionReset);
        wait_until("it ends", || service.figures().open == 0);
        assert_eq!(service.figures().failures(ConnectFailure::NoEndpoints), 1);
    });
}

#[test]
fn no_way_to_an_endpoint_is_a_reason_to_try_another() {
    in_namespace(|| {
        let engine = engine();
        // There is only a loopback device.
        let far = "192.0.2.1:80".parse().unwrap();
        let good = named_server();
        let (service, address) = service(&engine, Protocol::Tcp, &[far, good]);
        for _ in 0..4 {
            assert_eq!(ask(address).unwrap(), good.port());
        }
        assert!(service.figures().failures(ConnectFailure::Unreachable) >= 2);
    });
}

#[test]
fn a_reset_in_the_middle_is_passed_on_after_what_was_said() {
    in_namespace(|| {
        let engine = engine();
        let heard_so_far = Arc::new(Barrier::new(2));
        let said = heard_so_far.clone();
        let server = serve(move |mut stream| {
            stream.read_exact(&mut [0; 5]).unwrap();
            stream.write_all(b"half of").unwrap();
            // A reset overtakes what is still on its way.
            said.wait();
            let socket = Socket::from(stream);
            socket.set_linger(Some(Duration::ZERO)).unwrap();
        });
        let (service, address) = service(&engine, Protocol::Tcp, &[server]);
        let mut stream = connect(address);
        stream.write_all(b"hello").unwrap();
        let mut received = [0; 7];
        stream.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"half of");
        heard_so_far.wait();
        let error = stream.read(&mut received).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        wait_until("it ends", || service.figures().open == 0);
        assert_eq!(service.figures().failures(ConnectFailure::Reset), 1);
    });
}
