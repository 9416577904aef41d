//! `/healthz` and `/livez`.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use ferrovia::kube_event::{Regarding, Severity};
use ferrovia::serve::health::{Health, Moment, NodeState};
use ferrovia::serve::http::{Bind, Server, serve_health};
use ferrovia_core::family::Family;
use serde_json::Value;

use crate::client::{get, request};
use crate::support::{Board, Runtime, anywhere, health, measured, synced, wait_until};

const MINUTE: Duration = Duration::from_secs(60);

fn serve(runtime: &Runtime, health: &Arc<Health>) -> (Server, SocketAddr) {
    let health = Arc::clone(health);
    let server = serve_health(
        &runtime.handle,
        &anywhere("127.0.0.1:0"),
        health,
        measured(),
    )
    .unwrap();
    let address = server.address().unwrap();
    (server, address)
}

#[test]
fn proxy_without_a_first_sync_is_alive_and_gets_no_traffic() {
    let runtime = Runtime::start();
    let health = health(MINUTE);
    let (_server, address) = serve(&runtime, &health);
    let unsynced = || {
        let reply = get(address, "/healthz");
        assert!(reply.body.contains(r#""synced":false"#), "{reply:?}");
        assert_eq!(get(address, "/livez").code, 200);
        reply.code
    };
    assert_eq!(unsynced(), 503, "nothing was listed");
    health.started(Family::V4, Moment::now());
    health.started(Family::V6, Moment::now());
    assert_eq!(unsynced(), 503, "nothing was written");
    health.updated(Family::V4, Moment::now());
    assert_eq!(unsynced(), 503, "IPv6 was not written");
    health.updated(Family::V6, Moment::now());
    let reply = get(address, "/healthz");
    assert_eq!(reply.code, 200, "{reply:?}");
    assert!(!reply.body.contains("synced"), "{reply:?}");
}

#[test]
fn a_fresh_proxy_is_healthy() {
    let runtime = Runtime::start();
    let (_server, address) = serve(&runtime, &synced(MINUTE));
    for (path, keys) in [
        (
            "/healthz",
            r#"Z","nodeEligible":true,"healthy":true,"status":{"#,
        ),
        ("/livez", r#"Z","healthy":true,"status":{"#),
    ] {
        let reply = get(address, path);
        assert_eq!(reply.code, 200);
        assert_eq!(reply.header("content-type"), "application/json");
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
        assert_eq!(reply.header("content-length"), reply.body.len().to_string());
        assert!(reply.body.starts_with(r#"{"lastUpdated":"2"#), "{reply:?}");
        assert!(reply.body.contains(keys), "{reply:?}");
        let body: Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!(body["lastUpdated"], body["currentTime"]);
    }
}

#[test]
fn any_method_is_answered_and_other_paths_are_not() {
    let runtime = Runtime::start();
    let (_server, address) = serve(&runtime, &synced(MINUTE));
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let reply = request(address, method, "/healthz?x=y", &[], "a body");
        assert_eq!(reply.code, 200, "{method}");
    }
    let head = request(address, "HEAD", "/livez", &[], "");
    assert_eq!((head.code, &*head.body), (200, ""));
    for path in [
        "/",
        "/metrics",
        "/healthz/",
        "/readyz",
        "/debug/pprof/",
        "*",
    ] {
        let reply = get(address, path);
        assert_eq!(reply.code, 404, "{path}");
        assert_eq!(reply.header("content-type"), "text/plain; charset=utf-8");
        assert_eq!(reply.body, "404 page not found\n");
    }
}

#[test]
fn a_family_that_is_late_fails_both_until_it_succeeds() {
    let runtime = Runtime::start();
    let health = health(Duration::ZERO);
    let (_server, address) = serve(&runtime, &health);
    health.updated(Family::V4, Moment::now());
    health.updated(Family::V6, Moment::now());
    assert_eq!(get(address, "/healthz").code, 200);
    health.queued(Family::V4, Moment::now());
    for path in ["/healthz", "/livez"] {
        let reply = get(address, path);
        let body: Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!((reply.code, &body["healthy"]), (503, &Value::from(false)));
        assert_eq!(body["status"]["IPv4"]["healthy"], false);
        assert_eq!(body["status"]["IPv6"]["healthy"], true);
        assert_eq!(body["lastUpdated"], body["status"]["IPv6"]["lastUpdated"]);
        assert_ne!(body["lastUpdated"], body["currentTime"]);
    }
    health.updated(Family::V6, Moment::now());
    assert_eq!(get(address, "/livez").code, 503, "the other one is late");
    health.updated(Family::V4, Moment::now());
    assert_eq!(get(address, "/livez").code, 200);
}

#[test]
fn a_node_that_goes_fails_healthz_only() {
    let runtime = Runtime::start();
    let health = synced(MINUTE);
    let (_server, address) = serve(&runtime, &health);
    for (state, code) in [
        (NodeState::Ineligible, 503),
        (NodeState::Eligible, 200),
        (NodeState::Unknown, 503),
    ] {
        health.set_node(state);
        let reply = get(address, "/healthz");
        assert_eq!(reply.code, code, "{state:?}");
        let eligible = format!(r#""nodeEligible":{},"healthy":true"#, code == 200);
        assert!(reply.body.contains(&eligible), "{reply:?}");
        assert_eq!(get(address, "/livez").code, 200);
    }
}

#[test]
fn age_of_data_is_shown_and_changes_no_code() {
    let runtime = Runtime::start();
    let health = synced(MINUTE);
    health.show_data_age(Box::new(|_| 24 * 60 * MINUTE));
    let (_server, address) = serve(&runtime, &health);
    let reply = get(address, "/healthz");
    assert_eq!(reply.code, 200);
    assert!(
        reply.body.ends_with(r#"}},"dataAge":"86400s"}"#),
        "{reply:?}"
    );
    assert_eq!(get(address, "/livez").code, 200);
}

#[test]
fn answers_are_counted_by_code() {
    let runtime = Runtime::start();
    let (health, metrics) = (synced(MINUTE), measured());
    let bind = anywhere("127.0.0.1:0");
    let server = serve_health(
        &runtime.handle,
        &bind,
        Arc::clone(&health),
        Arc::clone(&metrics),
    )
    .unwrap();
    let address = server.address().unwrap();
    get(address, "/healthz");
    get(address, "/livez");
    health.set_node(NodeState::Ineligible);
    get(address, "/healthz");
    get(address, "/healthz");
    get(address, "/nothing");
    let mut text = String::new();
    metrics.expose(&mut text).unwrap();
    for line in [
        "kubeproxy_proxy_healthz_total{code=\"200\"} 1\n",
        "kubeproxy_proxy_healthz_total{code=\"503\"} 2\n",
        "kubeproxy_proxy_livez_total{code=\"200\"} 1\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    assert!(!text.contains("kubeproxy_proxy_livez_total{code=\"503\"}"));
}

#[test]
fn the_wildcard_serves_both_families() {
    let runtime = Runtime::start();
    let bind = anywhere("0.0.0.0:0");
    let server = serve_health(&runtime.handle, &bind, health(MINUTE), measured()).unwrap();
    let port = server.address().unwrap().port();
    for ip in ["127.0.0.1", "::1"] {
        let address = SocketAddr::new(ip.parse().unwrap(), port);
        assert_eq!(get(address, "/livez").code, 200, "{ip}");
    }
}

#[test]
fn a_port_that_is_taken_is_tried_again() {
    let runtime = Runtime::start();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let bind = anywhere(&address.to_string());
    let server = serve_health(&runtime.handle, &bind, health(MINUTE), measured()).unwrap();
    assert_eq!(server.address(), None);
    drop(taken);
    wait_until("the server has its port", || server.address().is_some());
    assert_eq!(get(address, "/livez").code, 200);
}

#[test]
fn a_port_that_is_taken_is_an_error_if_wished() {
    let runtime = Runtime::start();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let board = Board::default();
    let bind = Bind {
        address,
        hard_fail: true,
        notices: board.noticeboard(),
    };
    let error = serve_health(&runtime.handle, &bind, health(MINUTE), measured()).unwrap_err();
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    let notices = board.notices();
    assert_eq!(notices.len(), 1);
    assert_eq!(
        (notices[0].reason, notices[0].action),
        ("FailedToStartProxierHealthcheck", "StartKubeProxy")
    );
    assert_eq!(notices[0].regarding, Regarding::Node);
    assert_eq!(notices[0].severity, Severity::Warning);
}
