//! The whole of it over loopback, where Linux has every address of 127.0.0.0/8 already, so that a stand-in for `netsh` will do.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use ferrovia_core::desired::Endpoint;
use ferrovia_core::family::Family;
use ferrovia_core::model::{PortKey, Protocol, ServiceKey, TrafficPolicy};
use ferrovia_core::plan::userspace::{ProxyChange, ProxyListen, ProxyName, ProxySpec};
use ferrovia_lab::waiting::wait_until;

use super::netsh::tests::FakeNetsh;
use super::*;

const IDLE: Duration = Duration::from_secs(30);

pub(super) fn plan(
    new_addresses: &[IpAddr],
    proxies: Vec<ProxyChange>,
    old_addresses: &[IpAddr],
) -> UserspacePlan {
    let mut plan = UserspacePlan::default();
    plan.new_addresses = new_addresses.to_vec();
    plan.proxies = proxies;
    plan.old_addresses = old_addresses.to_vec();
    plan
}

pub(super) fn name(name: &str, protocol: Protocol) -> ProxyName {
    ProxyName {
        key: PortKey {
            service: ServiceKey::new("default", name).unwrap(),
            name: "".into(),
            protocol,
        },
        policy: TrafficPolicy::Cluster,
    }
}

pub(super) fn proxy(name: ProxyName, at: &[SocketAddr], endpoints: &[SocketAddr]) -> ProxySpec {
    let endpoint = |at: &SocketAddr| Endpoint {
        ip: at.ip(),
        port: at.port(),
        weight: 1,
        is_local: false,
    };
    ProxySpec {
        name,
        listen: ProxyListen::At(at.to_vec()),
        client_filters: BTreeMap::new(),
        endpoints: endpoints.iter().map(endpoint).collect(),
        affinity: None,
    }
}

/// A free port of an address that no other test uses.
pub(super) fn free(ip: [u8; 4]) -> SocketAddr {
    let holder = TcpListener::bind((Ipv4Addr::from(ip), 0)).unwrap();
    holder.local_addr().unwrap()
}

/// A server that reads until the client closes, then returns its name and what it has read.
pub(super) fn server(name: &'static str) -> SocketAddr {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        for client in socket.incoming() {
            let mut client = client.unwrap();
            let mut received = Vec::new();
            if client.read_to_end(&mut received).is_ok() {
                // A client that has gone needs no answer.
                let _ = client.write_all(&[name.as_bytes(), &received].concat());
            }
        }
    });
    address
}

/// Says something to its end, and listens for the answer.
pub(super) fn ask(at: SocketAddr, text: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(at)?;
    stream.write_all(text.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// A program that is being started just now may have a copy of whatever had the port before, so it may take more than one try.
fn wait_until_served(applier: &mut WinuserspaceApplier, at: SocketAddr) {
    wait_until("the service answers", || {
        applier.tidy().unwrap();
        ask(at, "?").is_ok_and(|answer| answer == "a?")
    });
}

#[test]
fn a_plan_is_carried_out_in_order() {
    // With each change it notes whether anyone listens on 127.96.0.1, as the kernel writes that. A program that is being started just now may
    // have copies of sockets, so it looks again for a while before it reports it.
    let netsh = FakeNetsh::after(
        r#"
listens() { grep -qE ' 0100607F:[0-9A-F]{4} 00000000:0000 0A ' /proc/net/tcp; }
if [ "$3" != show ]; then
    for _ in $(seq 100); do listens || break; sleep 0.05; done
    if listens; then who=proxy; else who=nothing; fi
    echo "$3 while $who listens" >> "$(dirname "$0")/order"
fi"#,
    );
    let mut applier = WinuserspaceApplier::new(netsh.interface(Family::V4), IDLE);
    let at = free([127, 96, 0, 1]);
    let web = name("web", Protocol::Tcp);
    let opened = ProxyChange::Set(proxy(web.clone(), &[at], &[server("a")]));
    let coming = plan(&[at.ip()], vec![opened], &[]);
    assert!(applier.apply(&coming).unwrap());
    wait_until_served(&mut applier, at);
    let observed = applier.observe().unwrap();
    assert_eq!(observed.addresses, [at.ip()]);
    assert_eq!(observed.open.keys().collect::<Vec<_>>(), [&web]);
    let going = plan(&[], vec![ProxyChange::Close(web)], &[at.ip()]);
    assert!(applier.apply(&going).unwrap());
    let observed = applier.observe().unwrap();
    assert!(observed.addresses.is_empty() && observed.open.is_empty());
    assert_eq!(
        netsh.lines("order"),
        ["add while nothing listens", "delete while nothing listens"]
    );
}

#[test]
fn an_address_that_is_refused_keeps_no_other_service_from_being_served() {
    let netsh = FakeNetsh::honest();
    let (refused, at) = (free([127, 96, 0, 2]), free([127, 96, 0, 3]));
    netsh.write("refused", &format!("{}\n", refused.ip()));
    let mut applier = WinuserspaceApplier::new(netsh.interface(Family::V4), IDLE);
    let web = proxy(name("web", Protocol::Tcp), &[at], &[server("a")]);
    let plan = plan(&[refused.ip(), at.ip()], vec![ProxyChange::Set(web)], &[]);
    let error = applier.apply(&plan).unwrap_err();
    assert!(error.to_string().contains("address=127.96.0.2"), "{error}");
    wait_until_served(&mut applier, at);
}

#[test]
fn retries_a_port_that_is_in_use() {
    let netsh = FakeNetsh::honest();
    let mut applier = WinuserspaceApplier::new(netsh.interface(Family::V4), IDLE);
    let holder = TcpListener::bind("127.96.0.4:0").unwrap();
    let taken = holder.local_addr().unwrap();
    let at = free([127, 96, 0, 5]);
    let web = proxy(name("web", Protocol::Tcp), &[taken, at], &[server("a")]);
    let plan = plan(&[], vec![ProxyChange::Set(web)], &[]);
    assert!(!applier.apply(&plan).unwrap());
    wait_until_served(&mut applier, at);
    assert_eq!(applier.leftovers_after(), Some(RETRY));
    applier.tidy().unwrap();
    assert_eq!(applier.leftovers_after(), Some(RETRY));
    drop(holder);
    wait_until_served(&mut applier, taken);
    assert_eq!(applier.leftovers_after(), None);
}
