//! From the API to the packets.

use ferrovia_lab::apiserver::{ApiServerOptions, Fault, FaultTarget, Kind, Verb, WatchListSupport};
use ferrovia_lab::daemon::OWNER_TABLE;
use ferrovia_lab::daemon::kube_proxy::{HEALTH, METRICS};
use ferrovia_lab::daemon::manifests::{service, web};
use serde_json::{Value, json};

use super::Cluster;

const BOTH: &str = "pod-c > 10.96.0.10:80 => 10.244.1.10:8080 | 10.244.2.10:8080
node > 10.96.0.10:80 => 10.244.1.10:8080 | 10.244.2.10:8080 masq
outside > 198.51.100.10:30080 => 10.244.1.10:8080 | 10.244.2.10:8080 masq
pod-c > [fd00:10:96::a]:80 => [fd00:10:244:1::10]:8080 | [fd00:10:244:2::10]:8080
outside > [2001:db8:51::10]:30080 => [fd00:10:244:1::10]:8080 | [fd00:10:244:2::10]:8080 masq";

#[test]
fn serves_all_clients_and_follows_changes() {
    let cluster = Cluster::new();
    let node = &cluster.node;
    cluster.apply(&web(&["1.10", "2.10"]));
    cluster.start();
    node.expect(BOTH);
    // A start without problems logs no warnings.
    let log = node.log();
    assert!(
        log.lines().all(|line| line.starts_with('I')),
        "something is amiss:\n{log}"
    );

    cluster.apply(&service("other", 11, 30081, &["2.11"]));
    node.expect_soon(
        "pod-c > 10.96.0.11:80 => 10.244.2.11:8080
         outside > 198.51.100.10:30081 => 10.244.2.11:8080 masq",
    );
    cluster.apply(&web(&["2.12"]));
    node.expect_soon(
        "pod-c > 10.96.0.10:80 => 10.244.2.12:8080
         pod-c > [fd00:10:96::a]:80 => [fd00:10:244:2::12]:8080",
    );
    // Without endpoints it refuses, and so does the node port of a Service that is gone.
    cluster.apply(&web(&[]));
    node.expect_soon(
        "pod-c > 10.96.0.10:80 => refused
         outside > 198.51.100.10:30080 => refused",
    );
    cluster.delete_service("other");
    node.expect_soon("outside > 198.51.100.10:30081 => refused");
    node.expect("pod-c > 10.96.0.11:80 => dropped");
}

#[test]
fn a_slice_before_its_service_and_a_service_before_its_slice() {
    let cluster = Cluster::new();
    cluster.start();
    let documents = web(&["2.10"]);
    let (web, slices) = documents.split_once("---\n").expect("a Service and slices");
    cluster.apply(slices);
    cluster.apply(web);
    let answers = "pod-c > 10.96.0.10:80 => 10.244.2.10:8080";
    cluster.node.expect_soon(answers);
    cluster.delete_service("web");
    cluster.node.expect_soon("pod-c > 10.96.0.10:80 => dropped");
    // Its slices are still there.
    cluster.apply(web);
    cluster.node.expect_soon(answers);
}

#[test]
fn ignores_services_of_other_proxies_and_without_cluster_ip() {
    let cluster = Cluster::new();
    cluster.apply(&web(&["2.10"]));
    cluster.start();
    let others = web(&["2.10"]).replacen(
        "metadata: { name: web }",
        "metadata: { name: web, labels: { service.kubernetes.io/service-proxy-name: other } }",
        1,
    );
    cluster.apply(&others);
    cluster.node.expect_soon("pod-c > 10.96.0.10:80 => dropped");
    cluster.apply(&web(&["2.10"]));
    let answers = "pod-c > 10.96.0.10:80 => 10.244.2.10:8080";
    cluster.node.expect_soon(answers);
    let watches = cluster.api.requests();
    let watched = |path: &str| watches.iter().find(|request| request.path == path);
    let services = watched("/api/v1/services").expect("Services are asked for");
    assert_eq!(
        services.parameter("labelSelector"),
        Some("!service.kubernetes.io/service-proxy-name")
    );
    assert_eq!(
        services.parameter("fieldSelector"),
        Some("spec.clusterIP!=None")
    );
    let node = watched("/api/v1/nodes").expect("our Node is asked for");
    assert_eq!(
        node.parameter("fieldSelector"),
        Some("metadata.name=node-1")
    );
}

#[test]
fn an_invalid_object_does_not_affect_others() {
    let cluster = Cluster::new();
    cluster.apply(&web(&["2.10"]));
    let bad = |name: &str, spec: Value| json!({ "kind": "Service", "apiVersion": "v1", "metadata": { "name": name, "namespace": "default" }, "spec": spec });
    let objects = [
        bad(
            "text",
            json!({ "clusterIP": "10.96.0.66", "ports": "many" }),
        ),
        bad("none", json!(null)),
        bad(
            "address",
            json!({ "clusterIP": "nonsense", "clusterIPs": ["nonsense"], "ports": [{ "port": 80 }] }),
        ),
        bad(
            "port",
            json!({ "clusterIP": "10.96.0.67", "clusterIPs": ["10.96.0.67"], "ports": [{ "port": 800_000 }] }),
        ),
    ];
    cluster
        .api
        .apply_many(objects.clone())
        .expect("it takes all");
    cluster.start();
    let answers = "pod-c > 10.96.0.10:80 => 10.244.2.10:8080";
    cluster.node.expect(answers);
    // And the same while it runs.
    cluster.api.apply_many(objects).expect("it takes all");
    cluster.apply(&service("other", 11, 30081, &["2.11"]));
    cluster
        .node
        .expect_soon("pod-c > 10.96.0.11:80 => 10.244.2.11:8080");
    cluster.node.expect(answers);
}

/// Unless the machine was so busy that the time to wait for the Node is over.
fn nothing_is_written_yet(cluster: &Cluster) {
    let tables = cluster.node.on_node("nft", &["list", "tables"]);
    let log = cluster.node.log();
    assert!(
        tables == OWNER_TABLE || log.contains("going on without"),
        "{tables}\n{log}"
    );
}

#[test]
fn nothing_is_written_before_the_node_is_known() {
    let cluster = Cluster::with(ApiServerOptions::default());
    cluster.apply(&web(&["2.10"]));
    cluster.start_without_waiting();
    // All but the Node has arrived.
    cluster.wait_for_metric("kubeproxy_sync_proxy_rules_service_changes_total", &[], 1.0);
    cluster.wait_for_metric(
        "kubeproxy_sync_proxy_rules_endpoint_changes_total",
        &[],
        2.0,
    );
    cluster
        .api
        .wait_until(|api| api.watches(Kind::Node) == 1)
        .expect("the Node is watched");
    cluster.settle();
    nothing_is_written_yet(&cluster);
    // A Node without an address is not enough.
    cluster.apply_node(|node| node["status"]["addresses"] = json!([]));
    cluster.get_soon(HEALTH, "/healthz", 200);
    cluster.settle();
    nothing_is_written_yet(&cluster);
    cluster.apply_node(|_| {});
    cluster
        .node
        .expect_soon("outside > 198.51.100.10:30080 => 10.244.2.10:8080 masq");
    cluster
        .node
        .expect("outside > 198.51.100.11:30080 => refused");
}

#[test]
fn node_ports_follow_the_addresses_of_the_node() {
    let cluster = Cluster::new();
    cluster.apply(&web(&["2.10"]));
    cluster.start();
    cluster.node.expect(
        "outside > 198.51.100.10:30080 => 10.244.2.10:8080 masq
         outside > 198.51.100.11:30080 => refused",
    );
    cluster.apply_node(|node| {
        node["status"]["addresses"] = json!([
            { "type": "InternalIP", "address": "198.51.100.11" },
            { "type": "InternalIP", "address": "2001:db8:51::11" },
        ]);
    });
    cluster.node.expect_soon(
        "outside > 198.51.100.11:30080 => 10.244.2.10:8080 masq
         outside > [2001:db8:51::11]:30080 => [fd00:10:244:2::10]:8080 masq
         outside > 198.51.100.10:30080 => refused
         outside > [2001:db8:51::10]:30080 => refused",
    );
    // A Node that goes takes nothing with it, and what was last known of it goes on to hold.
    assert!(cluster.api.delete(Kind::Node, "", "node-1"));
    cluster.apply(&service("other", 11, 30081, &["2.11"]));
    cluster
        .node
        .expect_soon("outside > 198.51.100.11:30081 => 10.244.2.11:8080 masq");
    cluster
        .node
        .expect("outside > 198.51.100.10:30081 => refused");
    assert_eq!(cluster.get(HEALTH, "/healthz").code, 200);
}

#[test]
fn without_a_mode_node_ports_answer_everywhere() {
    let cluster = Cluster::new();
    cluster.node.edit_config("mode: nftables", r#"mode: """#);
    cluster.apply(&web(&["2.10"]));
    cluster.start();
    cluster.node.expect(
        "outside > 198.51.100.10:30080 => 10.244.2.10:8080 masq
         outside > 198.51.100.11:30080 => 10.244.2.10:8080 masq",
    );
    assert_eq!(cluster.get(METRICS, "/proxyMode").body, "nftables");
}

#[test]
fn servers_of_other_versions_and_with_other_rules_are_followed() {
    let older = ApiServerOptions {
        service_cidrs: false,
        watch_lists: WatchListSupport::Forbidden,
        ..ApiServerOptions::default()
    };
    for (options, forbidden) in [
        (older, None),
        // An old role does not know ServiceCIDRs, and a narrow one no events.
        (
            ApiServerOptions::default(),
            Some(FaultTarget::kind(Kind::ServiceCidr)),
        ),
        (
            ApiServerOptions::default(),
            Some(FaultTarget::verb(Verb::Create)),
        ),
    ] {
        let cluster = Cluster::with(options);
        if let Some(target) = forbidden {
            cluster.api.inject(target, Fault::Forbid);
        }
        cluster.apply_node(|_| {});
        cluster.apply(&web(&["2.10"]));
        cluster.start();
        cluster.apply(&web(&["2.11"]));
        cluster
            .node
            .expect_soon("pod-c > 10.96.0.10:80 => 10.244.2.11:8080");
    }
}

#[test]
fn hints_follow_the_zone_of_the_node() {
    let cluster = Cluster::new();
    let mut manifest = web(&["1.10", "2.10"]);
    for (node, zone) in [("node-1", "lab-a"), ("node-2", "lab-b")] {
        manifest = manifest.replace(
            &format!("nodeName: {node} }}"),
            &format!(
                "nodeName: {node}, zone: {zone}, hints: {{ forZones: [{{ name: {zone} }}] }} }}"
            ),
        );
    }
    cluster.apply(&manifest);
    cluster.start();
    cluster
        .node
        .expect("pod-c > 10.96.0.10:80 => 10.244.1.10:8080");
    cluster.apply_node(|node| {
        node["metadata"]["labels"]["topology.kubernetes.io/zone"] = "lab-b".into();
    });
    cluster
        .node
        .expect_soon("pod-c > 10.96.0.10:80 => 10.244.2.10:8080");
    // In a zone for which there is no hint, all are used.
    cluster.apply_node(|node| {
        node["metadata"]["labels"]["topology.kubernetes.io/zone"] = "lab-c".into();
    });
    cluster
        .node
        .expect_soon("pod-c > 10.96.0.10:80 => 10.244.1.10:8080 | 10.244.2.10:8080");
}

#[test]
fn in_mode_node_cidr_the_pod_range_is_waited_for_and_followed() {
    let cluster = Cluster::with(ApiServerOptions::default());
    cluster
        .node
        .edit_config(r#"detectLocalMode: """#, "detectLocalMode: NodeCIDR");
    cluster
        .node
        .edit_config("10.244.0.0/16,fd00:10:244::/48", r#""""#);
    cluster.apply(&web(&["2.10"]));
    cluster.apply_node(|node| node["spec"] = json!({}));
    cluster.start_without_waiting();
    cluster.get_soon(HEALTH, "/livez", 200);
    cluster.wait_for_metric("kubeproxy_sync_proxy_rules_service_changes_total", &[], 1.0);
    assert_eq!(cluster.get(HEALTH, "/healthz").code, 503);
    cluster.settle();
    assert_eq!(
        cluster.node.on_node("nft", &["list", "tables"]),
        OWNER_TABLE
    );

    let ranges = |v4: &'static str| {
        move |node: &mut Value| {
            node["spec"] = json!({ "podCIDR": v4, "podCIDRs": [v4, "fd00:10:244:1::/64"] });
        }
    };
    cluster.apply_node(ranges("10.244.1.0/24"));
    cluster
        .node
        .expect_soon("pod-c > 10.96.0.10:80 => 10.244.2.10:8080");
    cluster
        .node
        .expect("outside > 10.96.0.10:80 => 10.244.2.10:8080 masq");
    cluster.apply_node(ranges("10.244.7.0/24"));
    cluster
        .node
        .expect_soon("pod-c > 10.96.0.10:80 => 10.244.2.10:8080 masq");
    assert!(cluster.node.is_running());
}
