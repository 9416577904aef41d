//! Commands that ask the daemon that runs on the node.

use ferrovia_lab::daemon::TestNode;
use ferrovia_lab::daemon::manifests::{service, web};
use serde_json::{Value, json};

use super::inspect::look;
use crate::FERROVIA;

/// The socket of a node's daemon, beside the folder of manifests.
fn socket(node: &TestNode) -> String {
    let path = node.folder().with_extension("sock");
    format!("--admin-socket={}", path.display())
}

/// A daemon that can be asked.
fn running(node: &TestNode, flags: &[&str]) {
    let mut command = node.run_command();
    command.arg(socket(node)).args(flags);
    node.spawn(command);
    node.wait_until_ready();
}

/// A command that asks it.
fn ask(node: &TestNode, arguments: &[&str]) -> (i32, String, String) {
    let output = node
        .ferrovia()
        .args(arguments)
        .arg(socket(node))
        .output()
        .expect("ferrovia can be started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().expect("it ends by itself");
    (code, text(&output.stdout), text(&output.stderr))
}

/// The Service of other tests, whose first endpoint is a pod with a name.
fn web_of_pods() -> String {
    let pod = "targetRef: { kind: Pod, name: web-0, namespace: default }";
    web(&["1.10", "2.10"])
        .replace("1.10'], ", &format!("1.10'], {pod}, "))
        .replace("1::10'], ", &format!("1::10'], {pod}, "))
}

#[test]
fn commands_query_the_running_daemon() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["1.10", "2.10"]));
    running(&node, &[]);
    let (code, said, aside) = ask(&node, &["trace", "10.244.1.12", "->", "10.96.0.10:80"]);
    assert_eq!(code, 0, "{said}{aside}");
    assert!(aside.contains("asked the daemon at "), "{aside}");
    assert!(
        said.contains("50.0%  10.244.1.10:8080")
            && said.contains("map ip ferrovia services: 10.96.0.10 . tcp . 80 : list"),
        "{said}"
    );
    let (code, said, _) = ask(
        &node,
        &[
            "trace",
            "-o",
            "json",
            "node",
            "10.96.0.10:81",
            "--no-kernel",
        ],
    );
    let printed: Value = serde_json::from_str(&said).expect("it is JSON");
    assert_eq!((code, &printed["cause"]), (10, &json!("no-such-port")));
    assert_eq!(printed["kernel"], Value::Null);
    let (code, said, _) = ask(&node, &["plan", "service/default/web", "--family=ipv4"]);
    assert!(
        code == 0 && said.contains("10.96.0.10 . tcp . 80") && !said.contains("postrouting"),
        "{said}"
    );
    let (code, said, aside) = ask(&node, &["plan", "service/shop/web"]);
    assert!(
        code == 1 && aside.contains("there is no Service shop/web"),
        "{said}{aside}"
    );
    let (code, said, aside) = ask(&node, &["verify"]);
    assert_eq!((code, aside.as_str()), (0, ""), "{said}");
    assert!(
        said.starts_with("OK: the kernel has what the daemon at ") && said.lines().count() == 1,
        "{said}"
    );
    let (code, _, aside) = ask(&node, &["verify", "--mode=iptables"]);
    assert!(
        code == 2 && aside.contains("leave out --mode"),
        "{code} {aside}"
    );
}

#[test]
fn lists_tracked_connections() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["2.10"]));
    running(&node, &[]);
    node.expect("pod-c > 10.96.0.10:80 => 10.244.2.10:8080");
    let (code, said, _) = ask(&node, &["trace", "10.244.1.12", "10.96.0.10:80"]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("is answered by 10.244.2.10:8080"),
        "no connection of the pod's is printed:\n{said}"
    );
}

#[test]
fn traces_a_pod_by_its_name() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web_of_pods());
    running(&node, &[]);
    for by_daemon in [false, true] {
        let answer = |arguments: &[&str]| {
            if !by_daemon {
                return look(&node, arguments);
            }
            let (code, said, aside) = ask(&node, arguments);
            (code, said + &aside)
        };
        let (code, said) = answer(&["trace", "--from=pod/default/web-0", "10.96.0.10:80"]);
        assert!(
            code == 0 && said.contains("10.244.1.10 (a pod of this node) ->"),
            "{said}"
        );
        let (code, said) = answer(&["trace", "pod/default/web-0", "[fd00:10:96::a]:80"]);
        assert!(
            code == 0 && said.contains("fd00:10:244:1::10 (a pod of this node) ->"),
            "{said}"
        );
        let (code, said) = answer(&["trace", "pod/other/web-0", "10.96.0.10:80"]);
        assert!(
            code == 1 && said.contains("no EndpointSlice names pod other/web-0"),
            "{said}"
        );
    }
    // One name, two addresses: it is ambiguous.
    let more = service("more", 11, 30081, &["2.11"]);
    let pod = "2.11'], targetRef: { kind: Pod, name: web-0 }, ";
    node.write("more.yaml", &more.replace("2.11'], ", pod));
    let (code, said) = look(&node, &["trace", "pod/default/web-0", "10.96.0.10:80"]);
    assert!(
        code == 1 && said.contains("could be any of 10.244.1.10, 10.244.2.11"),
        "{said}"
    );
}

#[test]
fn the_userspace_mode_is_compared_by_the_process_that_listens() {
    let node = TestNode::new(FERROVIA);
    node.on_node(
        "iptables-nft",
        &["-t", "mangle", "-N", "KUBE-IPTABLES-HINT"],
    );
    node.write("web.yaml", &web(&["1.10", "2.10"]));
    // Damaged rules must not be repaired before they are inspected.
    running(
        &node,
        &["--proxy-mode=userspace", "--iptables-sync-period=1h"],
    );
    let verify = || ask(&node, &["verify", "--family=ipv4"]);
    // Others' rules go once ours are in force, and that is no drift of ours.
    let (code, said, aside) = verify();
    assert_eq!(code, 0, "{said}{aside}");
    node.on_node("iptables-nft", &["-t", "nat", "-F", "KUBE-PORTALS-HOST"]);
    let (code, said, aside) = verify();
    assert!(code == 1 && said.contains("1 missing"), "{said}{aside}");
    let (code, said, _) = ask(&node, &["diff", "--family=ipv4"]);
    assert!(
        code == 1
            && said.contains("@@ missing chain nat KUBE-PORTALS-HOST @@")
            && said.contains("+-d 10.96.0.10/32"),
        "{said}"
    );
    let (code, said) = look(&node, &["verify", "--mode=userspace"]);
    assert!(
        code == 2 && said.contains("only the daemon knows where it listens"),
        "{said}"
    );
}

#[test]
fn bound_portals_are_traced_as_they_serve() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["2.10"]));
    running(
        &node,
        &["--proxy-mode=userspace", "--userspace-portals=bind"],
    );
    node.expect("pod-c > 10.96.0.10:80 => 10.244.2.10:8080 masq");
    let (code, said, aside) = ask(&node, &["trace", "10.244.1.12", "10.96.0.10:80"]);
    assert!(
        code == 0 && said.contains("tcp socket: listens on 10.96.0.10:80"),
        "{said}{aside}"
    );
    node.expect("pod-c > 10.96.0.10:81 => refused");
    let (code, said, aside) = ask(&node, &["trace", "10.244.1.12", "10.96.0.10:81"]);
    assert_eq!(code, 10, "{said}{aside}");
    // The service's address is on the node's interface, but none of the node's own, so no node port answers there.
    node.expect("pod-c > 10.96.0.10:30080 => refused");
    let (code, said, aside) = ask(&node, &["trace", "10.244.1.12", "10.96.0.10:30080"]);
    assert_eq!(code, 10, "{said}{aside}");
    let (code, said, aside) = ask(&node, &["verify"]);
    assert_eq!(code, 0, "{said}{aside}");
}

#[test]
fn node_ports_on_loopback_are_traced_to_the_proxy() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["2.10"]));
    running(&node, &[]);
    for packet in [["127.0.0.1", "127.0.0.1:30080"], ["::1", "[::1]:30080"]] {
        let (code, said, aside) = ask(&node, &[&["trace"][..], &packet].concat());
        assert_eq!(code, 0, "{said}{aside}");
        assert!(
            said.contains("the proxy on this node makes the connection")
                && said.contains("tcp socket: listens on "),
            "{said}"
        );
    }
    node.expect("node > 127.0.0.1:30080 => 10.244.2.10:8080 masq");
}
