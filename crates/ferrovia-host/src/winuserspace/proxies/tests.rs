//! Clients, proxies and endpoints over loopback.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::thread;

use ferrovia_core::plan::userspace::{ClientFilter, ClientSources};
use ferrovia_lab::waiting::{SOON, wait, wait_until};

use super::super::tests::{ask, free, name, proxy, server};
use super::*;

const IDLE: Duration = Duration::from_secs(30);

fn set(proxies: &mut WindowsProxies, proxy: ProxySpec) {
    proxies.change(&[ProxyChange::Set(proxy)]);
    wait_until_all_listen(proxies);
}

/// A program that is being started just now may have a copy of whatever had a port before, so it may take more than one try.
fn wait_until_all_listen(proxies: &mut WindowsProxies) {
    wait_until("all listen", || {
        proxies.retry();
        !proxies.is_lacking()
    });
}

/// A server of UDP that returns its name and what it was sent, at once.
fn datagram_server(name: &'static str) -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 100];
        while let Ok((length, client)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&[name.as_bytes(), &buffer[..length]].concat(), client);
        }
    });
    address
}

/// Sends a datagram; the answer, if one comes before long.
fn ask_once(socket: &UdpSocket, at: SocketAddr, text: &str) -> Option<String> {
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    socket.send_to(text.as_bytes(), at).unwrap();
    let mut buffer = [0; 100];
    let (length, _) = socket.recv_from(&mut buffer).ok()?;
    Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

/// The same until there is an answer.
fn ask_until_answered(socket: &UdpSocket, at: SocketAddr, text: &str) -> String {
    wait(|| ask_once(socket, at, text).ok_or_else(|| "no answer".to_owned()))
}

#[test]
fn connections_are_carried_both_ways_and_closed_one_way_at_a_time() {
    let mut proxies = WindowsProxies::new(IDLE);
    let at = free([127, 96, 1, 1]);
    let web = name("web", Protocol::Tcp);
    set(&mut proxies, proxy(web, &[at], &[server("a"), server("b")]));
    assert_eq!(ask(at, "1").unwrap(), "a1");
    assert_eq!(ask(at, "2").unwrap(), "b2");
    let long = "x".repeat(1 << 20);
    assert_eq!(ask(at, &long).unwrap(), format!("a{long}"));
}

#[test]
fn data_of_an_endpoint_that_closes_first_reaches_the_client() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let endpoint = listener.local_addr().unwrap();
    let (mut proxies, at) = (WindowsProxies::new(IDLE), free([127, 96, 1, 2]));
    set(
        &mut proxies,
        proxy(name("web", Protocol::Tcp), &[at], &[endpoint]),
    );
    let mut client = TcpStream::connect(at).unwrap();
    let (mut served, _) = listener.accept().unwrap();
    served.write_all(b"hello").unwrap();
    served.shutdown(std::net::Shutdown::Write).unwrap();
    let mut received = String::new();
    client.read_to_string(&mut received).unwrap();
    assert_eq!(received, "hello");
    // The other way is still open.
    client.write_all(b"thanks").unwrap();
    drop(client);
    let mut answer = String::new();
    served.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "thanks");
}

#[test]
fn an_endpoint_that_refuses_is_followed_by_another() {
    let (mut proxies, at) = (WindowsProxies::new(IDLE), free([127, 96, 1, 3]));
    let refusing = free([127, 96, 1, 4]);
    let web = name("web", Protocol::Tcp);
    set(
        &mut proxies,
        proxy(web.clone(), &[at], &[refusing, server("b")]),
    );
    assert_eq!(ask(at, "1").unwrap(), "b1");
    assert_eq!(ask(at, "2").unwrap(), "b2");
    set(&mut proxies, proxy(web, &[at], &[refusing]));
    let error = ask(at, "3").unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::NotConnected
        ),
        "{error:?}"
    );
}

#[test]
fn address_with_a_gate_gets_no_listener() {
    let (mut proxies, at) = (WindowsProxies::new(IDLE), free([127, 96, 1, 15]));
    let restricted = free([127, 96, 1, 16]);
    let mut web = proxy(
        name("web", Protocol::Tcp),
        &[at, restricted],
        &[server("a")],
    );
    let everyone = ClientSources {
        nets: ["0.0.0.0/0".parse().unwrap()].into(),
        itself: true,
    };
    let gate = ClientFilter {
        allowed: vec![everyone],
        inside: None,
    };
    web.client_filters.insert(restricted, gate);
    set(&mut proxies, web);
    assert_eq!(ask(at, "1").unwrap(), "a1");
    assert!(ask(restricted, "1").is_err());
}

#[test]
fn a_client_returns_to_its_endpoint_if_it_should() {
    let (mut proxies, at) = (WindowsProxies::new(IDLE), free([127, 96, 1, 5]));
    let mut web = proxy(
        name("web", Protocol::Tcp),
        &[at],
        &[server("a"), server("b")],
    );
    web.affinity = Some(10_800);
    set(&mut proxies, web);
    let answers: Vec<_> = (0..4).map(|_| ask(at, "").unwrap()).collect();
    assert_eq!(answers, ["a"; 4]);
}

#[test]
fn addresses_pass_from_one_proxy_to_another() {
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let mut proxies = WindowsProxies::new(IDLE);
        let (one, other) = (free([127, 96, 1, 6]), free([127, 96, 1, 7]));
        let endpoint = match protocol {
            Protocol::Udp => datagram_server("a"),
            _ => server("a"),
        };
        let (old, new) = (name("old", protocol), name("new", protocol));
        proxies.change(&[
            ProxyChange::Set(proxy(old.clone(), &[one], &[endpoint])),
            ProxyChange::Set(proxy(new.clone(), &[other], &[endpoint])),
        ]);
        wait_until_all_listen(&mut proxies);
        // The new one comes first in the plan, and gets what the old one gives up anyway.
        proxies.change(&[
            ProxyChange::Set(proxy(new.clone(), &[one], &[endpoint])),
            ProxyChange::Set(proxy(old.clone(), &[other], &[endpoint])),
        ]);
        wait_until_all_listen(&mut proxies);
        proxies.change(&[ProxyChange::Close(old), ProxyChange::Close(new)]);
        assert!(proxies.open().is_empty());
        if protocol == Protocol::Tcp {
            wait_until("nothing listens", || {
                [one, other]
                    .map(TcpStream::connect)
                    .iter()
                    .all(Result::is_err)
            });
        }
    }
}

#[test]
fn a_connection_outlives_its_listener() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let endpoint = listener.local_addr().unwrap();
    let (mut proxies, at) = (WindowsProxies::new(IDLE), free([127, 96, 1, 8]));
    let web = name("web", Protocol::Tcp);
    set(&mut proxies, proxy(web.clone(), &[at], &[endpoint]));
    let mut client = TcpStream::connect(at).unwrap();
    let (mut served, _) = listener.accept().unwrap();
    proxies.change(&[ProxyChange::Close(web)]);
    client.write_all(b"late").unwrap();
    drop(client);
    let mut received = String::new();
    served.read_to_string(&mut received).unwrap();
    assert_eq!(received, "late");
}

#[test]
fn no_more_clients_than_there_is_room_for() {
    let (mut proxies, at) = (WindowsProxies::new(IDLE), free([127, 96, 1, 9]));
    proxies.room = ConnectionLimit::of(1);
    set(
        &mut proxies,
        proxy(name("web", Protocol::Tcp), &[at], &[server("a")]),
    );
    let first = TcpStream::connect(at).unwrap();
    let mut second = TcpStream::connect(at).unwrap();
    // It is accepted after the first, which has the only place.
    second.set_read_timeout(Some(SOON)).unwrap();
    let refused = second.read(&mut [0]);
    assert!(
        matches!(&refused, Err(error) if error.kind() == ErrorKind::ConnectionReset),
        "{refused:?}"
    );
    drop(first);
    wait_until("there is room again", || {
        ask(at, "3").is_ok_and(|answer| answer == "a3")
    });
}

#[test]
fn datagrams_are_carried_and_follow_their_endpoints() {
    let (mut proxies, at) = (WindowsProxies::new(IDLE), free([127, 96, 1, 10]));
    let dns = name("dns", Protocol::Udp);
    let (a, b) = (datagram_server("a"), datagram_server("b"));
    set(&mut proxies, proxy(dns.clone(), &[at], &[a]));
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    assert_eq!(ask_until_answered(&client, at, "1"), "a1");
    set(&mut proxies, proxy(dns, &[at], &[b]));
    // Answers to earlier tries may still be under way.
    wait_until("it is led to the other one", || {
        ask_once(&client, at, "2").as_deref() == Some("b2")
    });
}

#[test]
fn a_client_of_datagrams_keeps_its_endpoint() {
    let (mut proxies, at) = (WindowsProxies::new(IDLE), free([127, 96, 1, 11]));
    let servers = [datagram_server("a"), datagram_server("b")];
    set(
        &mut proxies,
        proxy(name("dns", Protocol::Udp), &[at], &servers),
    );
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let answers: Vec<_> = (0..4)
        .map(|_| ask_until_answered(&client, at, ""))
        .collect();
    assert_eq!(answers, ["a"; 4]);
    let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    assert_eq!(ask_until_answered(&other, at, ""), "b");
}

#[test]
fn a_silent_client_makes_room_for_another() {
    let mut proxies = WindowsProxies::new(Duration::from_millis(200));
    proxies.room = ConnectionLimit::of(1);
    let at = free([127, 96, 1, 12]);
    let dns = proxy(name("dns", Protocol::Udp), &[at], &[datagram_server("a")]);
    set(&mut proxies, dns);
    let clients = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    for client in &clients {
        assert_eq!(ask_until_answered(client, at, "?"), "a?");
    }
}

#[test]
fn a_client_whose_endpoint_refuses_gets_another() {
    let (mut proxies, at) = (WindowsProxies::new(IDLE), free([127, 96, 1, 13]));
    let refusing = free([127, 96, 1, 14]);
    let mut dns = proxy(
        name("dns", Protocol::Udp),
        &[at],
        &[refusing, datagram_server("b")],
    );
    dns.affinity = Some(10_800);
    set(&mut proxies, dns);
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    assert_eq!(ask_until_answered(&client, at, "?"), "b?");
}
