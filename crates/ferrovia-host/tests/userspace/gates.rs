//! Clients that are distinguished by their address.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};

use ferrovia_host::userspace::{
    Address, AddressPresence, ConnectFailure, Engine, Gate, Listen, Options, Protocol, Service,
    Sources,
};
use ferrovia_lab::waiting::SOON;
use socket2::{Domain, Socket, Type};

use crate::support::{
    ANYWHERE, echo_server, engine, in_namespace, named_server, service, set_endpoints, udp_ask,
    udp_server, wait_until,
};

const FRIEND: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const OTHER_CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
/// Who calls the listeners of these tests from their own address.
const ITSELF: Ipv4Addr = Ipv4Addr::LOCALHOST;

fn sources(of: Ipv4Addr, itself: bool) -> Sources {
    let net = std::net::IpAddr::V4(of).into();
    Sources {
        nets: [net].into(),
        itself,
    }
}

fn only(of: Ipv4Addr, itself: bool) -> Option<Gate> {
    Some(Gate::new(vec![sources(of, itself)], None))
}

fn listen(service: &Service, gate: Option<Gate>) -> SocketAddr {
    let listen = Listen {
        address: Address::At(ANYWHERE),
        presence: AddressPresence::Here,
        gate,
    };
    service.listen(listen).unwrap()
}

fn connect_from(from: Ipv4Addr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect(&to.into())?;
    socket.set_read_timeout(Some(SOON))?;
    Ok(socket.into())
}

/// Which named server answers.
fn ask_from(from: Ipv4Addr, to: SocketAddr) -> Result<u16, ErrorKind> {
    let mut port = [0; 2];
    connect_from(from, to)
        .and_then(|mut stream| stream.read_exact(&mut port))
        .map_err(|error| error.kind())?;
    Ok(u16::from_be_bytes(port))
}

fn datagrams_from(from: Ipv4Addr, to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((from, 0)).unwrap();
    socket.connect(to).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    socket
}

#[test]
fn who_is_not_let_in_is_cut_off_and_reaches_no_endpoint() {
    in_namespace(|| {
        let engine = engine();
        let server = named_server();
        let service = engine.service("test", Protocol::Tcp);
        set_endpoints(&service, &[server]);
        let gated = listen(&service, only(FRIEND, false));
        let open = listen(&service, None);
        assert_eq!(ask_from(FRIEND, gated), Ok(server.port()));
        for client in [OTHER_CLIENT, ITSELF] {
            assert_eq!(ask_from(client, gated), Err(ErrorKind::ConnectionReset));
            assert_eq!(ask_from(client, open), Ok(server.port()), "not its gate");
        }
        let figures = service.figures();
        assert_eq!(figures.failures(ConnectFailure::NotAllowed), 2);
        assert_eq!(figures.connections, 3);
        assert_eq!(service.endpoint_figures()[0].figures.connections, 3);
    });
}

#[test]
fn another_gate_holds_for_those_who_come_next() {
    in_namespace(|| {
        let engine = engine();
        let service = engine.service("test", Protocol::Tcp);
        set_endpoints(&service, &[echo_server()]);
        let address = listen(&service, only(FRIEND, false));
        let mut kept = connect_from(FRIEND, address).unwrap();
        let echo = |stream: &mut TcpStream| {
            stream.write_all(b"word").unwrap();
            let mut word = [0; 4];
            stream.read_exact(&mut word).unwrap();
            assert_eq!(&word, b"word");
        };
        echo(&mut kept);
        assert!(service.set_gate(address, only(OTHER_CLIENT, true)));
        echo(&mut kept);
        assert_eq!(ask_from(FRIEND, address), Err(ErrorKind::ConnectionReset));
        for client in [OTHER_CLIENT, ITSELF] {
            echo(&mut connect_from(client, address).unwrap());
        }
        assert!(service.set_gate(address, None));
        echo(&mut connect_from(FRIEND, address).unwrap());
        assert!(!service.set_gate(ANYWHERE, None), "nothing listens there");
    });
}

#[test]
fn some_clients_are_another_services() {
    in_namespace(|| {
        let engine = engine();
        let (own, others) = (named_server(), named_server());
        let (other, _) = service(&engine, Protocol::Tcp, &[others]);
        let service = engine.service("test", Protocol::Tcp);
        set_endpoints(&service, &[own]);
        let elsewhere = Some((sources(FRIEND, true), &other));
        let address = listen(&service, Some(Gate::new(Vec::new(), elsewhere)));
        assert_eq!(ask_from(OTHER_CLIENT, address), Ok(own.port()));
        assert_eq!(ask_from(FRIEND, address), Ok(others.port()));
        assert_eq!(ask_from(ITSELF, address), Ok(others.port()));
        let (figures, of_other) = (service.figures(), other.figures());
        assert_eq!((figures.connections, of_other.connections), (1, 2));
        // Its endpoints are those it has now.
        set_endpoints(&other, &[own]);
        assert_eq!(ask_from(FRIEND, address), Ok(own.port()));
    });
}

#[test]
fn rejected_datagrams_take_no_flow() {
    in_namespace(|| {
        let engine = Engine::start(&Options {
            threads: Some(1),
            most_flows: Some(1),
            ..Options::default()
        })
        .unwrap();
        let server = udp_server();
        let service = engine.service("test", Protocol::Udp);
        service.set_idle_timeout(SOON);
        set_endpoints(&service, &[server]);
        let address = listen(&service, only(FRIEND, false));
        let friend = datagrams_from(FRIEND, address);
        assert_eq!(udp_ask(&friend).unwrap(), server.port());
        for client in [OTHER_CLIENT, ITSELF] {
            datagrams_from(client, address).send(b"who").unwrap();
        }
        let ignored = || service.figures().failures(ConnectFailure::NotAllowed);
        wait_until("both were ignored", || ignored() == 2);
        assert_eq!(udp_ask(&friend).unwrap(), server.port());
        let figures = service.figures();
        assert_eq!((figures.connections, figures.open), (1, 1));
        assert_eq!(figures.failures(ConnectFailure::Limit), 0);
    });
}
