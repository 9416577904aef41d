//! What one tenant's Services cost, under the limit of memory that the manifests in `deploy` ship.

use std::fmt::Write;
use std::net::Ipv4Addr;

use ferrovia_lab::Role;
use ferrovia_lab::cgroup::Cgroup;
use ferrovia_lab::daemon::TestNode;
use ferrovia_lab::daemon::manifests::{service, web};

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
