//! Credentials, addresses, roles, and a server that has no room.

use std::time::{Duration, Instant};

use ferrovia_lab::control_plane::{ApiClient, ApiRequest, Assets, Credentials, Pki};
use ferrovia_lab::daemon::OWNER_TABLE;
use ferrovia_lab::daemon::manifests::web;
use ferrovia_lab::daemon::service_account::ServiceAccountVolume;
use ferrovia_lab::waiting::wait;
use serde_json::{Value, json};

use crate::cluster::{Cluster, PROXY_USER};

const TO_A: &str = "pod-c > 10.96.0.10:80 => 10.244.1.10:8080";
const TO_X: &str = "pod-c > 10.96.0.10:80 => 10.244.2.10:8080";

/// Waits until the server answers a client with this code, or with another one.
fn wait_for_code(cluster: &Cluster, client: &ApiClient, is_wanted: impl Fn(u16) -> bool) {
    wait(|| {
        let reply = cluster.inside(|| client.ask(&ApiRequest::get("/api/v1/services?limit=1")));
        let code = reply.map_err(|error| error.to_string())?.head.code;
        is_wanted(code)
            .then_some(())
            .ok_or_else(|| format!("the server answers {code}"))
    });
}

fn client(cluster: &Cluster, credentials: Credentials) -> ApiClient {
    cluster.on_plane(|plane| plane.client(credentials))
}

/// The service account that a DaemonSet runs as, and a token of it.
fn new_token(cluster: &Cluster) -> String {
    cluster.apply_object(&json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "kube-proxy", "namespace": "kube-system"},
    }));
    let target = "/api/v1/namespaces/kube-system/serviceaccounts/kube-proxy/token";
    let body =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let reply = cluster.ask(&ApiRequest::send(
        "POST",
        target,
        body.to_string().as_bytes(),
    ));
    let token = reply["status"]["token"].as_str();
    token.expect("the server issues tokens").to_owned()
}

pub(crate) fn follows_a_projected_service_account_token(assets: &Assets) {
    let cluster = Cluster::new(assets);
    cluster.apply(&web(&["2.10"]));
    cluster.apply_object(&binding(
        "account",
        "system:node-proxier",
        &json!({"kind": "ServiceAccount", "name": "kube-proxy", "namespace": "kube-system"}),
    ));
    let first = new_token(&cluster);
    let authority = cluster.plane().pki().authority();
    let mut volume = ServiceAccountVolume::new(&cluster.node);
    volume.project(&first, &authority);
    volume.start_daemon(&cluster.node, cluster.relay.address());
    cluster.node.expect(TO_X);

    // Tokens of an account that was deleted are not accepted, whatever its successor's name.
    let account = "/api/v1/namespaces/kube-system/serviceaccounts/kube-proxy";
    cluster.ask(&ApiRequest::send("DELETE", account, &[]));
    volume.project(&new_token(&cluster), &authority);
    let old = client(&cluster, Credentials::Token(first));
    wait_for_code(&cluster, &old, |code| code == 401);
    cluster.relay.reset();
    cluster.apply(&web(&["1.10"]));
    cluster.node.expect_soon(TO_A);
}

pub(crate) fn reloads_a_client_certificate(assets: &Assets) {
    let cluster = Cluster::new(assets);
    cluster.apply(&web(&["2.10"]));
    let authorities = [(); 2].map(|()| Pki::new().expect("keys can be made"));
    let [first, second] = &authorities;
    let identity = |pki: &Pki| pki.client(PROXY_USER, None).expect("keys can be made");
    let is_known = |code: u16| code != 401;

    let old = identity(first);
    cluster.on_plane(|plane| plane.trust_clients_of(first));
    let with_old = client(&cluster, Credentials::Certificate(old.clone()));
    wait_for_code(&cluster, &with_old, is_known);
    cluster.write_kubeconfig(cluster.relay.address(), &old);
    cluster.start();
    cluster.node.expect(TO_X);

    cluster.on_plane(|plane| plane.trust_clients_of(second));
    wait_for_code(&cluster, &with_old, |code| code == 401);
    cluster.write_kubeconfig(cluster.relay.address(), &identity(second));
    cluster.relay.reset();
    cluster.apply(&web(&["1.10"]));
    cluster.node.expect_soon(TO_A);
}

pub(crate) fn reaches_the_server_at_an_ipv6_address(assets: &Assets) {
    let cluster = Cluster::new(assets);
    let address = cluster.plane().address_v6();
    let identity = cluster.identity(PROXY_USER);
    cluster.write_kubeconfig(address, &identity);
    cluster.apply(&web(&["2.10"]));
    cluster.start();
    cluster.node.expect(TO_X);
    cluster.apply(&web(&["1.10"]));
    cluster.node.expect_soon(TO_A);
    assert_eq!(cluster.relay.received(), 0, "it went another way");
}

pub(crate) fn writes_rules_with_a_role_that_may_list_but_not_watch(assets: &Assets) {
    let cluster = Cluster::new(assets);
    cluster.apply(&web(&["2.10"]));
    let subject =
        json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "lister"});
    cluster.apply_object(&role("lister", &["get", "list"], &PROXIED));
    cluster.apply_object(&binding("lister", "lister", &subject));
    let identity = cluster.identity("lister");
    let may_list = client(&cluster, Credentials::Certificate(identity.clone()));
    wait_for_code(&cluster, &may_list, |code| code == 200);
    cluster.write_kubeconfig(cluster.relay.address(), &identity);
    cluster.start();
    cluster.node.expect(TO_X);

    cluster.apply_object(&role("lister", &["get", "list", "watch"], &PROXIED));
    cluster.apply(&web(&["1.10"]));
    cluster.node.expect_soon(TO_A);
}

/// What a proxy reads.
const PROXIED: [&str; 4] = ["nodes", "services", "endpointslices", "servicecidrs"];

fn role(name: &str, verbs: &[&str], resources: &[&str]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [{"apiGroups": ["*"], "resources": resources, "verbs": verbs}],
    })
}

fn binding(name: &str, role: &str, subject: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    })
}

/// A priority level in which one request is served at a time, for the proxy and for a user that holds it up.
fn crowd(cluster: &Cluster) {
    let version = "flowcontrol.apiserver.k8s.io/v1";
    cluster.apply_object(&json!({
        "apiVersion": version,
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "narrow"},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 0,
            "lendablePercent": 0,
            "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Reject"},
        }},
    }));
    let user = |name: &str| json!({"kind": "User", "user": {"name": name}});
    cluster.apply_object(&json!({
        "apiVersion": version,
        "kind": "FlowSchema",
        "metadata": {"name": "narrow"},
        "spec": {
            "matchingPrecedence": 10,
            "priorityLevelConfiguration": {"name": "narrow"},
            "rules": [{
                "subjects": [user(PROXY_USER), user("holder")],
                "resourceRules": [{
                    "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                    "clusterScope": true, "namespaces": ["*"],
                }],
            }],
        },
    }));
    let subject =
        json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "holder"});
    cluster.apply_object(&role("holder", &["list"], &["configmaps"]));
    cluster.apply_object(&binding("holder", "holder", &subject));
    // More than the socket buffers of both sides take.
    let data = "x".repeat(900_000);
    for number in 0..24 {
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": format!("large-{number}")},
            "data": {"data": data},
        });
        let target = "/api/v1/namespaces/default/configmaps";
        cluster.ask(&ApiRequest::send(
            "POST",
            target,
            object.to_string().as_bytes(),
        ));
    }
}

pub(crate) fn waits_out_a_server_that_answers_429(assets: &Assets) {
    let cluster = Cluster::with(assets, "etcd", &["--request-timeout=30m"]);
    cluster.apply(&web(&["2.10"]));
    crowd(&cluster);
    let [proxy, holder] = [PROXY_USER, "holder"]
        .map(|user| client(&cluster, Credentials::Certificate(cluster.identity(user))));
    // A list that is not read keeps its place.
    let mut held = cluster.inside(|| holder.connect()).expect("it connects");
    wait(|| {
        let begun = held.begin(&ApiRequest::get("/api/v1/configmaps"));
        match begun.map_err(|error| error.to_string())?.code {
            200 => Ok(()),
            code => {
                held = cluster.inside(|| holder.connect()).expect("it connects");
                Err(format!("the holder gets {code}"))
            }
        }
    });
    wait_for_code(&cluster, &proxy, |code| code == 429);

    let start = Instant::now();
    cluster.start_without_waiting();
    let refused = || cluster.metric("rest_client_requests_total", &[r#"code="429""#]);
    cluster.wait_for_metric("rest_client_requests_total", &[r#"code="429""#], 8.0);
    // The server says when to come again: after a second. Four resources, and events.
    let most = 5.0 * (start.elapsed() + Duration::from_secs(2)).as_secs_f64();
    let count = refused().unwrap_or_else(|problem| panic!("{problem}"));
    assert!(count <= most, "{count} requests in {:?}", start.elapsed());
    assert_eq!(
        cluster.node.on_node("nft", &["list", "tables"]),
        OWNER_TABLE
    );
    drop(held);
    cluster.node.wait_until_ready();
    cluster.node.expect(TO_X);
}
