//! One HTTP/2 connection for everything, and what becomes of it.

use std::thread;
use std::time::{Duration, Instant};

use ferrovia_lab::control_plane::Assets;
use ferrovia_lab::daemon::manifests::web;
use ferrovia_lab::waiting::wait;

use crate::cluster::Cluster;

const TO_A: &str = "pod-c > 10.96.0.10:80 => 10.244.1.10:8080";
const TO_X: &str = "pod-c > 10.96.0.10:80 => 10.244.2.10:8080";

pub(crate) fn shares_one_connection(assets: &Assets) {
    let cluster = Cluster::new(assets);
    cluster.apply(&web(&["2.10"]));
    cluster.start();
    cluster.apply(&web(&["1.10"]));
    cluster.node.expect_soon(TO_A);
    assert_eq!(cluster.relay.accepted(), 1);
}

pub(crate) fn speaks_http_1_if_http_2_is_disabled(assets: &Assets) {
    let cluster = Cluster::new(assets);
    cluster.apply(&web(&["2.10"]));
    let mut command = cluster.node.kube_proxy();
    command
        .args(cluster.node.kube_proxy_arguments())
        .env("DISABLE_HTTP2", "1");
    cluster.node.spawn(command);
    cluster.node.wait_until_ready();
    cluster.apply(&web(&["1.10"]));
    cluster.node.expect_soon(TO_A);
    let accepted = cluster.relay.accepted();
    assert!(accepted >= 4, "{accepted} connections");
}

/// One request in fifty, the most that kube-apiserver allows, is answered with GOAWAY.
pub(crate) fn follows_a_server_that_sends_goaway(assets: &Assets) {
    const RESETS: u64 = 40;
    let cluster = Cluster::with(assets, "etcd", &["--goaway-chance=0.02"]);
    cluster.apply(&web(&["2.10"]));
    cluster.start();
    for round in 0..RESETS {
        let (pod, flow) = if round % 2 == 0 {
            ("1.10", TO_A)
        } else {
            ("2.10", TO_X)
        };
        // New requests, which are what GOAWAY answers.
        cluster.relay.reset();
        cluster.apply(&web(&[pod]));
        cluster.node.expect_soon(flow);
    }
    let accepted = cluster.relay.accepted();
    println!(
        "    {accepted} connections, of which {} after a reset or at the start",
        RESETS + 1
    );
    // Where requests are repeated without end, or every reflector connects by itself, there are many more.
    assert!(accepted <= 3 * RESETS, "{accepted} connections");
    let relists = cluster.metric("ferrovia_relists_total", &[]);
    assert_eq!(relists, Ok(0.0), "{}", cluster.node.log());
}

pub(crate) fn sees_changes_after_packets_were_dropped(assets: &Assets) {
    let cluster = Cluster::new(assets);
    cluster.apply(&web(&["2.10"]));
    cluster.start();
    let port = cluster.relay.address().port();
    let rules = format!(
        "table ip cut {{ chain in {{ type filter hook input priority 0; tcp dport {port} drop; tcp sport {port} drop; }}; }}"
    );
    for (pod, flow) in [("1.10", TO_A), ("2.10", TO_X), ("1.10", TO_A)] {
        cluster.node.on_node("nft", &[&rules]);
        cluster.apply(&web(&[pod]));
        // Longer than a connection lives without an acknowledgement, so that only a new one helps.
        thread::sleep(Duration::from_secs(20));
        cluster
            .node
            .on_node("nft", &["delete", "table", "ip", "cut"]);
        let begin = Instant::now();
        cluster.node.expect_soon(flow);
        println!(
            "    a change is seen {:.1} s after packets pass again",
            begin.elapsed().as_secs_f64()
        );
    }
    // The connection before is gone.
    wait(|| match cluster.relay.accepted() {
        2.. => Ok(()),
        accepted => Err(format!("{accepted} connections")),
    });
}
