//! What the daemon writes to the API, and what it reads of its Node.

use std::net::TcpListener;

use ferrovia_lab::control_plane::{ApiRequest, Assets};
use ferrovia_lab::daemon::kube_proxy::HEALTH;
use ferrovia_lab::daemon::manifests::web;
use ferrovia_lab::waiting::wait;
use serde_json::{Value, json};

use crate::cluster::Cluster;

/// The first Event with this reason, once the server has it.
fn event(cluster: &Cluster, reason: &str) -> Value {
    wait(|| {
        let list = cluster.ask(&ApiRequest::get(
            "/apis/events.k8s.io/v1/namespaces/default/events",
        ));
        let events = list["items"].as_array().cloned().unwrap_or_default();
        let found = events.into_iter().find(|event| event["reason"] == reason);
        found.ok_or_else(|| format!("no {reason} in {list}; log:\n{}", cluster.node.log()))
    })
}

pub(crate) fn posts_events_that_the_server_accepts(assets: &Assets) {
    let cluster = Cluster::new(assets);
    let taken = cluster.inside(|| TcpListener::bind("198.51.100.10:32000"));
    let _taken = taken.expect("the port is free");
    let service = web(&["1.10"]).replace(
        "type: NodePort",
        "type: LoadBalancer\n  externalTrafficPolicy: Local\n  healthCheckNodePort: 32000",
    );
    cluster.apply(&service);
    cluster.start();
    let started = event(&cluster, "Starting");
    assert_eq!(started["type"], "Normal");
    assert_eq!(started["reportingController"], "kube-proxy");
    assert_eq!(started["regarding"]["kind"], "Node");
    assert_eq!(started["regarding"]["name"], "node-1");
    let failed = event(&cluster, "FailedToStartServiceHealthcheck");
    assert_eq!(failed["type"], "Warning");
    assert_eq!(failed["regarding"]["kind"], "Service");
    assert_eq!(failed["regarding"]["name"], "web");
}

pub(crate) fn reports_a_node_that_is_about_to_go(assets: &Assets) {
    let cluster = Cluster::new(assets);
    cluster.apply(&web(&["1.10"]));
    cluster.start();
    let health = |code: u16| {
        wait(|| match cluster.get(HEALTH, "/healthz")? {
            reply if reply.code == code => Ok(()),
            reply => Err(format!("/healthz says {reply:?}")),
        });
    };
    health(200);
    let taint =
        json!({"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule", "value": "1"});
    for (taints, code) in [(json!([taint]), 503), (json!([]), 200)] {
        let body = json!({"spec": {"taints": taints}}).to_string();
        cluster.ask(&ApiRequest {
            content_type: "application/merge-patch+json",
            ..ApiRequest::send("PATCH", "/api/v1/nodes/node-1", body.as_bytes())
        });
        health(code);
        assert_eq!(
            cluster.get(HEALTH, "/livez").map(|reply| reply.code),
            Ok(200)
        );
    }
}
