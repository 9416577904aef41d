//! Ports that are open to everybody.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ferrovia_lab::Role;
use ferrovia_lab::daemon::TestNode;
use ferrovia_lab::daemon::manifests::web;
use ferrovia_lab::plain_http::request;

use crate::FERROVIA;

const HEALTH: &str = "198.51.100.10:10256";

/// CVE-2019-11248. The health port is public, for load balancers: it serves only health, whatever is enabled.
#[test]
fn the_health_port_shows_health_and_nothing_else() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["1.10"]));
    let mut command = node.run_command();
    command.args([
        "--healthz-bind-address=0.0.0.0:10256",
        "--metrics-bind-address=127.0.0.1:10249",
        "--profiling",
    ]);
    node.spawn(command);
    node.wait_until_ready();
    let address: SocketAddr = HEALTH.parse().unwrap();
    let _outside = node.world.enter(Role::Outside).unwrap();
    let code = |method, path| request(address, method, path, &[], "").code;
    assert_eq!(code("GET", "/healthz"), 200);
    for path in [
        "/debug/pprof/",
        "/debug/pprof/cmdline",
        "/debug/flags/v",
        "/metrics",
        "/configz",
        "/flagz",
        "/statusz",
        "/api/v1/overview",
        "/",
    ] {
        assert_eq!(code("GET", path), 404, "{path}");
        assert_eq!(code("PUT", path), 404, "{path}");
    }
    // By default metrics and the page listen on loopback only.
    for port in [10249, 10247] {
        let open = TcpStream::connect(SocketAddr::new(address.ip(), port));
        assert!(open.is_err(), "{port} is open to the outside");
    }
}

/// Whoever may connect to the health port could otherwise keep the iptables mode from starting its tools.
#[test]
fn clients_that_say_nothing_leave_descriptors_to_the_rules() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["1.10"]));
    node.on_node(
        "iptables-nft",
        &["-w", "60", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"],
    );
    let mut command = node.world.exec(Role::Node, "prlimit");
    let run = node.run_command();
    command
        .arg("--nofile=64")
        .arg(run.get_program())
        .args(run.get_args());
    command.args([
        "--proxy-mode=iptables",
        "--healthz-bind-address=0.0.0.0:10256",
    ]);
    node.spawn(command);
    node.wait_until_ready();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| crowd(&node, &stop));
        for pods in [&["2.10"], &["1.11"], &["2.11"], &["1.10"]] {
            node.write("web.yaml", &web(pods));
            let (side, number) = pods[0].split_once('.').unwrap();
            node.expect_soon(&format!(
                "pod-c > 10.96.0.10:80 => 10.244.{side}.{number}:8080"
            ));
        }
        let log = node.log();
        stop.store(true, Ordering::Relaxed);
        assert!(!log.contains("Too many open files"), "{log}");
    });
}

/// Connects again and again, and keeps what it gets.
fn crowd(node: &TestNode, stop: &AtomicBool) {
    let _outside = node.world.enter(Role::Outside).unwrap();
    let address: SocketAddr = HEALTH.parse().unwrap();
    let mut kept = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        kept.extend(TcpStream::connect_timeout(
            &address,
            Duration::from_millis(100),
        ));
        if kept.len() > 400 {
            kept.drain(..200);
        }
        thread::sleep(Duration::from_millis(2));
    }
}
