//! Flags and metrics of the mode.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use ferrovia_lab::uml::suite::Test;
use ferrovia_lab::waiting::wait;
use ferrovia_lab::{Pod, Role};

use crate::stage::{Manifest, Stage};

pub(crate) const TESTS: [Test; 3] = [
    ("settings: all of them", all_of_them),
    ("settings: local fallback", local_fallback),
    ("settings: connections are counted", connections_are_counted),
];

const VIP: &str = "10.96.0.10:80";

/// Kernel settings, below `/proc/sys/net/ipv4`, with what they become.
const KERNEL: [(&str, &str); 6] = [
    ("vs/conntrack", "1"),
    ("vs/expire_nodest_conn", "1"),
    ("vs/expire_quiescent_template", "1"),
    ("ip_forward", "1"),
    ("conf/all/arp_ignore", "1"),
    ("conf/all/arp_announce", "2"),
];

/// Virtual servers that would be ours by their address, and the one among them that is excluded.
const STALE: [&str; 2] = ["10.96.0.100:80", "[fd00:10:96::64]:80"];
const EXCLUDED: [&str; 2] = ["10.96.0.200:80", "[fd00:10:96::c8]:80"];

fn all_of_them() {
    let stage = Stage::new();
    let node = &stage.node;
    node.on_node("ip", &["link", "add", "kube-ipvs0", "type", "dummy"]);
    for at in STALE.into_iter().chain(EXCLUDED) {
        let at: std::net::SocketAddr = at.parse().unwrap();
        node.on_node(
            "ip",
            &["addr", "add", &at.ip().to_string(), "dev", "kube-ipvs0"],
        );
        node.on_node("ipvsadm", &["-A", "-t", &at.to_string(), "-s", "rr"]);
    }
    let manifest = Manifest {
        endpoints: &[(Pod::A, 1)],
        ..Manifest::default()
    };
    manifest.write(&stage);
    let mut command = stage.command("ipvs");
    command.args([
        "--ipvs-scheduler=lc",
        "--ipvs-strict-arp",
        "--ipvs-exclude-cidrs=10.96.0.128/25,fd00:10:96::80/121",
        "--ipvs-tcp-timeout=100s",
        "--ipvs-tcpfin-timeout=10s",
        "--ipvs-udp-timeout=20s",
    ]);
    stage.run(command);

    assert_eq!(stage.scheduler(VIP), "lc");
    let timeouts = node.on_node("ipvsadm", &["-L", "--timeout"]);
    assert_eq!(timeouts.trim(), "Timeout (tcp tcpfin udp): 100 10 20");
    for (setting, value) in KERNEL {
        let found = node.on_node("cat", &[&format!("/proc/sys/net/ipv4/{setting}")]);
        assert_eq!(found.trim(), value, "{setting}");
    }
    let servers = stage.servers();
    for at in STALE {
        assert!(!servers.contains(at), "{servers}");
    }
    for at in EXCLUDED {
        assert!(servers.contains(at), "{servers}");
    }
}

/// What comes from outside goes to endpoints elsewhere under its own address, where it would be dropped without the setting.
fn local_fallback() {
    let stage = Stage::new();
    let node = &stage.node;
    let manifest = Manifest {
        spec: "  externalTrafficPolicy: Local\n  externalIPs: [203.0.113.1]\n",
        endpoints: &[(Pod::X, 1)],
        ..Manifest::default()
    };
    manifest.write(&stage);
    stage.start("ipvs");
    node.expect("outside > 203.0.113.1:80 => dropped");
    node.stop(libc::SIGTERM);
    let mut command = stage.command("ipvs");
    command.arg("--ipvs-local-fallback");
    stage.run(command);
    node.expect("outside > 203.0.113.1:80 => 10.244.2.10:8080");
}

fn connections_are_counted() {
    let stage = Stage::new();
    let manifest = Manifest {
        endpoints: &[(Pod::A, 1)],
        ..Manifest::default()
    };
    manifest.write(&stage);
    stage.start("ipvs");
    stage.calls(VIP, 3);
    let labels = r#"ip_family="IPv4",namespace="default",port="",protocol="TCP",service="web""#;
    let series = [
        format!("ferrovia_service_connections_total{{{labels}}} 3"),
        format!("ferrovia_endpoint_connections_total{{endpoint=\"10.244.1.10:8080\",{labels}}} 3"),
    ];
    // The kernel sums its counters up every other second.
    wait(|| {
        let metrics = metrics(&stage);
        match series.iter().find(|line| !metrics.contains(*line)) {
            Some(missing) => Err(format!("no {missing} in\n{metrics}")),
            None => Ok(()),
        }
    });
}

/// The daemon's metrics.
fn metrics(stage: &Stage) -> String {
    let _inside = stage.node.world.enter(Role::Node).unwrap();
    let mut stream = TcpStream::connect("127.0.0.1:10249").unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
