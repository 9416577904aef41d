//! Connections through the daemon itself: the userspace mode with rules and without, and node ports on loopback in nftables mode.

use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;
use std::time::Duration;

use ferrovia_lab::daemon::manifests::{service, web};
use ferrovia_lab::daemon::{OWNER_TABLE, TestNode, parse_flows};
use ferrovia_lab::waiting::wait;
use ferrovia_lab::{Role, Session};

use crate::FERROVIA;

/// A port that was taken is tried again now and then.
const NEXT_TRY: Duration = Duration::from_secs(180);

/// What every endpoint sees in this mode is the node.
const SERVED: &str = "
pod-c > 10.96.0.10:80 => 10.244.2.10:8080 masq
node > 10.96.0.10:80 => 10.244.2.10:8080 masq
outside > 198.51.100.10:30080 => 10.244.2.10:8080 masq
node > 127.0.0.1:30080 => 10.244.2.10:8080 masq
pod-c > [fd00:10:96::a]:80 => [fd00:10:244:2::10]:8080 masq
node > [fd00:10:96::a]:80 => [fd00:10:244:2::10]:8080 masq
outside > [2001:db8:51::10]:30080 => [fd00:10:244:2::10]:8080 masq
node > [::1]:30080 => [fd00:10:244:2::10]:8080 masq";

/// A node whose kubelet uses the nft tools.
fn node() -> TestNode {
    let node = TestNode::new(FERROVIA);
    let word = ["-t", "mangle", "-N", "KUBE-IPTABLES-HINT"];
    node.on_node("iptables-nft", &word);
    node
}

fn in_mode(node: &TestNode, mode: &str) -> Command {
    let mut command = node.run_command();
    command.arg(format!("--proxy-mode={mode}"));
    command
}

fn start(node: &TestNode, command: Command) {
    node.spawn(command);
    node.wait_until_ready();
}

/// The rules that mention portals.
fn portals(node: &TestNode) -> String {
    let saved = node.on_node("iptables-nft-save", &[]) + &node.on_node("ip6tables-nft-save", &[]);
    let ours = saved
        .lines()
        .filter(|line| line.contains("KUBE-PORTALS-") || line.contains("KUBE-NODEPORT-"));
    ours.collect::<Vec<_>>().join("\n")
}

/// A Service of datagrams.
fn udp(name: &str, number: u32, node_port: u32) -> String {
    service(name, number, node_port, &["2.10"])
        .replace("port: 80,", "port: 80, protocol: UDP,")
        .replace("port: 8080", "port: 8080, protocol: UDP")
}

/// The port that the proxy of the only TCP service listens on, for IPv4.
fn proxy_port(node: &TestNode) -> String {
    let rules = node.on_node("iptables-nft", &["-t", "nat", "-S", "KUBE-PORTALS-HOST"]);
    let mut of_tcp = rules.lines().filter(|rule| rule.contains("-p tcp"));
    let port = of_tcp.find_map(|rule| {
        let (_, to) = rule.split_once("--to-destination ")?;
        Some(to.split_once(':')?.1.trim().to_owned())
    });
    port.unwrap_or_else(|| panic!("no rule leads to a port:\n{rules}"))
}

#[test]
fn portals_come_back_after_a_restart() {
    let node = node();
    node.write("web.yaml", &web(&["2.10"]));
    let ranged = || {
        let mut command = in_mode(&node, "userspace");
        command.arg("--proxy-port-range=40000-40003");
        command
    };
    start(&node, ranged());
    node.expect(SERVED);
    node.write("dns.yaml", &udp("dns", 53, 30053));
    node.expect_soon("pod-c > 10.96.0.53:80/udp => 10.244.2.10:8080 masq");
    let mut session = Session::new(&node.world);
    let mut run = |flows: &str| session.run(parse_flows(flows).steps[0].flows(&["userspace"]));
    assert_eq!(
        run("hold kept pod-c > 10.96.0.53:80/udp"),
        Vec::<String>::new()
    );
    // Somebody else's connections to a proxy's own port are not let in: it might be closed to them by source ranges.
    node.expect(&format!(
        "outside > 198.51.100.10:{} => dropped",
        proxy_port(&node)
    ));
    node.stop(libc::SIGTERM);
    start(&node, ranged());
    node.expect(SERVED);
    // A client that knows nothing of all this goes on sending from its socket, which the kernel remembers as leading to the old port.
    wait(|| match run("check kept") {
        problems if problems.is_empty() => Ok(()),
        problems => Err(format!("{problems:?}\n{}", node.log())),
    });
    node.remove("dns.yaml");
    node.expect_soon("outside > 198.51.100.10:30053/udp => refused");
    // Cluster IP and node port, from elsewhere and from the node, in two families.
    wait(|| match portals(&node) {
        rules if rules.matches("-j DNAT").count() == 8 => Ok(()),
        rules => Err(rules),
    });
    node.write("web.yaml", &web(&["2.11"]));
    node.expect_soon("pod-c > 10.96.0.10:80 => 10.244.2.11:8080 masq");
    node.remove("web.yaml");
    node.expect_soon("outside > 198.51.100.10:30080 => refused");
}

#[test]
fn serves_other_services_when_all_proxy_ports_are_in_use() {
    let node = node();
    node.write("a.yaml", &web(&["2.10"]));
    let mut command = in_mode(&node, "userspace");
    command.args(["--proxy-port-range=40000", "--iptables-sync-period=1s"]);
    start(&node, command);
    node.expect(SERVED);
    // Both would need the one port there is.
    node.write("b.yaml", &service("more", 11, 30081, &["2.11"]));
    node.wait_for_log("all ports from 40000 to 40000 are taken");
    assert!(node.log().contains("default/more"), "{}", node.log());
    node.expect(SERVED);
    node.remove("a.yaml");
    let freed = "pod-c > 10.96.0.11:80 => 10.244.2.11:8080 masq";
    node.expect_within(NEXT_TRY, freed);
}

#[test]
fn from_the_kernels_modes_and_back() {
    let node = node();
    node.write("web.yaml", &web(&["2.10"]));
    start(&node, in_mode(&node, "iptables"));
    let gone = |what: fn(&TestNode) -> String| {
        wait(|| match what(&node) {
            left if left.is_empty() => Ok(()),
            left => Err(left),
        });
    };
    for _ in 0..2 {
        node.stop(libc::SIGTERM);
        start(&node, in_mode(&node, "userspace"));
        gone(|node| {
            let saved = node.on_node("iptables-nft-save", &[]);
            let services = saved.lines().filter(|line| line.contains("KUBE-SVC-"));
            let tables = node.on_node("nft", &["list", "tables"]);
            let is_ours = |line: &&str| line.contains("ferrovia") && !OWNER_TABLE.contains(*line);
            let tables = tables.lines().filter(is_ours);
            services.chain(tables).collect::<Vec<_>>().join("\n")
        });
        node.expect(SERVED);
        node.stop(libc::SIGTERM);
        start(&node, in_mode(&node, "nftables"));
        gone(portals);
        node.expect("pod-c > 10.96.0.10:80 => 10.244.2.10:8080");
        node.stop(libc::SIGTERM);
        start(&node, in_mode(&node, "userspace"));
        node.stop(libc::SIGTERM);
        start(&node, in_mode(&node, "iptables"));
        gone(portals);
        node.expect("pod-c > 10.96.0.10:80 => 10.244.2.10:8080");
    }
}

#[test]
fn bound_portals_need_no_rules() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["2.10"]));
    let bound = || {
        let mut command = in_mode(&node, "userspace");
        command.arg("--userspace-portals=bind");
        command
    };
    let addresses = || node.on_node("ip", &["-o", "address", "show"]);
    start(&node, bound());
    node.expect(SERVED);
    assert_eq!(portals(&node), "");
    assert!(addresses().contains("10.96.0.10/32"), "{}", addresses());
    // Node ports follow the node's addresses, and those of services are none of them.
    node.on_node("ip", &["address", "add", "198.51.100.12/32", "dev", "lo"]);
    node.expect_soon("node > 198.51.100.12:30080 => 10.244.2.10:8080 masq");
    node.expect("pod-c > 10.96.0.10:30080 => refused");
    // The addresses exist already, and a closed port is refused.
    node.stop(libc::SIGKILL);
    node.expect("pod-c > 10.96.0.10:80 => refused");
    node.write("web.yaml", &service("web", 12, 30080, &["2.10"]));
    start(&node, bound());
    node.expect("pod-c > 10.96.0.12:80 => 10.244.2.10:8080 masq");
    assert!(!addresses().contains("10.96.0.10/"), "{}", addresses());
    node.remove("web.yaml");
    wait(|| match addresses() {
        left if left.contains("10.96.0.12/") => Err(left),
        _ => Ok(()),
    });
    node.stop(libc::SIGTERM);
    node.write("web.yaml", &web(&["2.10"]));
    start(&node, bound());
    node.stop(libc::SIGTERM);
    assert!(addresses().contains("10.96.0.10/32"), "{}", addresses());
    let cleaned = node.ferrovia().arg("cleanup").output();
    assert!(cleaned.expect("ferrovia can be started").status.success());
    for left in ["ferrovia0", "10.96.0.10/", "fd00:10:96::a/"] {
        assert!(!addresses().contains(left), "{}", addresses());
    }
}

#[test]
fn reports_and_retries_a_loopback_port_in_use() {
    let node = TestNode::new(FERROVIA);
    let taken = {
        let _inside = node
            .world
            .enter(Role::Node)
            .expect("the node can be entered");
        TcpListener::bind((Ipv4Addr::LOCALHOST, 30080)).expect("nobody has it")
    };
    node.write("web.yaml", &web(&["2.10"]));
    node.write("more.yaml", &service("more", 11, 30081, &["2.11"]));
    start(&node, in_mode(&node, "nftables"));
    node.wait_for_log("the node port does not answer on loopback");
    assert!(node.log().contains("default/web"), "{}", node.log());
    node.expect(
        "node > 127.0.0.1:30081 => 10.244.2.11:8080 masq
        node > [::1]:30080 => [fd00:10:244:2::10]:8080 masq
        outside > 198.51.100.10:30080 => 10.244.2.10:8080 masq",
    );
    drop(taken);
    let freed = "node > 127.0.0.1:30080 => 10.244.2.10:8080 masq";
    node.expect_within(NEXT_TRY, freed);
    // Datagrams too, and whatever has no endpoint is refused.
    node.write("web.yaml", &udp("web", 10, 30080));
    node.expect_soon(
        "node > 127.0.0.1:30080/udp => 10.244.2.10:8080 masq
        node > [::1]:30080/udp => [fd00:10:244:2::10]:8080 masq
        node > 127.0.0.1:30080 => refused",
    );
    node.remove("web.yaml");
    node.expect_soon("node > 127.0.0.1:30080/udp => refused");
}

#[test]
fn node_ports_do_not_answer_on_loopback_unless_asked_for() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["2.10"]));
    let mut command = in_mode(&node, "nftables");
    command.arg("--iptables-localhost-nodeports=false");
    start(&node, command);
    node.expect("node > 127.0.0.1:30080 => refused\nnode > [::1]:30080 => refused");
}

#[test]
fn reports_missing_tools() {
    let node = TestNode::new(FERROVIA);
    let mut command = in_mode(&node, "userspace");
    let output = command
        .env("PATH", node.folder())
        .output()
        .expect("ferrovia can be started");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("install iptables"), "{said}");
}

#[test]
fn reports_a_missing_interface() {
    let node = TestNode::new(FERROVIA);
    let mut command = in_mode(&node, "userspace");
    command.args(["--userspace-portals=bind", "--userspace-interface=nowhere0"]);
    let output = command.output().expect("ferrovia can be started");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("cannot find interface nowhere0"), "{said}");
}

#[test]
fn rejects_once_in_userspace_mode() {
    let node = node();
    let mut command = in_mode(&node, "userspace");
    let output = command.arg("--once").output();
    let output = output.expect("ferrovia can be started");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("--once"), "{said}");
    assert_eq!(portals(&node), "");
}

#[test]
fn reports_and_retries_a_bind_portal_port_in_use() {
    let node = TestNode::new(FERROVIA);
    let taken = {
        let _inside = node
            .world
            .enter(Role::Node)
            .expect("the node can be entered");
        TcpListener::bind((Ipv4Addr::UNSPECIFIED, 30080)).expect("nobody has it")
    };
    node.write("web.yaml", &web(&["2.10"]));
    let mut command = in_mode(&node, "userspace");
    command.arg("--userspace-portals=bind");
    start(&node, command);
    node.wait_for_log("a port of this service is not proxied");
    node.expect("pod-c > 10.96.0.10:80 => 10.244.2.10:8080 masq");
    drop(taken);
    // Only what fails is tried again and again: what succeeds uses up ports.
    let freed = "outside > 198.51.100.10:30080 => 10.244.2.10:8080 masq";
    node.expect_within(NEXT_TRY, freed);
    node.expect(SERVED);
}
