//! Commands that only look: `trace` and `plan`, on the real kernel.

use std::process::{Command, Output};

use ferrovia_lab::Role;
use ferrovia_lab::apiserver::{ApiServer, ApiServerOptions};
use ferrovia_lab::daemon::TestNode;
use ferrovia_lab::daemon::manifests::{service, web};
use serde_json::{Value, json};

use crate::FERROVIA;

pub(crate) const SHAPE: [&str; 3] = [
    "--node-name=node-1",
    "--cluster-cidr=10.244.0.0/16,fd00:10:244::/48",
    "--nodeport-addresses=all",
];

pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// A command on the node's folder, with the daemon's settings.
pub(crate) fn look(node: &TestNode, arguments: &[&str]) -> (i32, String) {
    let output = node
        .ferrovia()
        .args(arguments)
        .arg("--manifests")
        .arg(node.folder())
        .args(SHAPE)
        .output()
        .expect("ferrovia can be started");
    (
        output.status.code().expect("it ends by itself"),
        text(&output),
    )
}

/// A node whose rules were written once.
pub(crate) fn written() -> TestNode {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["1.10", "2.10"]));
    let output = node.once();
    assert!(output.status.success(), "{}", text(&output));
    node
}

#[test]
fn a_trace_ends_with_a_code_for_its_outcome() {
    let node = written();
    node.write(
        "empty.yaml",
        "kind: Service\nmetadata: { name: empty }\nspec: { clusterIP: 10.96.0.20, ports: [{ port: 80 }] }\n",
    );
    node.write(
        "cidr.yaml",
        "kind: ServiceCIDR\nmetadata: { name: k }\nspec: { cidrs: [10.96.0.0/16] }\n",
    );
    let trace = |packet: &[&str]| look(&node, &[&["trace"], packet].concat());
    let (code, said) = trace(&["10.244.1.12", "->", "10.96.0.10:80"]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("DELIVERED") && said.contains("50.0%  10.244.1.10:8080"),
        "{said}"
    );
    assert!(
        said.contains("map ip ferrovia services: 10.96.0.10 . tcp . 80 : list"),
        "{said}"
    );
    assert!(said.contains("chain ip ferrovia pick-2"), "{said}");
    let (code, said) = trace(&["node", "to", "service/default/web"]);
    assert!(
        code == 0 && said.contains("it does not come from a pod"),
        "{said}"
    );
    let (code, said) = trace(&["2001:db8:2::9", "[2001:db8:51::10]:30080"]);
    assert!(code == 0 && said.contains("node port"), "{said}");
    let (code, said) = trace(&["10.244.1.12", "10.96.0.20:80"]);
    assert!(code == 10 && said.contains("nothing about it"), "{said}");
    assert_eq!(trace(&["10.244.1.12", "10.96.0.99:80"]).0, 11);
    assert_eq!(trace(&["10.244.1.12", "192.0.2.9:80"]).0, 12);
}

#[test]
fn prints_a_trace_as_json() {
    let node = written();
    let (_, said) = look(
        &node,
        &["trace", "-o", "json", "10.244.1.12", "10.96.0.10:80"],
    );
    let printed: Value = serde_json::from_str(&said).expect("it is JSON");
    assert_eq!(printed["outcome"], "delivered");
    assert_eq!(printed["service"]["name"], "web");
    assert_eq!(printed["endpoints"].as_array().map(Vec::len), Some(2));
    let objects = printed["kernel"].as_array().expect("the kernel was asked");
    assert!(
        objects
            .iter()
            .any(|object| object["place"] == "chain ip ferrovia pick-2"),
        "{said}"
    );
}

#[test]
fn without_privileges_a_trace_says_that_the_kernel_was_not_asked() {
    let node = written();
    let output = node
        .world
        .exec(Role::Node, "setpriv")
        .args(["--bounding-set=-net_admin", "--inh-caps=-net_admin"])
        .args([FERROVIA, "trace", "node", "10.96.0.10:80"])
        .args(["--node-name=node-1", "--manifests"])
        .arg(node.folder())
        .output()
        .expect("setpriv can be run");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(
        text(&output).contains("the kernel was not asked"),
        "{}",
        text(&output)
    );
}

#[test]
fn a_plan_can_be_of_one_service() {
    let node = written();
    node.write("more.yaml", &service("more", 11, 30081, &["2.10"]));
    for mode in ["--mode=nftables", "--mode=iptables"] {
        let (code, said) = look(&node, &["plan", "service/default/more", mode]);
        assert_eq!(code, 0, "{said}");
        assert!(
            said.contains("10.96.0.11") && !said.contains("10.96.0.10"),
            "{said}"
        );
        assert!(!said.contains("postrouting"), "{said}");
    }
    let (code, said) = look(&node, &["plan", "service/shop/more"]);
    assert!(
        code == 1 && said.contains("did you mean default/more?"),
        "{said}"
    );
}

#[test]
fn reports_invalid_arguments_in_one_line() {
    let node = written();
    for (arguments, part) in [
        (
            &["trace", "10.244.1.12", "10.96.0.10"][..],
            "write 10.96.0.10:80",
        ),
        (
            &["trace", "10.244.1.12", "[fd00:10:96::a]:80"],
            "one is IPv4, the other IPv6",
        ),
        (
            &["trace", "node", "service/default/web:http"],
            "it has 80/tcp",
        ),
        (
            &["trace", "node", "service/default/wab"],
            "there is no Service default/wab",
        ),
        (
            &["trace", "pod/default/web", "10.96.0.10:80"],
            "no EndpointSlice names pod default/web",
        ),
        (&["plan", "service/a/b/c"], "service/NAMESPACE/NAME"),
    ] {
        let (code, said) = look(&node, arguments);
        assert_eq!(code, 1, "{arguments:?}: {said}");
        assert!(
            said.contains(part) && said.lines().count() == 1,
            "{arguments:?}: {said}"
        );
    }
    for command in [
        &["verify"][..],
        &["diff"],
        &["plan"],
        &["trace", "node", "10.96.0.10:80"],
    ] {
        let output = node
            .ferrovia()
            .args(command)
            .arg("--admin-socket=/nonexistent/admin.sock")
            .output()
            .expect("ferrovia can be started");
        let said = text(&output);
        assert_ne!(output.status.code(), Some(0), "{said}");
        assert!(
            said.contains("no daemon answers at /nonexistent/admin.sock")
                && said.contains("--manifests")
                && said.lines().count() == 1,
            "{command:?}: {said}"
        );
    }
}

/// Of a folder only what seems to matter is decoded, which must make no difference to the answer.
#[test]
fn a_trace_from_a_folder_misses_nothing() {
    let node = TestNode::new(FERROVIA);
    let at = |name: &str, ip: &str| {
        format!(
            "kind: Service\nmetadata: {{ name: {name} }}\nspec: {{ clusterIP: {ip}, ports: [{{ port: 80 }}] }}\n"
        )
    };
    // Of two definitions the first counts, so no Service has 10.96.0.78.
    node.write("a.yaml", &at("twice", "10.96.0.77"));
    node.write("b.yaml", &at("twice", "10.96.0.78"));
    node.write("odd.yaml", &at("odd", "10.96.000.079"));
    node.write("merged.yaml", "x: &ip 10.96.0.80\nkind: Service\nmetadata: { name: merged }\nspec: { clusterIP: *ip, ports: [{ port: 80 }] }\n");
    node.write("web.yaml", &web(&["1.10", "2.10"]));
    for (packet, code, part) in [
        (["node", "10.96.0.77:80"], 10, "default/twice has no usable"),
        (["node", "10.96.0.78:80"], 12, "no Service is known"),
        (["node", "10.96.0.79:80"], 10, "default/odd has no usable"),
        (
            ["node", "10.96.0.80:80"],
            10,
            "default/merged has no usable",
        ),
        (["10.244.1.10", "[fd00:10:96::a]:81"], 1, "one is IPv4"),
        (["node", "[fd00:10:96:0::a]:80"], 0, "default/web has 2"),
        (["node", "svc/web"], 0, "10.244.2.10:8080"),
        (
            ["192.0.2.9", "198.51.100.10:30080"],
            0,
            "by          node port",
        ),
        // The sender is known as an endpoint of the same Service.
        (
            ["10.244.2.10", "10.96.0.10:80"],
            0,
            "(a pod of another node)",
        ),
    ] {
        let (ended, said) = look(&node, &[&["trace", "--no-kernel"][..], &packet].concat());
        assert_eq!(ended, code, "{packet:?}: {said}");
        assert!(said.contains(part), "{packet:?}: {said}");
    }
}

#[test]
fn objects_may_come_from_an_api_server() {
    let server = ApiServer::start(ApiServerOptions::default()).expect("the server starts");
    let put = server.apply(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"clusterIP": "10.96.0.10", "ports": [{"port": 80}]},
    }));
    put.expect("the object is good");
    let output = Command::new(FERROVIA)
        .args([
            "trace",
            "10.244.1.12",
            "10.96.0.10:80",
            "--local-address=198.51.100.10",
        ])
        .args(SHAPE)
        .arg(format!("--master={}", server.url()))
        .output()
        .expect("ferrovia can be started");
    assert_eq!(output.status.code(), Some(10), "{}", text(&output));
    assert!(
        text(&output).contains("shop/web has no usable endpoint"),
        "{}",
        text(&output)
    );
}
