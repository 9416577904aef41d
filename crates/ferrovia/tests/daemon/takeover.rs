//! kube-proxy was here before.

use std::time::Duration;

use ferrovia_lab::daemon::manifests::web;
use ferrovia_lab::daemon::{TestNode, answered_throughout};
use ferrovia_lab::waiting::wait;

use crate::FERROVIA;

/// kube-proxy's table for the same service, reduced to what it takes to serve it.
const KUBE_PROXY_TABLE: &str = "
table ip kube-proxy {
    map service-ips {
        type ipv4_addr . inet_proto . inet_service : verdict
        elements = { 10.96.0.10 . tcp . 80 : goto service-web }
    }
    chain service-web {
        meta l4proto tcp dnat to 10.244.2.10:8080
    }
    chain services {
        ip daddr . meta l4proto . th dport vmap @service-ips
    }
    chain nat-prerouting {
        type nat hook prerouting priority -100;
        jump services
    }
}
table ip6 kube-proxy { }
";

/// What the log says when something of a previous proxy was removed.
const TOOK_OVER: &str = "Took over from a previous proxy";

/// The same with iptables.
const KUBE_PROXY_CHAINS: &str = "*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-ABCDEFGHIJKLMNOP - [0:0]
:KUBE-SEP-ABCDEFGHIJKLMNOP - [0:0]
-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-ABCDEFGHIJKLMNOP
-A KUBE-SVC-ABCDEFGHIJKLMNOP -j KUBE-SEP-ABCDEFGHIJKLMNOP
-A KUBE-SEP-ABCDEFGHIJKLMNOP -p tcp -m tcp -j DNAT --to-destination 10.244.2.10:8080
COMMIT
";

#[test]
fn from_its_nftables_mode_without_a_gap() {
    let node = TestNode::new(FERROVIA);
    node.feed("nft", &["-f", "-"], KUBE_PROXY_TABLE);
    node.write("web.yaml", &web(&["2.10"]));
    answered_throughout(&node, || {
        node.start();
        std::thread::sleep(Duration::from_millis(300));
    });
    let tables = node.on_node("nft", &["list", "tables"]);
    assert!(!tables.contains("kube-proxy"), "{tables}");
    let log = node.log();
    let lines: Vec<_> = log
        .lines()
        .filter(|line| line.contains(TOOK_OVER))
        .collect();
    assert_eq!(lines.len(), 2, "one a family: {log}");
    assert!(
        lines[0].contains("IPv4 table kube-proxy with 3 chains"),
        "{log}"
    );
    assert!(
        lines[1].contains("IPv6 table kube-proxy with 0 chains"),
        "{log}"
    );
    node.expect("pod-c > 10.96.0.10:80 => 10.244.2.10:8080");
}

#[test]
fn from_its_iptables_mode_without_a_gap() {
    for tool in ["iptables-nft", "iptables-legacy"] {
        let node = TestNode::new(FERROVIA);
        node.feed(
            &format!("{tool}-restore"),
            &["--noflush"],
            KUBE_PROXY_CHAINS,
        );
        node.on_node(
            tool,
            &[
                "-t",
                "nat",
                "-A",
                "PREROUTING",
                "-p",
                "tcp",
                "--dport",
                "9",
                "-j",
                "RETURN",
            ],
        );
        node.write("web.yaml", &web(&["2.10"]));
        let save = || node.on_node(&format!("{tool}-save"), &["-t", "nat"]);
        answered_throughout(&node, || {
            node.start();
            wait(|| match save() {
                text if text.contains("KUBE-") => Err(text),
                _ => Ok(()),
            });
            std::thread::sleep(Duration::from_millis(200));
        });
        assert!(save().contains("--dport 9 -j RETURN"), "{}", save());
        node.expect("pod-c > 10.96.0.10:80 => 10.244.2.10:8080");
        node.wait_for_log(TOOK_OVER);
        let words = format!("3 chains and 4 rules of {tool}");
        assert!(node.log().contains(&words), "{}", node.log());
    }
}

/// As in an image that holds nothing but the program.
#[test]
fn from_its_iptables_mode_without_any_tools() {
    let node = TestNode::new(FERROVIA);
    for tool in ["iptables-nft", "iptables-legacy"] {
        node.feed(
            &format!("{tool}-restore"),
            &["--noflush"],
            KUBE_PROXY_CHAINS,
        );
        let foreign = "-t nat -A PREROUTING -p tcp --dport 9 -j RETURN";
        node.on_node(tool, &foreign.split(' ').collect::<Vec<_>>());
    }
    node.feed(
        "iptables-nft",
        &["-t", "mangle", "-N", "KUBE-KUBELET-CANARY"],
        "",
    );
    node.write("web.yaml", &web(&["2.10"]));
    let mut command = node.run_command();
    command.env("PATH", node.folder());
    node.spawn(command);
    node.wait_until_ready();
    let save = |tool: &str| node.on_node(&format!("{tool}-save"), &[]);
    wait(|| match save("iptables-nft") {
        text if text.contains("KUBE-S") => Err(text),
        _ => Ok(()),
    });
    let nft = save("iptables-nft");
    assert!(nft.contains("--dport 9 -j RETURN"), "{nft}");
    assert!(nft.contains(":KUBE-KUBELET-CANARY"), "{nft}");
    node.wait_for_log("3 chains and 4 rules of iptables-nft");
    node.wait_for_log("Found iptables-legacy rules of a previous proxy");
    assert!(
        node.log()
            .contains("3 chains and 3 rules of iptables-legacy"),
        "{}",
        node.log()
    );
    assert!(save("iptables-legacy").contains("KUBE-SERVICES"));
    let output = node
        .ferrovia()
        .args(["doctor", "-o", "json", "--no-self-test"])
        .env("PATH", node.folder())
        .output()
        .expect("ferrovia can be started");
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(2), "{report}");
    assert!(report.contains("proxies/kube-proxy-legacy"), "{report}");
    assert!(report.contains("3 chains in iptables-legacy"), "{report}");
}

/// What a mode of ours wrote goes, though its names are kube-proxy's.
#[test]
fn cleanup_removes_the_rules_of_every_mode() {
    for mode in ["iptables", "userspace"] {
        let node = TestNode::new(FERROVIA);
        node.write("web.yaml", &web(&["2.10"]));
        let mut command = node.run_command();
        command.arg(format!("--proxy-mode={mode}"));
        node.spawn(command);
        node.wait_until_ready();
        let save = || node.on_node("iptables-nft-save", &[]);
        wait(|| match save() {
            text if text.contains("FERROVIA-OWNED") => Ok(()),
            text => Err(text),
        });
        node.stop(libc::SIGTERM);
        let said = cleanup(&node, &[]);
        assert!(said.contains("rules of iptables-nft"), "{said}");
        assert!(said.contains("rules of ip6tables-nft"), "{said}");
        assert!(!said.contains("left"), "{said}");
        let text = save();
        let kept = text.replace("KUBE-FIREWALL", "");
        assert!(
            !kept.contains("KUBE-") && !kept.contains("FERROVIA"),
            "{text}"
        );
        assert_eq!(
            cleanup(&node, &[]),
            "nothing to remove in this network namespace\n"
        );
    }
}

/// A kube-proxy that runs has taken our chains over. Where its process cannot be seen, its ports can.
#[test]
fn cleanup_does_not_break_a_running_kube_proxy() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["2.10"]));
    assert!(node.once_with(&["--proxy-mode=iptables"]).status.success());
    let before = node.on_node("iptables-nft-save", &["-t", "nat"]);
    let listener = {
        let _inside = node
            .world
            .enter(ferrovia_lab::Role::Node)
            .expect("it can be");
        std::net::TcpListener::bind("127.0.0.1:10256").expect("the port is free")
    };
    let said = cleanup(&node, &[]);
    assert!(
        said.contains("in use by a kube-proxy that runs here"),
        "{said}"
    );
    assert!(said.contains("port 10256"), "{said}");
    let lines = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
    let after = node.on_node("iptables-nft-save", &["-t", "nat"]);
    assert_eq!(lines(&after), lines(&before));
    drop(listener);
    let said = cleanup(&node, &[]);
    assert!(said.contains("removed"), "{said}");
    assert!(
        !node
            .on_node("iptables-nft-save", &["-t", "nat"])
            .contains("KUBE-")
    );
}

/// Runs `ferrovia cleanup`, which must succeed; answers with what it printed.
fn cleanup(node: &TestNode, arguments: &[&str]) -> String {
    let output = node
        .ferrovia()
        .arg("cleanup")
        .args(arguments)
        .output()
        .expect("ferrovia can be started");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn cleanup_leaves_kube_proxy_alone_unless_asked() {
    let node = TestNode::new(FERROVIA);
    node.feed("nft", &["-f", "-"], KUBE_PROXY_TABLE);
    node.feed("iptables-nft-restore", &["--noflush"], KUBE_PROXY_CHAINS);
    let said = cleanup(&node, &[]);
    assert!(said.starts_with("left 3 chains"), "{said}");
    assert!(
        said.contains("`ferrovia cleanup --kube-proxy` removes them"),
        "{said}"
    );
    let said = cleanup(&node, &["--kube-proxy"]);
    assert!(
        said.contains("IPv4 table kube-proxy") && said.contains("removed 3 chains"),
        "{said}"
    );
    assert!(!node.on_node("iptables-nft-save", &[]).contains("KUBE-"));
    assert_eq!(
        cleanup(&node, &[]),
        "nothing to remove in this network namespace\n"
    );
}

#[test]
fn cleanup_without_tools_reports_what_it_cannot_remove() {
    let node = TestNode::new(FERROVIA);
    for tool in ["iptables-nft", "iptables-legacy"] {
        let restore = format!("{tool}-restore");
        node.feed(&restore, &["--noflush"], KUBE_PROXY_CHAINS);
    }
    let output = node
        .ferrovia()
        .args(["cleanup", "--kube-proxy"])
        .env("PATH", node.folder())
        .output()
        .expect("ferrovia can be started");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains("removed 3 chains and 4 rules of iptables-nft"),
        "{said}"
    );
    assert!(
        said.contains("left 3 chains and 3 rules of iptables-legacy"),
        "{said}"
    );
    assert!(
        said.contains("only the iptables-legacy tools can remove"),
        "{said}"
    );
    assert!(!node.on_node("iptables-nft-save", &[]).contains("KUBE-"));
}
