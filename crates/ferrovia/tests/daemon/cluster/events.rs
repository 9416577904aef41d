//! What `kubectl get events` shows.

use ferrovia_lab::apiserver::{Fault, FaultTarget};
use serde_json::Value;

use super::{Cluster, health};

/// The first event with this reason, once it has come.
fn event(cluster: &Cluster, reason: &str) -> Value {
    let find = |events: Vec<Value>| events.into_iter().find(|event| event["reason"] == reason);
    cluster
        .api
        .wait_until(|api| find(api.events()).is_some())
        .unwrap_or_else(|error| panic!("no {reason}: {error}; log:\n{}", cluster.node.log()));
    find(cluster.api.events()).expect("it has come")
}

#[test]
fn posts_an_event_at_start() {
    let cluster = Cluster::new();
    cluster.start();
    let event = event(&cluster, "Starting");
    assert_eq!(event["type"], "Normal");
    assert_eq!(event["action"], "StartKubeProxy");
    assert_eq!(event["reportingController"], "kube-proxy");
    assert_eq!(event["regarding"]["kind"], "Node");
    assert_eq!(event["regarding"]["name"], "node-1");
    assert_eq!(event["metadata"]["namespace"], "default");
}

#[test]
fn reports_a_health_check_port_in_use_and_serves_it_once_it_is_free() {
    let cluster = Cluster::new();
    let taken = cluster.take_port("198.51.100.10:32000");
    cluster.apply(&health::local("web", &["1.10"]));
    cluster.start();
    let event = event(&cluster, "FailedToStartServiceHealthcheck");
    assert_eq!(event["type"], "Warning");
    assert_eq!(event["action"], "Listen");
    assert_eq!(event["regarding"]["kind"], "Service");
    assert_eq!(event["regarding"]["namespace"], "default");
    assert_eq!(event["regarding"]["name"], "web");
    let note = event["note"].as_str().unwrap_or_default();
    assert!(note.contains("198.51.100.10:32000"), "{note}");
    drop(taken);
    cluster.get_soon("198.51.100.10:32000", "/", 200);
}

#[test]
fn reports_a_required_port_in_use_before_exiting() {
    let cluster = Cluster::new();
    cluster
        .node
        .edit_config("HardFail: false", "HardFail: true");
    let _taken = cluster.take_port("127.0.0.1:10249");
    cluster.start_without_waiting();
    assert_eq!(cluster.node.wait_for_exit(), Some(1));
    let event = event(&cluster, "FailedToStartMetricServer");
    assert_eq!(event["type"], "Warning");
    assert_eq!(event["regarding"]["kind"], "Node");
}

#[test]
fn an_unresponsive_server_does_not_delay_the_exit_for_long() {
    let cluster = Cluster::new();
    cluster.api.inject(FaultTarget::ALL, Fault::Hang);
    cluster
        .node
        .edit_config("HardFail: false", "HardFail: true");
    let _taken = cluster.take_port("127.0.0.1:10249");
    cluster.start_without_waiting();
    assert_eq!(cluster.node.wait_for_exit(), Some(1));
}

#[test]
fn reports_a_proxy_port_that_cannot_be_opened() {
    let cluster = Cluster::new();
    cluster
        .node
        .edit_config("mode: nftables", "mode: userspace");
    cluster
        .node
        .edit_config("portRange: \"\"", "portRange: 40000-40000");
    let _taken = cluster.take_port("0.0.0.0:40000");
    cluster.apply(&health::local("web", &["1.10"]));
    cluster.start();
    let event = event(&cluster, "FailedToOpenProxyPort");
    assert_eq!(event["type"], "Warning");
    assert_eq!(event["action"], "Listen");
    assert_eq!(event["regarding"]["kind"], "Service");
    assert_eq!(event["regarding"]["name"], "web");
    let note = event["note"].as_str().unwrap_or_default();
    assert!(note.contains("40000"), "{note}");
}
