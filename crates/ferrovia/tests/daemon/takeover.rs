//! kube-proxy was here before.

use std::time::Duration;

use super::support::{Node, answered_throughout, wait, web};

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
    let node = Node::new();
    node.feed("nft", &["-f", "-"], KUBE_PROXY_TABLE);
    node.write("web.yaml", &web(&["2.10"]));
    answered_throughout(&node, || {
        node.start();
        std::thread::sleep(Duration::from_millis(300));
    });
    let tables = node.on_node("nft", &["list", "tables"]);
    assert!(!tables.contains("kube-proxy"), "{tables}");
    node.expect("pod-c > 10.96.0.10:80 => 10.244.2.10:8080");
}

#[test]
fn from_its_iptables_mode_without_a_gap() {
    for tool in ["iptables-nft", "iptables-legacy"] {
        let node = Node::new();
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
    }
}

#[test]
fn cleanup_leaves_kube_proxy_alone_unless_asked() {
    let node = Node::new();
    node.feed("nft", &["-f", "-"], KUBE_PROXY_TABLE);
    node.feed("iptables-nft-restore", &["--noflush"], KUBE_PROXY_CHAINS);
    let cleanup = |arguments: &[&str]| {
        let output = node
            .ferrovia()
            .arg("cleanup")
            .args(arguments)
            .output()
            .expect("ferrovia can be started");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let said = cleanup(&[]);
    assert!(said.starts_with("left 3 chains"), "{said}");
    assert!(
        said.contains("`ferrovia cleanup --kube-proxy` removes them"),
        "{said}"
    );
    let said = cleanup(&["--kube-proxy"]);
    assert!(
        said.contains("IPv4 table kube-proxy") && said.contains("removed 3 chains"),
        "{said}"
    );
    assert!(!node.on_node("iptables-nft-save", &[]).contains("KUBE-"));
    assert_eq!(
        cleanup(&[]),
        "nothing to remove in this network namespace\n"
    );
}

#[test]
fn cleanup_without_tools_says_what_it_could_not_look_for() {
    let node = Node::new();
    for arguments in [&["cleanup"][..], &["cleanup", "--kube-proxy"]] {
        let output = node
            .ferrovia()
            .args(arguments)
            .env("PATH", node.folder())
            .output()
            .expect("ferrovia can be started");
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            said.starts_with("no iptables tools that work were found"),
            "{said}"
        );
    }
}
