//! Health checks of single Services.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferrovia::kube_event::Regarding;
use ferrovia::serve::health::{Health, Moment};
use ferrovia::serve::http::{ServiceChecks, WantedChecks};
use ferrovia_core::desired::{HealthCheck, HealthChecks, NodePortAddresses};
use ferrovia_core::family::Family;
use ferrovia_core::model::ServiceKey;

use crate::client::{connect, get, request, try_request};
use crate::support::{
    Board, Runtime, allow_many_descriptors, free_port, health, own_ip, wait_until,
};

const MINUTE: Duration = Duration::from_secs(60);

struct World {
    _runtime: Runtime,
    checks: ServiceChecks,
    health: Arc<Health>,
    board: Board,
}

fn world(timeout: Duration) -> World {
    let runtime = Runtime::start();
    let (health, board) = (health(timeout), Board::default());
    World {
        checks: ServiceChecks::start(&runtime.handle, Arc::clone(&health), board.noticeboard()),
        _runtime: runtime,
        health,
        board,
    }
}

fn key(name: &str) -> ServiceKey {
    ServiceKey::new("shop", name).unwrap()
}

fn wanted(ips: &[&str], checks: &[(&str, u16, u32)]) -> WantedChecks {
    let check = |(name, port, local_endpoints): &(&str, u16, u32)| {
        let check = HealthCheck {
            port: *port,
            local_endpoints: *local_endpoints,
        };
        (key(name), check)
    };
    WantedChecks {
        addresses: only(ips),
        checks: Arc::new(checks.iter().map(check).collect()),
    }
}

fn only(ips: &[&str]) -> NodePortAddresses {
    NodePortAddresses::Only(ips.iter().map(|ip| ip.parse().unwrap()).collect())
}

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

fn is_open(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_ok()
}

fn wait_for_weight(address: SocketAddr, weight: &str) {
    wait_until(&format!("{address} has weight {weight}"), || {
        try_request(address, "GET", "/", &[], "")
            .is_ok_and(|reply| reply.header("x-load-balancing-endpoint-weight") == weight)
    });
}

#[test]
fn a_check_says_how_many_local_endpoints_there_are() {
    let ip = &*own_ip(10);
    let (world, port) = (world(MINUTE), free_port(ip));
    world
        .checks
        .update(Family::V4, wanted(&[ip], &[("web", port, 3)]));
    wait_for_weight(at(ip, port), "3");
    for (method, path) in [("GET", "/"), ("POST", "/any/path?at=all")] {
        let reply = request(at(ip, port), method, path, &[], "");
        assert_eq!(reply.code, 200);
        assert_eq!(reply.header("content-type"), "application/json");
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
        assert_eq!(
            reply.body,
            "{\n\t\"service\": {\n\t\t\"namespace\": \"shop\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": 3,\n\t\"serviceProxyHealthy\": true\n}"
        );
    }
    world
        .checks
        .update(Family::V4, wanted(&[ip], &[("web", port, 0)]));
    wait_for_weight(at(ip, port), "0");
    let reply = get(at(ip, port), "/");
    assert_eq!(reply.code, 503);
    assert!(
        reply
            .body
            .contains("\"localEndpoints\": 0,\n\t\"serviceProxyHealthy\": true"),
        "{reply:?}"
    );
}

#[test]
fn an_unhealthy_proxy_fails_with_the_real_count() {
    let ip = &*own_ip(11);
    let (world, port) = (world(Duration::ZERO), free_port(ip));
    world
        .checks
        .update(Family::V4, wanted(&[ip], &[("web", port, 2)]));
    wait_for_weight(at(ip, port), "2");
    world.health.updated(Family::V6, Moment::now());
    world.health.queued(Family::V6, Moment::now());
    let reply = get(at(ip, port), "/");
    assert_eq!(reply.code, 503);
    assert_eq!(reply.header("x-load-balancing-endpoint-weight"), "2");
    assert!(reply.body.contains("\"serviceProxyHealthy\": false"));
}

#[test]
fn listeners_follow_what_is_wanted() {
    let ip = &*own_ip(12);
    let (world, first, second) = (world(MINUTE), free_port(ip), free_port(ip));
    world
        .checks
        .update(Family::V4, wanted(&[ip], &[("web", first, 1)]));
    wait_for_weight(at(ip, first), "1");

    // A client that keeps its connection must not hear from a Service that is gone.
    let mut kept = connect(at(ip, first)).unwrap();
    kept.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    assert!(kept.read(&mut [0; 4096]).unwrap() > 0);

    world
        .checks
        .update(Family::V4, wanted(&[ip], &[("web", second, 2)]));
    wait_for_weight(at(ip, second), "2");
    wait_until("the old port is closed", || !is_open(at(ip, first)));
    // Ended or reset, but not left until it times out.
    kept.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
    let end = kept
        .read_to_end(&mut Vec::new())
        .map_err(|error| error.kind());
    assert!(
        matches!(end, Ok(_) | Err(ErrorKind::ConnectionReset)),
        "{end:?}"
    );

    // The port passes to another Service in one step.
    world
        .checks
        .update(Family::V4, wanted(&[ip], &[("api", second, 5)]));
    wait_for_weight(at(ip, second), "5");
    assert!(get(at(ip, second), "/").body.contains("\"name\": \"api\""));
    assert_eq!(world.board.notices(), []);

    world.checks.update(Family::V4, wanted(&[ip], &[]));
    wait_until("all are closed", || !is_open(at(ip, second)));
}

#[test]
fn they_listen_where_node_ports_do() {
    let (here, there) = (&*own_ip(13), &*own_ip(23));
    let (world, port) = (world(MINUTE), free_port(here));
    let web = [("web", port, 1)];
    world.checks.update(Family::V4, wanted(&[here], &web));
    wait_for_weight(at(here, port), "1");
    assert!(!is_open(at(there, port)));

    let (kept, connected) = (connect(at(here, port)).unwrap(), Instant::now());
    world
        .checks
        .update(Family::V4, wanted(&[here, there], &web));
    wait_for_weight(at(there, port), "1");
    kept.set_nonblocking(true).unwrap();
    let heard = (&kept).read(&mut [0; 1]).map_err(|error| error.kind());
    // Nobody waits for a client longer than ten seconds.
    let is_undisturbed = heard == Err(ErrorKind::WouldBlock);
    assert!(is_undisturbed || connected.elapsed() >= Duration::from_secs(10));

    world.checks.update(Family::V4, wanted(&[there], &web));
    wait_until("the first is closed", || !is_open(at(here, port)));
    assert!(is_open(at(there, port)));

    world.checks.update(Family::V4, wanted(&[], &web));
    wait_until("nothing matches", || !is_open(at(there, port)));
}

#[test]
fn each_family_has_its_own_count_on_the_same_port() {
    let world = world(MINUTE);
    let port = free_port("::");
    let any = |count| WantedChecks {
        addresses: NodePortAddresses::Any,
        ..wanted(&[], &[("web", port, count)])
    };
    world.checks.update(Family::V4, any(4));
    world.checks.update(Family::V6, any(6));
    wait_for_weight(at("127.0.0.1", port), "4");
    wait_for_weight(at("::1", port), "6");
    world.checks.update(Family::V4, wanted(&[], &[]));
    wait_until("IPv4 is closed", || !is_open(at("127.0.0.1", port)));
    assert!(is_open(at("::1", port)));
}

#[test]
fn reports_a_port_in_use_once_and_retries() {
    let ip = &*own_ip(14);
    let world = world(MINUTE);
    let taken = TcpListener::bind(at(ip, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let other = free_port(ip);
    let two = |n| wanted(&[ip], &[("api", other, n), ("web", port, n)]);
    world.checks.update(Family::V4, two(1));
    wait_for_weight(at(ip, other), "1");
    wait_until("the failure is told", || !world.board.notices().is_empty());
    let notice = world.board.notices().remove(0);
    assert_eq!(notice.regarding, Regarding::Service(key("web")));
    assert_eq!(
        (notice.reason, notice.action),
        ("FailedToStartServiceHealthcheck", "Listen")
    );
    world.checks.update(Family::V4, two(2));
    wait_for_weight(at(ip, other), "2");
    assert_eq!(world.board.notices().len(), 1, "not again");
    drop(taken);
    wait_for_weight(at(ip, port), "2");
}

#[test]
fn they_end_with_their_owner() {
    let ip = &*own_ip(15);
    let (world, port) = (world(MINUTE), free_port(ip));
    world
        .checks
        .update(Family::V4, wanted(&[ip], &[("web", port, 1)]));
    wait_for_weight(at(ip, port), "1");
    drop(world.checks);
    wait_until("it is closed", || !is_open(at(ip, port)));
}

#[test]
fn there_may_be_thousands() {
    allow_many_descriptors();
    let ip: IpAddr = own_ip(16).parse().unwrap();
    let world = world(MINUTE);
    let ports = 20_000..22_000;
    let checks: HealthChecks = ports
        .clone()
        .map(|port| {
            let check = HealthCheck {
                port,
                local_endpoints: 1,
            };
            (key(&format!("s{port}")), check)
        })
        .collect();
    let addresses = NodePortAddresses::Only(BTreeSet::from([ip]));
    world.checks.update(
        Family::V4,
        WantedChecks {
            addresses,
            checks: Arc::new(checks),
        },
    );
    // Another process may use one of these ports; then that is reported.
    let open = || {
        let open = ports.clone();
        open.filter(|port| is_open(SocketAddr::new(ip, *port)))
            .count()
    };
    wait_until("all are open", || {
        open() + world.board.notices().len() == ports.len()
    });
    assert!(open() > ports.len() / 2);
}
