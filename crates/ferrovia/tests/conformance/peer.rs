//! kube-proxy and the daemon, one after the other, on the same objects of the same server.

use std::path::Path;

use ferrovia_lab::Role;
use ferrovia_lab::control_plane::{ApiRequest, Assets};
use ferrovia_lab::daemon::kube_proxy::HEALTH;
use ferrovia_lab::waiting::wait;
use serde_json::json;

use crate::cluster::Cluster;

/// Services of every kind.
const OBJECTS: &str = include_str!("peer.yaml");

/// What becomes of connections to them, whichever proxy runs.
const FLOWS: &str = include_str!("peer.flows");

pub(crate) fn forwards_as_kube_proxy_does(assets: &Assets) {
    let cluster = Cluster::new(assets);
    cluster.apply(OBJECTS);
    let ingress = json!([{"ip": "203.0.113.1"}, {"ip": "203.0.113.3", "ipMode": "Proxy"}]);
    let body = json!({"status": {"loadBalancer": {"ingress": ingress}}}).to_string();
    for name in ["balanced", "balanced-local"] {
        let body = match name {
            "balanced" => body.clone(),
            _ => body
                .replace("203.0.113.1", "203.0.113.2")
                .replace("203.0.113.3", "203.0.113.4"),
        };
        let target = format!("/api/v1/namespaces/default/services/{name}/status");
        cluster.ask(&ApiRequest {
            content_type: "application/merge-patch+json",
            ..ApiRequest::send("PATCH", &target, body.as_bytes())
        });
    }
    let kube_proxy = assets.path("kube-proxy");
    run(&cluster, &kube_proxy, false);
    cluster.node.on_node("nft", &["flush", "ruleset"]);
    run(&cluster, &cluster.node.kube_proxy_path(), true);
}

/// Runs a proxy, and all connections through it.
fn run(cluster: &Cluster, program: &Path, is_ours: bool) {
    let program = program.to_str().expect("the path is text");
    let mut command = cluster.node.world.exec(Role::Node, program);
    let arguments = cluster.node.kube_proxy_arguments();
    // The last one is not kube-proxy's.
    command.args(&arguments[..if is_ours { 3 } else { 2 }]);
    cluster.node.spawn(command);
    wait(|| match cluster.get(HEALTH, "/healthz")? {
        reply if reply.code == 200 => Ok(()),
        reply => Err(format!("{program}: /healthz says {reply:?}")),
    });
    cluster.node.expect_soon(FLOWS);
    cluster.node.stop(libc::SIGTERM);
}
