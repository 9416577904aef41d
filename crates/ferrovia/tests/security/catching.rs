//! Services that would catch traffic to addresses of others, and rules of others that would catch traffic to Services.

use std::process::Command;

use ferrovia_lab::daemon::TestNode;
use ferrovia_lab::daemon::manifests::{service, web};

use crate::FERROVIA;

/// A Service that claims addresses of a pod, of this node and of the world outside.
fn claiming() -> String {
    service("claims", 20, 30_090, &["1.10"]).replacen(
        "spec:\n",
        "spec:\n  externalIPs: [10.244.2.12, 198.51.100.10, 192.0.2.77]\n",
        1,
    )
}

/// CVE-2020-8554. Whoever may write Services could otherwise have anybody's traffic of this node.
#[test]
fn external_ips_are_served_only_where_they_are_allowed() {
    let node = TestNode::new(FERROVIA);
    node.write("claims.yaml", &claiming());
    let mut command = node.run_command();
    command.arg("--feature-gates=AllowServiceExternalIPs=false");
    node.spawn(command);
    node.wait_until_ready();
    node.expect(
        "pod-c > 10.96.0.20:80 => 10.244.1.10:8080
         pod-c > 10.244.2.12:80 => 10.244.2.12:80
         outside > 198.51.100.10:80 => refused
         pod-c > 192.0.2.77:80 => refused",
    );
    // Kubernetes still allows them by default: this shows that the test works.
    node.stop(libc::SIGTERM);
    node.start();
    node.expect(
        "pod-c > 10.244.2.12:80 => 10.244.1.10:8080 masq
         outside > 198.51.100.10:80 => 10.244.1.10:8080 masq
         pod-c > 192.0.2.77:80 => 10.244.1.10:8080 masq",
    );
    // Nothing stays behind when the Service goes.
    node.remove("claims.yaml");
    node.expect_soon(
        "pod-c > 10.244.2.12:80 => 10.244.2.12:80
         outside > 198.51.100.10:80 => refused
         pod-c > 192.0.2.77:80 => refused",
    );
}

/// CVE-2022-3294, CVE-2020-8562. A Node object with a foreign address must not make this node answer for it.
#[test]
fn a_node_address_that_is_not_ours_catches_nothing() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["1.10"]));
    node.write(
        "node.yaml",
        "kind: Node\nmetadata: { name: node-1 }\nstatus:\n  addresses:\n  - { type: InternalIP, address: 192.0.2.77 }\n",
    );
    for mode in ["nftables", "iptables"] {
        let mut command = primary_only(&node);
        command.arg(format!("--proxy-mode={mode}"));
        node.spawn(command);
        node.wait_until_ready();
        node.expect(
            "pod-c > 10.96.0.10:80 => 10.244.1.10:8080
             pod-c > 192.0.2.77:30080 => refused
             outside > 198.51.100.10:30080 => refused",
        );
        node.stop(libc::SIGTERM);
    }
}

fn primary_only(node: &TestNode) -> Command {
    let mut command = node.ferrovia();
    command
        .arg("run")
        .arg("--manifests")
        .arg(node.folder())
        .args([
            "--node-name=node-1",
            "--cluster-cidr=10.244.0.0/16,fd00:10:244::/48",
            "--nodeport-addresses=primary",
            "--admin-socket=",
        ]);
    command
}

/// CVE-2019-9946. A network plugin's rules for host ports, as they are since it was fixed, catch nothing that is for a Service, whichever
/// was there first.
#[test]
fn host_ports_catch_nothing_that_is_for_services() {
    // Host ports 80 and 8080 of pod-b. The plugin appends its jump.
    let plugin = "*nat
:CNI-HOSTPORT-DNAT - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A CNI-HOSTPORT-DNAT -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.1.11:8080
-A CNI-HOSTPORT-DNAT -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.244.1.11:8080
COMMIT
";
    let balanced = web(&["2.10"])
        .replace("type: NodePort", "type: LoadBalancer")
        .replacen(
            "---\n",
            "status: { loadBalancer: { ingress: [{ ip: 203.0.113.1 }] } }\n---\n",
            1,
        );
    for mode in ["nftables", "iptables"] {
        for plugin_is_first in [true, false] {
            let node = TestNode::new(FERROVIA);
            node.write("web.yaml", &balanced);
            let hint = ["-w", "60", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"];
            node.on_node("iptables-nft", &hint);
            let install = || node.feed("iptables-nft-restore", &["-w", "60", "--noflush"], plugin);
            if plugin_is_first {
                install();
            }
            let mut command = node.run_command();
            command.arg(format!("--proxy-mode={mode}"));
            node.spawn(command);
            node.wait_until_ready();
            if !plugin_is_first {
                install();
            }
            node.expect(
                "pod-c > 10.96.0.10:80 => 10.244.2.10:8080
                 node > 10.96.0.10:80 => 10.244.2.10:8080 masq
                 outside > 203.0.113.1:80 => 10.244.2.10:8080 masq
                 outside > 198.51.100.10:30080 => 10.244.2.10:8080 masq",
            );
            // The plugin's rules are alive, and stay.
            node.expect("outside > 198.51.100.10:80 => 10.244.1.11:8080");
        }
    }
}
