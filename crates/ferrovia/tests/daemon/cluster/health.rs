//! Health checks of load balancers and the kubelet.

use ferrovia_lab::Role;
use ferrovia_lab::daemon::kube_proxy::HEALTH;
use ferrovia_lab::daemon::manifests::{service, web};
use ferrovia_lab::plain_http::{HttpResponse, get};
use ferrovia_lab::waiting::wait;
use serde_json::{Value, json};

use super::Cluster;

/// A Service of type LoadBalancer that takes traffic only where it has endpoints, with its health check at port 32000.
pub(super) fn local(name: &str, pods: &[&str]) -> String {
    service(name, 10, 30080, pods).replacen(
        "  type: NodePort\n",
        "  type: LoadBalancer\n  externalTrafficPolicy: Local\n  healthCheckNodePort: 32000\n",
        1,
    )
}

fn body(reply: &HttpResponse) -> Value {
    serde_json::from_str(&reply.body).unwrap_or_else(|_| panic!("not JSON: {reply:?}"))
}

/// The names in an object, in their order.
fn keys(reply: &HttpResponse) -> Vec<String> {
    let names = [
        "lastUpdated",
        "currentTime",
        "nodeEligible",
        "healthy",
        "status",
        "dataAge",
    ];
    let mut found: Vec<_> = names
        .iter()
        .filter_map(|name| Some((reply.body.find(&format!("\"{name}\":"))?, *name)))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, name)| name.to_owned()).collect()
}

#[test]
fn serves_health_as_kube_proxy_does() {
    let cluster = Cluster::new();
    cluster.apply(&web(&["2.10"]));
    cluster.start();
    let healthz = cluster.get_soon(HEALTH, "/healthz", 200);
    assert_eq!(
        keys(&healthz),
        [
            "lastUpdated",
            "currentTime",
            "nodeEligible",
            "healthy",
            "status",
            "dataAge"
        ]
    );
    let said = body(&healthz);
    assert_eq!(
        (&said["healthy"], &said["nodeEligible"]),
        (&json!(true), &json!(true))
    );
    for family in ["IPv4", "IPv6"] {
        assert_eq!(said["status"][family]["healthy"], true, "{said}");
    }
    assert_eq!(healthz.header("content-type"), "application/json");
    assert_eq!(healthz.header("x-content-type-options"), "nosniff");
    let livez = cluster.get(HEALTH, "/livez");
    assert_eq!(livez.code, 200);
    assert_eq!(
        keys(&livez),
        ["lastUpdated", "currentTime", "healthy", "status"]
    );
    assert_eq!(cluster.get(HEALTH, "/").code, 404);

    // A load balancer asks from beyond the cluster, in either family.
    let _inside = cluster
        .node
        .world
        .enter(Role::Outside)
        .expect("it is there");
    for address in ["198.51.100.10:10256", "[2001:db8:51::10]:10256"] {
        let address = address.parse().expect("an address and port");
        assert_eq!(get(address, "/healthz").code, 200, "{address}");
    }
}

#[test]
fn a_node_that_is_being_deleted_is_not_eligible() {
    let cluster = Cluster::new();
    cluster.apply(&web(&["2.10"]));
    cluster.start();
    cluster.get_soon(HEALTH, "/healthz", 200);
    let taint = json!([{ "key": "ToBeDeletedByClusterAutoscaler", "value": "1763240000", "effect": "NoSchedule" }]);
    cluster.apply_node(|node| node["spec"]["taints"] = taint);
    let healthz = body(&cluster.get_soon(HEALTH, "/healthz", 503));
    assert_eq!(
        (&healthz["nodeEligible"], &healthz["healthy"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(cluster.get(HEALTH, "/livez").code, 200);
    cluster.apply_node(|_| {});
    cluster.get_soon(HEALTH, "/healthz", 200);

    cluster
        .apply_node(|node| node["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into());
    cluster.get_soon(HEALTH, "/healthz", 503);
    cluster.apply_node(|node| {
        node["spec"]["taints"] = json!([{ "key": "other", "effect": "NoSchedule" }]);
    });
    cluster.get_soon(HEALTH, "/healthz", 200);
    cluster
        .node
        .expect("pod-c > 10.96.0.10:80 => 10.244.2.10:8080");
}

#[test]
fn a_services_health_check_follows_its_local_endpoints() {
    let cluster = Cluster::new();
    cluster.apply(&local("web", &["1.10", "1.11", "2.10"]));
    cluster.start();
    let addresses = ["198.51.100.10:32000", "[2001:db8:51::10]:32000"];
    let expect = |count: u32| {
        let code = if count > 0 { 200 } else { 503 };
        for address in addresses {
            let mut seen = None;
            wait(|| {
                let reply = cluster.node.try_get(address, "/whatever")?;
                match body(&reply)["localEndpoints"] == count {
                    true => {
                        seen = Some(reply);
                        Ok(())
                    }
                    false => Err(format!("{reply:?}")),
                }
            });
            let reply = seen.expect("it was waited for");
            assert_eq!(reply.code, code, "{reply:?}");
            assert_eq!(
                reply.header("x-load-balancing-endpoint-weight"),
                count.to_string()
            );
            assert_eq!(
                reply.body,
                format!(
                    "{{\n\t\"service\": {{\n\t\t\"namespace\": \"default\",\n\t\t\"name\": \"web\"\n\t}},\n\t\"localEndpoints\": {count},\n\t\"serviceProxyHealthy\": true\n}}"
                )
            );
        }
    };
    expect(2);
    cluster.apply(&local("web", &["1.11", "2.10"]));
    expect(1);
    cluster.apply(&local("web", &["2.10"]));
    expect(0);
    cluster.apply(&local("web", &["1.10", "1.11", "1.12"]));
    expect(3);
    // Node ports of this mode answer on the node's own address only, and so do its checks.
    assert!(cluster.node.try_get("198.51.100.11:32000", "/").is_err());
    cluster.delete_service("web");
    for address in addresses {
        wait(|| match cluster.node.try_get(address, "/") {
            Err(_) => Ok(()),
            Ok(reply) => Err(format!("{address} still says {reply:?}")),
        });
    }
}
