//! What the metrics server has besides metrics.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrovia::serve::http::{Bind, Pages, Server, serve_metrics};
use serde_json::{Value, json};

use crate::client::{get, request};
use crate::exposition;
use crate::support::{Board, Runtime, anywhere, health, measured};

const TEXT: &str = "text/plain; charset=utf-8";

pub(crate) fn pages() -> Pages {
    Pages {
        metrics: measured(),
        health: health(Duration::from_secs(60)),
        mode: "nftables".into(),
        config: json!({"kind": "KubeProxyConfiguration", "mode": "nftables"}),
        flags: BTreeMap::from([("v".into(), "2".into()), ("config".into(), "/a=b".into())]),
        profiling: true,
        set_verbosity: Arc::new(|_| {}),
        names: vec!["node-1.example.net".to_owned()],
    }
}

pub(crate) fn serve(runtime: &Runtime, pages: Pages) -> (Server, SocketAddr) {
    let server = serve_metrics(&runtime.handle, &anywhere("127.0.0.1:0"), pages).unwrap();
    let address = server.address().unwrap();
    (server, address)
}

#[test]
fn texts_and_configuration() {
    let runtime = Runtime::start();
    let (_server, address) = serve(&runtime, pages());
    for (method, path, kind, body) in [
        ("GET", "/healthz", TEXT, "ok"),
        (
            "GET",
            "/healthz?verbose",
            TEXT,
            "[+]ping ok\nhealthz check passed\n",
        ),
        (
            "GET",
            "/healthz?a=b&verbose=1",
            TEXT,
            "[+]ping ok\nhealthz check passed\n",
        ),
        ("GET", "/healthz/ping", TEXT, "ok"),
        ("GET", "/proxyMode", TEXT, "nftables"),
        ("POST", "/proxyMode", TEXT, "nftables"),
        (
            "GET",
            "/configz",
            "application/json",
            r#"{"kubeproxy.config.k8s.io":{"kind":"KubeProxyConfiguration","mode":"nftables"}}"#,
        ),
    ] {
        let reply = request(address, method, path, &[], "");
        assert_eq!((reply.code, &*reply.body), (200, body), "{path}");
        assert_eq!(reply.header("content-type"), kind, "{path}");
        assert_eq!(reply.header("x-content-type-options"), "nosniff", "{path}");
    }
    for path in [
        "/",
        "/livez",
        "/readyz",
        "/metrics/",
        "/healthz/x",
        "/debug",
        "/debug/x",
    ] {
        assert_eq!(get(address, path).code, 404, "{path}");
    }
}

#[test]
fn flags_as_text_and_as_objects() {
    let runtime = Runtime::start();
    let (_server, address) = serve(&runtime, pages());
    let text = get(address, "/flagz");
    assert_eq!(text.header("content-type"), TEXT);
    assert!(text.body.starts_with("\nkube-proxy flagz\n"), "{text:?}");
    assert!(text.body.ends_with("\n\nconfig:/a=b\nv:2\n"), "{text:?}");

    for (media, version) in [
        ("json", "v1beta1"),
        ("yaml", "v1beta1"),
        ("json", "v1alpha1"),
    ] {
        let accept = format!("application/{media};as=Flagz;v={version};g=config.k8s.io");
        let reply = request(address, "GET", "/flagz", &[("Accept", &accept)], "");
        assert_eq!(reply.code, 200);
        assert_eq!(reply.header("content-type"), format!("application/{media}"));
        let body: Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!(
            body,
            json!({
                "kind": "Flagz",
                "apiVersion": format!("config.k8s.io/{version}"),
                "metadata": {"name": "kube-proxy"},
                "flags": {"config": "/a=b", "v": "2"},
            })
        );
        let is_warned = reply.header("warning").starts_with("299 ");
        assert_eq!(is_warned, version == "v1alpha1");
    }
    for accept in [
        "application/json",
        "application/json;as=Statusz;v=v1beta1;g=config.k8s.io",
    ] {
        let reply = request(address, "GET", "/flagz", &[("Accept", accept)], "");
        assert_eq!(reply.code, 406, "{accept}");
    }
}

#[test]
fn status_as_text_and_as_object() {
    let runtime = Runtime::start();
    let (_server, address) = serve(&runtime, pages());
    let text = get(address, "/statusz").body;
    for line in [
        "kube-proxy statusz",
        "Started: 2",
        "Up: 0 hr 0",
        "Go version: ",
        "Binary version: 1.36.4",
        "Emulation version: 1.36",
        "Paths: /configz /flagz /healthz /metrics /metrics/slis /proxyMode /statusz",
    ] {
        assert!(text.lines().any(|found| found.starts_with(line)), "{text}");
    }
    let accept = "application/json;v=v1beta1;g=config.k8s.io;as=Statusz";
    let reply = request(address, "GET", "/statusz", &[("Accept", accept)], "");
    let body: Value = serde_json::from_str(&reply.body).unwrap();
    assert_eq!(body["kind"], "Statusz");
    assert_eq!(body["apiVersion"], "config.k8s.io/v1beta1");
    assert_eq!(body["binaryVersion"], "1.36.4");
    assert!(body["uptimeSeconds"].as_u64().is_some_and(|up| up < 36_000));
    assert!(
        body["paths"]
            .as_array()
            .is_some_and(|paths| paths.len() == 7)
    );
}

#[test]
fn service_level_indicators_count_pings() {
    let runtime = Runtime::start();
    let (_server, address) = serve(&runtime, pages());
    let shown = || exposition::parse(&get(address, "/metrics/slis").body);
    assert_eq!(
        shown().keys().collect::<Vec<_>>(),
        ["process_start_time_seconds"]
    );
    get(address, "/healthz");
    get(address, "/healthz?verbose");
    let page = shown();
    assert_eq!(page["kubernetes_healthcheck"].kind, "gauge");
    assert_eq!(page["kubernetes_healthcheck"].labels(), ["name", "type"]);
    assert_eq!(page["kubernetes_healthcheck"].samples[0].value, 1.0);
    let total = &page["kubernetes_healthchecks_total"];
    assert_eq!(total.kind, "counter");
    assert_eq!(total.labels(), ["name", "status", "type"]);
    assert_eq!(total.samples[0].value, 2.0);
    let reply = request(address, "DELETE", "/metrics/slis", &[], "");
    assert_eq!((reply.code, &*reply.body), (200, "metrics reset\n"));
    assert_eq!(shown().len(), 1);
}

/// What a browser asks by a name that a web page made lead here is not answered. Whatever tools ask by is, and on other addresses everything.
#[test]
fn metrics_on_loopback_are_not_answered_by_names_of_others() {
    let runtime = Runtime::start();
    let (_server, address) = serve(&runtime, pages());
    let code = |path, host| request(address, "GET", path, &[("Host", host)], "").code;
    for path in [
        "/metrics",
        "/configz",
        "/metrics/slis",
        "/debug/flags/v",
        "/nowhere",
    ] {
        assert_eq!(code(path, "evil.example"), 403, "{path}");
    }
    for host in [
        "127.0.0.1:10249",
        "localhost",
        "192.0.2.7:10249",
        "[fd00::7]:10249",
        "node-1.example.net:10249",
        "metrics.kube-system.svc:10249",
    ] {
        assert_eq!(code("/metrics", host), 200, "{host}");
    }
    let everywhere = serve_metrics(&runtime.handle, &anywhere("0.0.0.0:0"), pages()).unwrap();
    let port = everywhere.address().unwrap().port();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let code = |host| request(address, "GET", "/metrics", &[("Host", host)], "").code;
    assert_eq!(code("metrics.example.org:10249"), 200);
}

#[test]
fn the_verbosity_can_be_set() {
    let runtime = Runtime::start();
    let level = Arc::new(AtomicU32::new(0));
    let set = Arc::clone(&level);
    let (_server, address) = serve(
        &runtime,
        Pages {
            set_verbosity: Arc::new(move |level| set.store(level, Ordering::SeqCst)),
            ..pages()
        },
    );
    let put = |headers: &[(&str, &str)], body: &str| {
        request(address, "PUT", "/debug/flags/v", headers, body).code
    };
    assert_eq!(put(&[], "4"), 200);
    assert_eq!(level.load(Ordering::SeqCst), 4);
    for bad in ["", "-1", "many", &"9".repeat(100_000)] {
        assert_eq!(put(&[], bad), 400);
    }
    assert_eq!(put(&[("Origin", "http://elsewhere")], "9"), 403);
    assert_eq!(get(address, "/debug/flags/v").code, 406);
    assert_eq!(level.load(Ordering::SeqCst), 4);
}

#[test]
fn profiling_says_what_there_is() {
    let runtime = Runtime::start();
    let (_server, address) = serve(&runtime, pages());
    let index = get(address, "/debug/pprof/");
    assert_eq!(index.code, 200);
    assert!(index.body.contains("/debug/pprof/cmdline"), "{index:?}");
    let words: Vec<String> = std::env::args().collect();
    assert_eq!(get(address, "/debug/pprof/cmdline").body, words.join("\0"));
    assert_eq!(get(address, "/debug/pprof/heap").code, 501);
    assert_eq!(get(address, "/debug/pprof/what").code, 404);
}

#[test]
fn without_profiling_there_is_nothing_to_debug() {
    let runtime = Runtime::start();
    let pages = Pages {
        profiling: false,
        ..pages()
    };
    let (_server, address) = serve(&runtime, pages);
    for path in ["/debug/pprof/", "/debug/pprof/cmdline", "/debug/flags/v"] {
        assert_eq!(get(address, path).code, 404, "{path}");
        assert_eq!(request(address, "PUT", path, &[], "9").code, 404, "{path}");
    }
}

#[test]
fn a_port_that_is_taken_is_an_error_if_wished() {
    let runtime = Runtime::start();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let board = Board::default();
    let bind = Bind {
        address: taken.local_addr().unwrap(),
        hard_fail: true,
        notices: board.noticeboard(),
    };
    assert!(serve_metrics(&runtime.handle, &bind, pages()).is_err());
    assert_eq!(board.notices()[0].reason, "FailedToStartMetricServer");
}
