//! Events of a watch, resuming, and invalid events.

use std::time::Duration;

use ferrovia_lab::apiserver::{ApiServer, ApiServerOptions, End, Fault, FaultTarget, Kind};

use super::support::{Received, Source, let_in, lists, requests, server, service, web};

fn quick_bookmarks() -> ApiServer {
    server(ApiServerOptions {
        bookmark_every: Duration::from_millis(20),
        ..ApiServerOptions::default()
    })
}

fn start() -> (ApiServer, Source) {
    let server = server(ApiServerOptions::default());
    server.apply(service("web", 80)).unwrap();
    let source = Source::listed(&server);
    (server, source)
}

/// The same with a server that speaks JSON only, for tests that write lines into a watch.
fn start_in_json() -> (ApiServer, Source) {
    let server = server(ApiServerOptions {
        protobuf: false,
        ..ApiServerOptions::default()
    });
    server.apply(service("web", 80)).unwrap();
    let source = Source::listed(&server);
    (server, source)
}

/// The version each watch of Services began with.
fn resumed_from(server: &ApiServer) -> Vec<String> {
    let requests = requests(server, "services");
    let versions = requests
        .iter()
        .filter_map(|r| r.parameter("resourceVersion"));
    versions.map(str::to_owned).collect()
}

#[test]
fn sends_changes_as_they_happen() {
    let (server, source) = start();
    let mut mark = 0;
    source.since(&mut mark);
    server.apply(service("web", 81)).unwrap();
    server.apply(service("other", 82)).unwrap();
    server.delete(Kind::Service, "shop", "web");
    source.wait(|received| received.has(&web("other")) && !received.has(&web("web")));
    let expected = [
        "+Service shop/web:81",
        "+Service shop/other:82",
        "-Service shop/web",
    ];
    assert_eq!(source.since(&mut mark), expected);
}

#[test]
fn removes_an_object_that_no_longer_matches() {
    let (server, source) = start();
    let mut other = service("web", 80);
    other["metadata"]["labels"] =
        serde_json::json!({"service.kubernetes.io/service-proxy-name": ""});
    server.apply(other).unwrap();
    source.wait(|received| !received.has(&web("web")));
    server.apply(service("web", 80)).unwrap();
    source.wait(|received| received.has(&web("web")));
    let mut headless = service("web", 80);
    headless["spec"]["clusterIP"] = "None".into();
    server.apply(headless).unwrap();
    source.wait(|received| !received.has(&web("web")));
}

#[test]
fn resumes_a_watch_without_a_list() {
    let (server, source) = start();
    for (round, end) in [End::Clean, End::Abort, End::Clean].into_iter().enumerate() {
        let port = 100 + u16::try_from(round).unwrap();
        let version = server.apply(service("web", port)).unwrap().to_string();
        source.wait(|received| received.is(&web("web"), &port.to_string()));
        server.end_watches(Kind::Service, end);
        server
            .wait_until(|server| resumed_from(server).contains(&version))
            .unwrap();
        server
            .wait_until(|server| server.watches(Kind::Service) == 1)
            .unwrap();
    }
    server.apply(service("web", 200)).unwrap();
    source.wait(|received| received.is(&web("web"), "200"));
    assert_eq!(lists(&server, "services"), 1);
    assert!(source.seen(|seen| seen.restarts) >= 3);
}

#[test]
fn sends_changes_made_while_disconnected() {
    let (server, source) = start();
    server.refuse_connections(true).unwrap();
    server.reset_connections();
    server.apply(service("web", 81)).unwrap();
    server.apply(service("other", 80)).unwrap();
    server.delete(Kind::Service, "shop", "web");
    let_in(&server);
    source.wait(|received| received.has(&web("other")) && !received.has(&web("web")));
    assert_eq!(lists(&server, "services"), 1);
}

#[test]
fn bookmarks_advance_the_resource_version() {
    let server = quick_bookmarks();
    server.apply(service("web", 80)).unwrap();
    let source = Source::listed(&server);
    // Revisions that have nothing to do with Services.
    let cidr = ferrovia_lab::apiserver::sample::service_cidr("a", &["10.96.0.0/12"]);
    server.apply(cidr).unwrap();
    let now = server.revision();
    // The first bookmark to be heard may have been on its way already.
    let heard = source.seen(|seen| seen.heard_of_services);
    source.wait_seen(|seen| seen.heard_of_services >= heard + 2);
    server.end_watches(Kind::Service, End::Clean);
    server
        .wait_until(|server| !resumed_from(server).is_empty())
        .unwrap();
    let version: u64 = resumed_from(&server)[0].parse().unwrap();
    assert!(version >= now, "{version} is before {now}");
    assert_eq!(lists(&server, "services"), 1);
}

#[test]
fn relists_after_410_gone() {
    let (server, source) = start_in_json();
    // The version is too old when the watch is resumed: an error event in a good answer.
    server.refuse_connections(true).unwrap();
    server.reset_connections();
    server.apply(service("web", 81)).unwrap();
    server.compact();
    let_in(&server);
    source.wait(|received| received.is(&web("web"), "81"));
    assert_eq!(lists(&server, "services"), 2);

    // The same in the middle of a watch.
    let gone = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}}"#;
    server
        .wait_until(|server| server.watches(Kind::Service) == 1)
        .unwrap();
    server.write_to_watches(Kind::Service, format!("{gone}\n"));
    server
        .wait_until(|server| lists(server, "services") == 3)
        .unwrap();

    // And as the answer itself.
    let refused = Fault::code(http::StatusCode::GONE);
    server.inject_times(1, FaultTarget::watch(Kind::Service), refused);
    server
        .wait_until(|server| server.watches(Kind::Service) == 1)
        .unwrap();
    server.end_watches(Kind::Service, End::Clean);
    server
        .wait_until(|server| lists(server, "services") == 4)
        .unwrap();
    server.apply(service("web", 82)).unwrap();
    source.wait(|received| received.is(&web("web"), "82"));
}

#[test]
fn sends_duplicate_events_once() {
    let (server, source) = start();
    let mut mark = 0;
    source.since(&mut mark);
    server.inject(FaultTarget::watch(Kind::Service), Fault::Duplicate);
    server.apply(service("web", 81)).unwrap();
    server.delete(Kind::Service, "shop", "web");
    server.apply(service("last", 1)).unwrap();
    source.wait(|received| received.has(&web("last")));
    let expected = [
        "+Service shop/web:81",
        "-Service shop/web",
        "+Service shop/last:1",
    ];
    assert_eq!(source.since(&mut mark), expected);
}

#[test]
fn ignores_older_versions_of_reordered_events() {
    let (server, source) = start();
    let mut mark = 0;
    source.since(&mut mark);
    server.inject(FaultTarget::watch(Kind::Service), Fault::Reorder);
    // Pairs: the second of each comes first.
    server.apply(service("web", 81)).unwrap();
    server.apply(service("web", 82)).unwrap();
    source.wait(|received| received.is(&web("web"), "82"));
    server.apply(service("web", 83)).unwrap();
    server.delete(Kind::Service, "shop", "web");
    source.wait(|received| !received.has(&web("web")));
    server.apply(service("one", 1)).unwrap();
    server.apply(service("two", 2)).unwrap();
    source.wait(|received| received.has(&web("one")) && received.has(&web("two")));
    let expected = [
        "+Service shop/web:82",
        "-Service shop/web",
        "+Service shop/two:2",
        "+Service shop/one:1",
    ];
    assert_eq!(source.since(&mut mark), expected);
}

#[test]
fn skips_an_invalid_line() {
    let (server, source) = start_in_json();
    for garbage in ["garbage", "{}", "\u{0}\u{1}", r#"{"type":"ADDED"}"#] {
        server.write_to_watches(Kind::Service, format!("{garbage}\n"));
    }
    server.apply(service("web", 81)).unwrap();
    source.wait(|received| received.is(&web("web"), "81"));
    assert_eq!(
        requests(&server, "services").len(),
        1,
        "no reason to reconnect"
    );
}

#[test]
fn ends_a_watch_with_many_invalid_lines() {
    let (server, source) = start_in_json();
    server.write_to_watches(Kind::Service, "garbage\n".repeat(10));
    server
        .wait_until(|server| requests(server, "services").len() == 2)
        .unwrap();
    server.apply(service("web", 81)).unwrap();
    source.wait(|received| received.is(&web("web"), "81"));
    assert_eq!(lists(&server, "services"), 1);
}

#[test]
fn relists_after_a_watch_fails_twice_at_the_same_resource_version() {
    let (server, source) = start_in_json();
    let error = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"unable to decode watch event","reason":"InternalError","code":500}}"#;
    for requested in 1..=2 {
        server
            .wait_until(|server| {
                requests(server, "services").len() == requested
                    && server.watches(Kind::Service) == 1
            })
            .unwrap();
        assert_eq!(lists(&server, "services"), 1);
        server.write_to_watches(Kind::Service, format!("{error}\n"));
    }
    server
        .wait_until(|server| lists(server, "services") == 2)
        .unwrap();
    server.apply(service("web", 81)).unwrap();
    source.wait(|received| received.is(&web("web"), "81"));
}

#[test]
fn skips_a_huge_line() {
    let (server, source) = start_in_json();
    let padding = "x".repeat(5 << 20);
    for about in ["", r#""name":"web","namespace":"shop","#] {
        let huge = format!(
            r#"{{"type":"MODIFIED","object":{{"metadata":{{{about}"annotations":{{"a":"{padding}"}}}}}}}}"#
        );
        server.write_to_watches(Kind::Service, format!("{huge}\n"));
    }
    server.apply(service("web", 81)).unwrap();
    source.wait(|received| received.is(&web("web"), "81"));
    assert_eq!(requests(&server, "services").len(), 1);
}

#[test]
fn half_an_event_is_none() {
    let (server, source) = start();
    server.reset_in_next_write();
    server.apply(service("web", 81)).unwrap();
    source.wait(|received| received.is(&web("web"), "81"));
    assert_eq!(lists(&server, "services"), 1);
    assert!(requests(&server, "services").len() >= 2);
}

#[test]
fn an_unreadable_change_leaves_the_last_good_state() {
    let (server, source) = start();
    let mut mark = 0;
    source.since(&mut mark);
    let mut bad = service("web", 81);
    bad["spec"]["ports"][0]["port"] = "eighty".into();
    server.apply(bad).unwrap();
    server.apply(service("other", 1)).unwrap();
    source.wait(|received| received.has(&web("other")));
    assert_eq!(source.since(&mut mark), ["+Service shop/other:1"]);
    assert!(source.read(|received| received.is_complete && received.is(&web("web"), "80")));

    // One that never was readable is missing, until it goes.
    let mut bad = service("bad", 81);
    bad["spec"] = "none".into();
    server.apply(bad).unwrap();
    source.wait(|received| !received.is_complete);
    server.delete(Kind::Service, "shop", "bad");
    source.wait(|received| received.is_complete);
}

#[test]
fn relists_after_a_bookmark_with_an_older_resource_version() {
    let (server, source) = start_in_json();
    let past = r#"{"type":"BOOKMARK","object":{"kind":"Service","apiVersion":"v1","metadata":{"resourceVersion":"0"}}}"#;
    server.write_to_watches(Kind::Service, format!("{past}\n"));
    server
        .wait_until(|server| lists(server, "services") == 2)
        .unwrap();
    server.apply(service("web", 81)).unwrap();
    source.wait(|received| received.is(&web("web"), "81"));
}

#[test]
fn sends_only_objects_before_the_first_list_is_complete() {
    let server = server(ApiServerOptions::default());
    server.apply(service("web", 80)).unwrap();
    server.inject(FaultTarget::watch(Kind::EndpointSlice), Fault::Hang);
    let source = Source::of(&server);
    source.wait(|received| received.listed.len() == 4);
    assert!(!source.read(Received::is_listed));
}
