//! What one tenant's Services cost, under the limit of memory that the manifests in `deploy` ship.

use std::fmt::Write;
use std::net::Ipv4Addr;

use ferrovia_lab::Role;
use ferrovia_lab::cgroup::Cgroup;
use ferrovia_lab::daemon::TestNode;
use ferrovia_lab::daemon::manifests::{service, web};
use ferrovia_lab::waiting::wait;

use crate::FERROVIA;

/// As in `deploy/kustomize/base/daemonset.yaml`.
const MEMORY: u64 = 256 << 20;

/// The daemon in a control group.
fn start_in(node: &TestNode, group: &Cgroup) {
    let [shell, words @ ..] = group.enter();
    let run = node.run_command();
    let mut command = node.world.exec(Role::Node, &shell);
    command
        .args(words)
        .arg(run.get_program())
        .args(run.get_args());
    node.spawn(command);
    node.wait_until_ready();
}

/// A Service of about a megabyte, which is as large as an object of the API may be.
fn greedy(namespace: &str, number: u32) -> String {
    let mut text = format!(
        "kind: Service\napiVersion: v1\nmetadata: {{ name: greedy-{number}, namespace: {namespace} }}\n\
         spec:\n  clusterIP: 10.97.0.{number}\n  ports: [{{ port: 80 }}]\n  externalIPs: [11.0.0.0"
    );
    for i in 1..70_000 {
        let ip = Ipv4Addr::from_bits(0x0b00_0000 + number * 70_000 + i);
        write!(text, ",{ip}").unwrap();
    }
    text + "]\n"
}

/// Each asks for 70,000 frontends. The kernel counts their elements as the daemon's memory, so it must take no more of them than fit.
#[test]
fn services_full_of_addresses_neither_end_the_daemon_nor_starve_others() {
    let group = Cgroup::with_memory("ferrovia-greedy", MEMORY).unwrap();
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["1.10"]));
    start_in(&node, &group);
    for number in 1..=6 {
        node.write(&format!("greedy-{number}.yaml"), &greedy("evil", number));
    }
    node.wait_for_log("the limit is 16384 frontends");
    node.wait_for_log("the limit is 32768");
    node.write("later.yaml", &service("later", 20, 30_090, &["1.11"]));
    node.expect_soon(
        "pod-c > 10.96.0.20:80 => 10.244.1.11:8080
         pod-c > 10.96.0.10:80 => 10.244.1.10:8080",
    );
    assert_eq!(group.kills().unwrap(), 0, "{}", node.log());
    let peak = group.peak().unwrap();
    println!("peak of memory with 6 greedy services: {} MiB", peak >> 20);
    node.stop(libc::SIGTERM);
}

/// 2,100 Services, each with an affinity timeout of its own: more than the nftables mode has classes.
fn many_timeouts(namespace: &str) -> String {
    let mut text = String::new();
    for number in 1..=2_100_u32 {
        let ip = Ipv4Addr::from_bits(0x0a62_0000 + number);
        write!(
            text,
            "kind: Service\nmetadata: {{ name: sticky-{number}, namespace: {namespace} }}\n\
             spec:\n  clusterIP: {ip}\n  ports: [{{ port: 80 }}]\n  sessionAffinity: ClientIP\n\
             \x20 sessionAffinityConfig: {{ clientIP: {{ timeoutSeconds: {number} }} }}\n---\n\
             kind: EndpointSlice\nmetadata: {{ name: sticky-{number}, namespace: {namespace}, labels: {{ kubernetes.io/service-name: sticky-{number} }} }}\n\
             addressType: IPv4\nports: [{{ port: 8080 }}]\nendpoints: [{{ addresses: [10.244.1.10] }}, {{ addresses: [10.244.1.11] }}]\n---\n"
        )
        .unwrap();
    }
    text
}

/// A Service of 10,000 ports, which is about as many as an object of the API can have.
fn many_ports(namespace: &str, number: u32) -> String {
    let list = |port: &dyn Fn(u32) -> String| (1..=10_000).map(port).collect::<Vec<_>>().join(",");
    let ports = list(&|i| format!("{{name: p{i}, port: {i}}}"));
    let targets = list(&|i| format!("{{name: p{i}, port: 8080}}"));
    format!(
        "kind: Service\nmetadata: {{ name: wide-{number}, namespace: {namespace} }}\n\
         spec:\n  clusterIP: 10.97.1.{number}\n  ports: [{ports}]\n---\n\
         kind: EndpointSlice\nmetadata: {{ name: wide-{number}, namespace: {namespace}, labels: {{ kubernetes.io/service-name: wide-{number} }} }}\n\
         addressType: IPv4\nports: [{targets}]\nendpoints: [{{ addresses: [10.244.1.10] }}]\n"
    )
}

/// A Service whose combination of affinity and weights no other Service has.
fn uncommon() -> String {
    let slice = |name: &str, weight: u32, ip: &str| {
        format!(
            "---\nkind: EndpointSlice\nmetadata:\n  name: {name}\n  namespace: shop\n  labels: {{ kubernetes.io/service-name: cart }}\n\
             \x20 annotations: {{ ferrovia.io/weight: \"{weight}\" }}\naddressType: IPv4\nports: [{{ port: 8080 }}]\nendpoints: [{{ addresses: [{ip}] }}]\n"
        )
    };
    let service = "kind: Service\nmetadata: { name: cart, namespace: shop }\nspec:\n  clusterIP: 10.96.0.30\n  ports: [{ port: 80 }]\n\
                   \x20 sessionAffinity: ClientIP\n  sessionAffinityConfig: { clientIP: { timeoutSeconds: 7777 } }\n";
    service.to_owned() + &slice("cart-a", 300, "10.244.1.10") + &slice("cart-b", 7, "10.244.2.10")
}

/// Chains that choose an endpoint are named after what they do.
fn has_chain(node: &TestNode, chain: &str) -> bool {
    let mut nft = node.world.exec(Role::Node, "nft");
    nft.args(["list", "chain", "ip", "ferrovia", chain]);
    nft.output().unwrap().status.success()
}

#[test]
fn a_namespace_cannot_use_up_selector_classes_or_list_ids() {
    let group = Cgroup::with_memory("ferrovia-classes", MEMORY).unwrap();
    let node = TestNode::new(FERROVIA);
    node.write("timeouts.yaml", &many_timeouts("evil"));
    for number in 1..=14 {
        node.write(
            &format!("wide-{number}.yaml"),
            &many_ports("evil-too", number),
        );
    }
    start_in(&node, &group);
    node.wait_for_log("uncommon combinations of timeout and number of endpoints");
    node.wait_for_log("have 140000 ports, and the limit is 32768");
    node.write("cart.yaml", &uncommon());
    node.write("later.yaml", &service("later", 20, 30_090, &["1.11"]));
    node.expect_soon(
        "pod-c > 10.96.0.20:80 => 10.244.1.11:8080
         pod-c > 10.96.0.30:80 => 10.244.1.10:8080 | 10.244.2.10:8080 sticky
         pod-c > 10.98.8.52:80 => 10.244.1.10:8080 | 10.244.1.11:8080 sticky
         pod-c > 10.97.1.1:10000 => 10.244.1.10:8080",
    );
    // As exact as if there were no others, and the others have affinity too.
    wait(|| match has_chain(&node, "sticky-7777-307") {
        true => Ok(()),
        false => Err("weights or timeout are not exact".to_owned()),
    });
    assert!(has_chain(&node, "sticky-4096-8"));
    assert!(!node.log().contains("Service shop/"), "{}", node.log());
    assert_eq!(group.kills().unwrap(), 0, "{}", node.log());
    println!("peak of memory: {} MiB", group.peak().unwrap() >> 20);
    node.stop(libc::SIGTERM);
}
