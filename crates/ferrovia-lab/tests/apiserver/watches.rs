//! Watches: events, timing and ends.

use std::time::Duration;

use ferrovia_lab::apiserver::{ApiServer, ApiServerOptions, Kind, WatchListSupport, sample};
use serde_json::{Value, json};

use crate::client::{Answer, get};

/// The query of a watch-list.
const STREAMING: &str = "watch=true&sendInitialEvents=true&allowWatchBookmarks=true\
                         &resourceVersionMatch=NotOlderThan";

fn server() -> ApiServer {
    ApiServer::start(ApiServerOptions::default()).unwrap()
}

fn watch(server: &ApiServer, query: &str) -> Answer {
    let answer = get(server, &format!("/api/v1/services?{query}"));
    assert_eq!(answer.status, 200, "{query}");
    answer
}

fn assert_event(watch: &mut Answer, expected: &str, number: u32, revision: u64) {
    let name = sample::service_name(number);
    assert_eq!(watch.short_event(), (expected.to_owned(), name, revision));
}

#[test]
fn a_watch_list_sends_initial_events_and_then_changes() {
    let server = server();
    server.apply_many((0..500).map(sample::service)).unwrap();
    let mut watch = watch(&server, STREAMING);
    for number in 0..500 {
        let (event, name, _) = watch.short_event();
        let expected = ("ADDED", sample::service_name(number));
        assert_eq!((event.as_str(), name), expected);
    }
    let (event, bookmark) = watch.event();
    assert_eq!(event, "BOOKMARK");
    let metadata = &bookmark["metadata"];
    assert_eq!(metadata["resourceVersion"], server.revision().to_string());
    assert_eq!(metadata["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(bookmark["kind"], "Service");
    assert_eq!(bookmark["apiVersion"], "v1");
    assert_eq!(metadata["name"], Value::Null);

    let revision = server.apply(sample::service(7)).unwrap();
    assert_event(&mut watch, "MODIFIED", 7, revision);
}

#[test]
fn older_servers_reject_or_ignore_a_watch_list() {
    let with = |watch_lists| {
        let options = ApiServerOptions {
            watch_lists,
            ..ApiServerOptions::default()
        };
        let server = ApiServer::start(options).unwrap();
        server.apply(sample::service(1)).unwrap();
        server
    };
    let server = with(WatchListSupport::Forbidden);
    let answer = get(&server, &format!("/api/v1/services?{STREAMING}"));
    assert_eq!(answer.status, 422);
    let reason = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is \
                  enabled";
    let expected = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": format!(
            "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: {reason}"
        ),
        "reason": "Invalid",
        "details": {
            "group": "meta.k8s.io",
            "kind": "ListOptions",
            "causes": [{
                "reason": "FieldValueForbidden",
                "message": format!("Forbidden: {reason}"),
                "field": "sendInitialEvents",
            }],
        },
        "code": 422,
    });
    assert_eq!(answer.json(), expected);

    let server = with(WatchListSupport::Ignored);
    let mut watch = watch(&server, &format!("{STREAMING}&timeoutSeconds=1"));
    assert_event(&mut watch, "ADDED", 1, server.revision());
    let (event, bookmark) = watch.event();
    assert_eq!(event, "BOOKMARK");
    assert_eq!(bookmark["metadata"]["annotations"], Value::Null);
    assert!(watch.line().unwrap().is_none());
}

#[test]
fn rejects_options_that_must_not_be_combined() {
    let server = server();
    for query in [
        "watch=true&sendInitialEvents=true",
        "watch=true&sendInitialEvents=true&resourceVersionMatch=Exact",
        "watch=true&resourceVersionMatch=NotOlderThan",
    ] {
        let answer = get(&server, &format!("/api/v1/services?{query}"));
        assert_eq!(answer.status, 422, "{query}");
    }
}

#[test]
fn a_watch_starts_at_its_resource_version() {
    let server = server();
    let first = server.apply(sample::service(1)).unwrap();
    let second = server.apply(sample::service(2)).unwrap();

    let mut from_first = watch(&server, &format!("watch=1&resourceVersion={first}"));
    assert_event(&mut from_first, "ADDED", 2, second);
    let mut from_now = watch(&server, &format!("watch=1&resourceVersion={second}"));
    let unwanted = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let mut none = watch(&server, &format!("watch=1&{unwanted}"));
    for query in ["watch=1", "watch=1&resourceVersion=0"] {
        let mut all = watch(&server, query);
        assert_event(&mut all, "ADDED", 1, first);
        assert_event(&mut all, "ADDED", 2, second);
    }
    let third = server.apply(sample::service(3)).unwrap();
    assert_event(&mut from_first, "ADDED", 3, third);
    assert_event(&mut from_now, "ADDED", 3, third);
    assert_event(&mut none, "ADDED", 3, third);
    server.delete(Kind::Service, sample::NAMESPACE, "web-00003");
    assert_event(&mut from_now, "DELETED", 3, server.revision());
}

#[test]
fn an_expired_watch_gets_410_in_an_error_event() {
    let server = server();
    let first = server.apply(sample::service(1)).unwrap();
    let mut running = watch(&server, &format!("watch=1&resourceVersion={first}"));
    server.apply(sample::service(2)).unwrap();
    server.compact();
    let now = server.revision();

    let mut expired = watch(&server, &format!("watch=1&resourceVersion={first}"));
    let (event, status) = expired.event();
    assert_eq!((event.as_str(), &status["code"]), ("ERROR", &json!(410)));
    assert_eq!(status["kind"], "Status");
    assert_eq!(status["reason"], "Expired");
    assert!(expired.line().unwrap().is_none());

    // A running watch is not affected, and the current revision is not expired.
    assert_event(&mut running, "ADDED", 2, now);
    let mut fresh = watch(&server, &format!("watch=1&resourceVersion={now}"));
    let third = server.apply(sample::service(3)).unwrap();
    assert_event(&mut running, "ADDED", 3, third);
    assert_event(&mut fresh, "ADDED", 3, third);
}

#[test]
fn a_watch_from_a_future_revision_waits_for_it() {
    let server = server();
    let next = server.revision() + 1;
    let mut watch = watch(&server, &format!("watch=1&resourceVersion={next}"));
    server.apply(sample::service(1)).unwrap();
    let later = server.apply(sample::service(2)).unwrap();
    assert_event(&mut watch, "ADDED", 2, later);
}

#[test]
fn a_watch_list_from_a_future_revision_gets_an_error_event() {
    let server = server();
    let mut watch = watch(&server, &format!("{STREAMING}&resourceVersion=99999"));
    let (event, status) = watch.event();
    assert_eq!((event.as_str(), &status["code"]), ("ERROR", &json!(504)));
    let cause = &status["details"]["causes"][0]["reason"];
    assert_eq!(cause, "ResourceVersionTooLarge");
    assert!(watch.line().unwrap().is_none());
}

#[test]
fn an_invalid_resource_version_is_an_internal_error() {
    let answer = get(&server(), "/api/v1/services?watch=1&resourceVersion=abc");
    assert_eq!(answer.status, 500);
    assert_eq!(answer.json()["reason"], Value::Null);
}

#[test]
fn keeps_a_bounded_number_of_changes() {
    let options = ApiServerOptions {
        history: 10,
        ..ApiServerOptions::default()
    };
    let server = ApiServer::start(options).unwrap();
    let first = server.apply(sample::service(0)).unwrap();
    server.apply_many((1..=11).map(sample::service)).unwrap();
    let mut expired = watch(&server, &format!("watch=1&resourceVersion={first}"));
    assert_eq!(expired.event().0, "ERROR");
    let next = first + 1;
    let mut served = watch(&server, &format!("watch=1&resourceVersion={next}"));
    assert_event(&mut served, "ADDED", 2, first + 2);
}

#[test]
fn adds_or_deletes_objects_that_start_or_stop_matching() {
    let server = server();
    let labelled = |label: &str| {
        let mut object = sample::service(1);
        object["metadata"]["labels"][label] = json!("");
        object
    };
    let selector = "labelSelector=!hidden&fieldSelector=spec.clusterIP!=None";
    let mut watch = watch(&server, &format!("watch=1&{selector}"));
    server.apply(labelled("hidden")).unwrap();
    let shown = server.apply(labelled("shown")).unwrap();
    assert_event(&mut watch, "ADDED", 1, shown);
    let changed = server.apply(labelled("changed")).unwrap();
    assert_event(&mut watch, "MODIFIED", 1, changed);
    let hidden = server.apply(labelled("hidden")).unwrap();
    let (event, object) = watch.event();
    assert_eq!(event, "DELETED");
    // The last state that matched, with the revision at which it stopped.
    assert_eq!(object["metadata"]["labels"]["changed"], "");
    assert_eq!(object["metadata"]["resourceVersion"], hidden.to_string());
    // The deletion of an object that does not match is not sent.
    server.delete(Kind::Service, sample::NAMESPACE, "web-00001");
    let again = server.apply(labelled("shown")).unwrap();
    assert_event(&mut watch, "ADDED", 1, again);
    let mut headless = labelled("shown");
    headless["spec"]["clusterIP"] = json!("None");
    let headless = server.apply(headless).unwrap();
    assert_event(&mut watch, "DELETED", 1, headless);
}

#[test]
fn sends_bookmarks_regularly_if_requested() {
    let options = ApiServerOptions {
        bookmark_every: Duration::from_millis(20),
        ..ApiServerOptions::default()
    };
    let server = ApiServer::start(options).unwrap();
    let revision = server.apply(sample::service(1)).unwrap();
    let query = format!("watch=1&resourceVersion={revision}");
    let mut with = watch(&server, &format!("{query}&allowWatchBookmarks=true"));
    let mut without = watch(&server, &query);
    for _ in 0..3 {
        assert_eq!(
            with.short_event(),
            ("BOOKMARK".into(), String::new(), revision)
        );
    }
    // Changes of other kinds advance it, too.
    let node = server.apply(sample::node("n1", &[])).unwrap();
    while with.short_event().2 != node {}
    let next = server.apply(sample::service(2)).unwrap();
    assert_event(&mut without, "ADDED", 2, next);
}

#[test]
fn a_watch_ends_after_its_timeout_and_is_counted_until_then() {
    let server = server();
    let revision = server.revision();
    let query = format!("watch=1&timeoutSeconds=1&resourceVersion={revision}");
    let mut ending = watch(&server, &query);
    let staying = watch(&server, &format!("watch=1&resourceVersion={revision}"));
    assert!(ending.line().unwrap().is_none());
    server
        .wait_until(|s| s.watches(Kind::Service) == 1)
        .unwrap();
    drop(staying);
    server
        .wait_until(|s| s.watches(Kind::Service) == 0)
        .unwrap();
    server.wait_until(|s| s.connections() <= 1).unwrap();
}
