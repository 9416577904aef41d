//! Metrics over HTTP.

use std::net::SocketAddr;

use ferrovia_lab::client::{Caller, PATIENCE};
use ferrovia_lab::daemon::kube_proxy::METRICS;
use ferrovia_lab::daemon::manifests::web;
use ferrovia_lab::{ClientHost, Outcome, Pod, Protocol};
use jiff::Timestamp;
use serde_json::Value;

use super::Cluster;

const FAMILIES: [&str; 2] = [r#"ip_family="IPv4""#, r#"ip_family="IPv6""#];

#[test]
fn every_sync_and_every_event_is_counted() {
    let cluster = Cluster::new();
    cluster.apply(&web(&["1.10", "2.10"]));
    let started = Timestamp::now().as_second();
    cluster.start();
    // The slices have the trigger time of their last change.
    let trigger = format!(
        "annotations: {{ endpoints.kubernetes.io/last-change-trigger-time: '{}' }}\n  labels: {{",
        Timestamp::now()
    );
    cluster.apply(&web(&["2.10"]).replace("labels: {", &trigger));
    cluster
        .node
        .expect_soon("pod-c > [fd00:10:96::a]:80 => [fd00:10:244:2::10]:8080");
    for family in FAMILIES {
        for (histogram, least) in [
            ("kubeproxy_sync_proxy_rules_duration_seconds", 2.0),
            ("kubeproxy_sync_full_proxy_rules_duration_seconds", 1.0),
            ("kubeproxy_sync_partial_proxy_rules_duration_seconds", 1.0),
            ("kubeproxy_network_programming_duration_seconds", 1.0),
        ] {
            cluster.wait_for_metric(&format!("{histogram}_count"), &[family], least);
        }
        for gauge in [
            "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
            "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
        ] {
            cluster.wait_for_metric(gauge, &[family], started as f64);
        }
    }
    for (counter, least) in [
        ("kubeproxy_sync_proxy_rules_service_changes_total", 2.0),
        ("kubeproxy_sync_proxy_rules_endpoint_changes_total", 4.0),
    ] {
        cluster.wait_for_metric(counter, &[], least);
    }
    let slow = cluster.metric("kubeproxy_network_programming_duration_seconds_sum", &[]);
    assert!((0.0..60.0).contains(&slow), "{slow} s");
    let failures = "kubeproxy_sync_proxy_rules_nftables_sync_failures_total";
    assert_eq!(cluster.metric(failures, &[]) as u64, 0);
    // Four watches.
    let host = format!("host=\"{}\"", cluster.api.address());
    let requests = [r#"code="200""#, r#"method="GET""#, host.as_str()];
    cluster.wait_for_metric("rest_client_requests_total", &requests, 4.0);
}

#[test]
fn connections_are_counted_by_service_and_by_endpoint() {
    let cluster = Cluster::new();
    cluster.apply(&web(&["2.10"]));
    cluster.start();
    let client = ClientHost::Pod(Pod::C);
    let to: SocketAddr = "10.96.0.10:80".parse().expect("an address and port");
    {
        let caller = Caller::enter(&cluster.node.world, client.role()).expect("it is there");
        for _ in 0..5 {
            let outcome = caller.connect(Protocol::Tcp, client.source(to.ip()), to, PATIENCE);
            assert!(matches!(outcome, Outcome::Answer(_)), "{outcome}");
        }
    }
    let service = [FAMILIES[0], r#"namespace="default""#, r#"service="web""#];
    let count = |name: &str, labels: &[&str]| cluster.metric(name, labels) as u64;
    assert_eq!(count("ferrovia_service_connections_total", &service), 5);
    let endpoint = [&service[..], &[r#"endpoint="10.244.2.10:8080""#]].concat();
    assert_eq!(count("ferrovia_endpoint_connections_total", &endpoint), 5);
}

#[test]
fn serves_proxy_mode_health_and_configuration() {
    let cluster = Cluster::new();
    cluster.start();
    let page = |path: &str| {
        let reply = cluster.get(METRICS, path);
        assert_eq!(reply.code, 200, "{path}: {reply:?}");
        reply.body
    };
    assert_eq!(page("/proxyMode"), "nftables");
    assert_eq!(page("/healthz"), "ok");
    let config: Value = serde_json::from_str(&page("/configz")).expect("it is JSON");
    let config = &config["kubeproxy.config.k8s.io"];
    assert_eq!(config["mode"], "nftables");
    assert_eq!(config["hostnameOverride"], "node-1");
    assert_eq!(config["clusterCIDR"], "10.244.0.0/16,fd00:10:244::/48");
    assert_eq!(config["conntrack"]["maxPerCore"], 0);
    let flags = page("/flagz");
    assert!(
        flags.contains("hostname-override") && flags.contains("node-1"),
        "{flags}"
    );
    let status = page("/statusz");
    assert!(status.contains("1.36"), "{status}");
    assert_eq!(cluster.get(METRICS, "/debug/pprof/").code, 404);
}
