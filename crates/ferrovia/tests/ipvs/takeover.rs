//! What a kube-proxy of ipvs mode has left is taken over, and what it had made for services that are no more goes.

use std::fmt::Write as _;

use ferrovia_lab::Role;
use ferrovia_lab::daemon::answered_throughout;
use ferrovia_lab::daemon::manifests::web;
use ferrovia_lab::uml::suite::Test;
use ferrovia_lab::waiting::wait;

use crate::stage::{Stage, expect_alive};

pub(crate) const TESTS: [Test; 1] = [(
    "takeover: from a kube-proxy, and on to iptables",
    from_a_kube_proxy_and_on,
)];

const VIP: &str = "10.96.0.10:80";
const ANSWERS: &str = "pod-c > 10.96.0.10:80 => 10.244.2.10:8080
pod-c > [fd00:10:96::a]:80 => [fd00:10:244:2::10]:8080
outside > 198.51.100.10:30080 => 10.244.2.10:8080 masq";

/// Its sets: the end of the name, and the kind. IPv6's longest names are cut.
const SETS: [(&str, &str); 16] = [
    ("LOOP-BACK", "hash:ip,port,ip"),
    ("CLUSTER-IP", "hash:ip,port"),
    ("EXTERNAL-IP", "hash:ip,port"),
    ("EXTERNAL-IP-LOCAL", "hash:ip,port"),
    ("LOAD-BALANCER", "hash:ip,port"),
    ("LOAD-BALANCER-FW", "hash:ip,port"),
    ("LOAD-BALANCER-LOCAL", "hash:ip,port"),
    ("LOAD-BALANCER-SOURCE-IP", "hash:ip,port,ip"),
    ("LOAD-BALANCER-SOURCE-CIDR", "hash:ip,port,net"),
    ("NODE-PORT-TCP", "bitmap:port"),
    ("NODE-PORT-LOCAL-TCP", "bitmap:port"),
    ("NODE-PORT-UDP", "bitmap:port"),
    ("NODE-PORT-LOCAL-UDP", "bitmap:port"),
    ("NODE-PORT-SCTP-HASH", "hash:ip,port"),
    ("HEALTH-CHECK-NODE-PORT", "bitmap:port"),
    ("IPVS-IPS", "hash:ip"),
];
/// A service that we have too, one that is no more, and a node port.
const ENTRIES: &str = "add KUBE-CLUSTER-IP 10.96.0.10,tcp:80
add KUBE-CLUSTER-IP 10.96.0.77,tcp:80
add KUBE-NODE-PORT-TCP 30080
add KUBE-IPVS-IPS 10.96.0.10
add KUBE-IPVS-IPS 10.96.0.77
add KUBE-6-CLUSTER-IP fd00:10:96::a,tcp:80
add KUBE-6-CLUSTER-IP fd00:10:96::4d,tcp:80
add KUBE-6-IPVS-IPS fd00:10:96::a
add KUBE-6-IPVS-IPS fd00:10:96::4d
";
const SERVERS: &str = "-A -t 10.96.0.10:80 -s rr
-a -t 10.96.0.10:80 -r 10.244.2.10:8080 -m -w 1
-A -t 10.96.0.77:80 -s rr
-a -t 10.96.0.77:80 -r 10.244.2.11:8080 -m -w 1
-A -t 198.51.100.10:30080 -s rr
-a -t 198.51.100.10:30080 -r 10.244.2.10:8080 -m -w 1
-A -t [fd00:10:96::a]:80 -s rr
-a -t [fd00:10:96::a]:80 -r [fd00:10:244:2::10]:8080 -m -w 1
-A -t [fd00:10:96::4d]:80 -s rr
";
const ADDRESSES: [&str; 4] = [
    "10.96.0.10/32",
    "10.96.0.77/32",
    "fd00:10:96::a/128",
    "fd00:10:96::4d/128",
];
/// Its chains, as it writes them.
const RULES: &str =
    include_str!("../../../ferrovia-core/src/plan/ipvs/tests/worked/kube-proxy.restore");

/// Puts a kube-proxy's state into the node's kernel.
fn leave_kube_proxys_state(stage: &Stage) {
    let node = &stage.node;
    let mut sets = String::new();
    for (prefix, family) in [("KUBE-", "inet"), ("KUBE-6-", "inet6")] {
        for (end, kind) in SETS {
            let name: String = format!("{prefix}{end}").chars().take(31).collect();
            let shape = match kind {
                "bitmap:port" => "range 0-65535".to_owned(),
                _ => format!("family {family} hashsize 1024 maxelem 65536"),
            };
            let _ = writeln!(sets, "create {name} {kind} {shape}");
        }
    }
    node.feed("ipset", &["restore"], &(sets + ENTRIES));
    node.feed("iptables-legacy-restore", &["--noflush"], RULES);
    let conntrack = "echo 1 > /proc/sys/net/ipv4/vs/conntrack";
    node.on_node("sh", &["-c", conntrack]);
    node.feed("ipvsadm", &["-R"], SERVERS);
    node.on_node("ip", &["link", "add", "kube-ipvs0", "type", "dummy"]);
    for address in ADDRESSES {
        node.on_node("ip", &["addr", "add", address, "dev", "kube-ipvs0"]);
    }
}

fn from_a_kube_proxy_and_on() {
    let stage = Stage::new();
    let node = &stage.node;
    leave_kube_proxys_state(&stage);
    node.write("web.yaml", &web(&["2.10"]));
    let (mut kept, _) = stage.hold(VIP);

    answered_throughout(node, || stage.start("ipvs"));
    node.expect(ANSWERS);
    expect_alive(&mut kept);
    let addresses = node.on_node("ip", &["-o", "addr", "show", "dev", "kube-ipvs0"]);
    let sets = node.on_node("ipset", &["save"]);
    for stale in ["10.96.0.77", "fd00:10:96::4d"] {
        for state in [&stage.servers(), &addresses, &sets] {
            assert!(!state.contains(stale), "{state}");
        }
    }
    // Its sets are used as they are.
    let cluster_ips = "create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 65536";
    assert!(sets.contains(cluster_ips), "{sets}");
    expect_no_foreign_objects(&stage);

    // In another mode nothing of it stays, once its connections have ended.
    node.stop(libc::SIGTERM);
    answered_throughout(node, || stage.start("iptables"));
    expect_alive(&mut kept);
    drop(kept);
    let is_there = || {
        let mut look = node.world.exec(Role::Node, "ip");
        let looked = look.args(["link", "show", "kube-ipvs0"]).output().unwrap();
        looked.status.success()
    };
    wait(|| match is_there() {
        true => Err(format!("the device stays\nlog:\n{}", node.log())),
        false => Ok(()),
    });
    assert_eq!(stage.servers(), "");
    assert_eq!(node.on_node("ipset", &["list", "-n"]), "");
    node.expect(ANSWERS);
    expect_no_foreign_objects(&stage);
}

/// The log does not report our own or a kube-proxy's objects as foreign.
fn expect_no_foreign_objects(stage: &Stage) {
    let log = stage.node.log();
    assert!(!log.contains("somebody else"), "{log}");
}
