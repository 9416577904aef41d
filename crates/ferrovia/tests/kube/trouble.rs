//! Servers that are down, slow, silent, busy or forbidding.

use std::time::{Duration, Instant};

use ferrovia_core::wire::Kind as Kinds;
use ferrovia_lab::apiserver::{
    ApiServer, ApiServerOptions, End, Fault, FaultTarget, Interference, Kind, Request, sample,
};
use http::StatusCode;

use super::support::{
    Received, Source, access_to, let_in, lists, requests, server, service, times, wait_until, web,
};

fn with_service() -> ApiServer {
    let server = server(ApiServerOptions::default());
    server.apply(service("web", 80)).unwrap();
    server
}

#[test]
fn finds_a_server_that_starts_later() {
    let server = with_service();
    server.refuse_connections(true).unwrap();
    let source = Source::of(&server);
    source.wait_seen(|seen| seen.codes.len() > 8 && seen.codes.iter().all(Option::is_none));
    let_in(&server);
    source.wait(|received| received.is_listed() && received.has(&web("web")));
}

#[test]
fn one_probe_finds_the_server_for_all() {
    let server = with_service();
    server.refuse_connections(true).unwrap();
    let mut times = times();
    // None of the four asks by itself a second time.
    times.backoff_limit = Duration::from_secs(3600);
    let source = Source::start(access_to(&server), times);
    source.wait_seen(|seen| seen.codes.len() > 20);
    let_in(&server);
    source.wait(|received| received.is_listed() && received.has(&web("web")));
    let probe = |request: &Request| request.parameter("limit") == Some("1");
    assert_eq!(server.requests().iter().filter(|r| probe(r)).count(), 1);
}

#[test]
fn a_server_that_answers_no_probe_is_found_by_itself() {
    let server = with_service();
    server.refuse_connections(true).unwrap();
    server.inject(FaultTarget::list(Kind::Node), Fault::Reset);
    let source = Source::of(&server);
    source.wait_seen(|seen| seen.codes.len() > 8);
    let_in(&server);
    source.wait(|received| received.is_listed() && received.has(&web("web")));
}

#[test]
fn keeps_objects_while_the_server_is_unreachable() {
    let server = with_service();
    let source = Source::listed(&server);
    let mut mark = 0;
    source.since(&mut mark);
    server.refuse_connections(true).unwrap();
    server.reset_connections();
    source.wait_seen(|seen| seen.codes.iter().filter(|code| code.is_none()).count() > 8);
    assert_eq!(source.since(&mut mark), [""; 0]);
    let_in(&server);
    server.apply(service("web", 81)).unwrap();
    source.wait(|received| received.is(&web("web"), "81"));
}

#[test]
fn resumes_a_silent_watch() {
    let server = server(ApiServerOptions {
        bookmark_every: Duration::from_millis(50),
        ..ApiServerOptions::default()
    });
    server.apply(service("web", 80)).unwrap();
    let mut times = times();
    times.silence = Duration::from_secs(2);
    let source = Source::start(access_to(&server), times);
    source.wait(Received::is_listed);
    // Bookmarks keep it fresh and alive for longer than it may be silent.
    let start = Instant::now();
    wait_until(|| start.elapsed() > Duration::from_secs(4));
    wait_until(|| source.freshness.age(Instant::now()) < Duration::from_secs(1));

    server.inject(FaultTarget::watch(Kind::Service), Fault::Silence);
    server.apply(service("web", 81)).unwrap();
    let before = requests(&server, "services").len();
    server
        .wait_until(|server| requests(server, "services").len() > before)
        .unwrap();
    let resumed = &requests(&server, "services")[before];
    assert!(resumed.parameter("resourceVersion").is_some());

    // As after a restore from a backup: a server that says nothing for versions to come. A list finds out.
    server
        .wait_until(|server| lists(server, "services") > 1)
        .unwrap();
    server.heal().unwrap();
    source.wait(|received| received.is(&web("web"), "81"));
}

#[test]
fn resumes_a_watch_that_exceeds_its_timeout() {
    // This server sends no bookmarks, and does not end the watch.
    let server = with_service();
    let mut times = times();
    times.watch = (Duration::from_secs(1), Duration::from_secs(1));
    times.overdue = Duration::from_millis(500);
    let source = Source::start(access_to(&server), times);
    source.wait(Received::is_listed);
    server.inject(FaultTarget::watch(Kind::Service), Fault::Silence);
    server.interfere(Interference::Freeze);
    let before = source.seen(|seen| seen.restarts);
    source.wait_seen(|seen| seen.restarts > before);
    server.heal().unwrap();
    server.apply(service("web", 81)).unwrap();
    source.wait(|received| received.is(&web("web"), "81"));
}

#[test]
fn data_age_grows_while_nothing_is_received() {
    let server = with_service();
    let source = Source::listed(&server);
    server.interfere(Interference::Freeze);
    wait_until(|| source.freshness.age(Instant::now()) > Duration::from_secs(1));
    server.heal().unwrap();
    // More than once, for the age grows again while a busy machine does other things.
    let mut port = 81;
    wait_until(|| {
        server.apply(service("web", port)).unwrap();
        server.apply(sample::slice(1, 1)).unwrap();
        port += 1;
        source.freshness.age(Instant::now()) < Duration::from_secs(1)
    });
}

#[test]
fn gives_up_waiting_for_a_response() {
    let server = with_service();
    server.inject_times(1, FaultTarget::kind(Kind::Service), Fault::Hang);
    let mut times = times();
    times.answer = Duration::from_secs(1);
    let source = Source::start(access_to(&server), times);
    source.wait(Received::is_listed);
    assert!(source.read(|received| received.has(&web("web"))));
    // Something on the way may not like answers without an end.
    assert!(!requests(&server, "services")[1].is_watch());
}

#[test]
fn survives_connection_resets() {
    let server = with_service();
    server.inject_times(4, FaultTarget::ALL, Fault::Reset);
    server.inject_times(4, FaultTarget::ALL, Fault::Abort);
    let source = Source::listed(&server);
    assert!(source.read(|received| received.has(&web("web"))));
}

#[test]
fn a_slow_drip_arrives() {
    let server = server(ApiServerOptions::default());
    for i in 0..20 {
        server.apply(service(&format!("web-{i}"), 80)).unwrap();
    }
    server.interfere(Interference::Drip {
        bytes: 7,
        every: Duration::from_millis(1),
    });
    let source = Source::listed(&server);
    assert_eq!(source.read(|received| received.objects.len()), 20);
    assert_eq!(lists(&server, "services"), 1);
}

#[test]
fn waits_for_a_slow_receiver() {
    // On a busy machine the server itself may be silent for too long.
    assert!((0..5).any(|_| lists_for_a_slow_receiver() == 1));
}

fn lists_for_a_slow_receiver() -> usize {
    let server = server(ApiServerOptions::default());
    let objects = 5_000;
    server
        .apply_many((0..objects).map(sample::service))
        .unwrap();
    let mut times = times();
    times.list_silence = Duration::from_secs(3);
    let source = Source::start(access_to(&server), times);
    // Nothing is received while this is looked at; it lasts longer than the server may be silent.
    source.read(|_| std::thread::sleep(Duration::from_secs(5)));
    source.wait(Received::is_listed);
    assert_eq!(source.read(|received| received.objects.len()), 5_000);
    lists(&server, "services")
}

#[test]
fn honours_retry_after_of_a_busy_server() {
    let server = with_service();
    let busy = Fault::Code {
        code: StatusCode::TOO_MANY_REQUESTS,
        retry_after: Some(1),
    };
    server.inject_times(2, FaultTarget::kind(Kind::Service), busy);
    let source = Source::listed(&server);
    let at: Vec<_> = requests(&server, "services").iter().map(|r| r.at).collect();
    assert_eq!(at.len(), 3);
    assert!(at[1] - at[0] >= Duration::from_millis(990));
    assert!(at[2] - at[1] >= Duration::from_millis(990));
    drop(source);
}

#[test]
fn a_watch_that_priority_and_fairness_rejects_is_resumed_when_the_server_says() {
    let server = with_service();
    let source = Source::listed(&server);
    let rejected = Fault::Code {
        code: StatusCode::TOO_MANY_REQUESTS,
        retry_after: Some(1),
    };
    server.inject_times(2, FaultTarget::watch(Kind::Service), rejected);
    server.end_watches(Kind::Service, End::Clean);
    server
        .wait_until(|server| requests(server, "services").len() >= 4)
        .unwrap();
    let at: Vec<_> = requests(&server, "services").iter().map(|r| r.at).collect();
    assert!(at[2] - at[1] >= Duration::from_millis(990));
    assert!(at[3] - at[2] >= Duration::from_millis(990));
    server.apply(service("web", 81)).unwrap();
    source.wait(|received| received.is(&web("web"), "81"));
    assert_eq!(lists(&server, "services"), 1);
}

#[test]
fn honours_retry_after_of_a_starting_server() {
    let server = with_service();
    let starting = Fault::Code {
        code: StatusCode::SERVICE_UNAVAILABLE,
        retry_after: Some(1),
    };
    server.inject_times(2, FaultTarget::kind(Kind::Service), starting);
    let source = Source::listed(&server);
    let at: Vec<_> = requests(&server, "services").iter().map(|r| r.at).collect();
    assert!(at[1] - at[0] >= Duration::from_millis(990));
    assert!(at[2] - at[1] >= Duration::from_millis(990));
    drop(source);
}

#[test]
fn retries_forbidden_resources() {
    let server = with_service();
    server.inject(FaultTarget::kind(Kind::Service), Fault::Forbid);
    let source = Source::of(&server);
    server
        .wait_until(|server| requests(server, "services").len() > 3)
        .unwrap();
    assert!(!source.read(|received| received.listed.contains(&Kinds::Service)));
    server.heal().unwrap();
    source.wait(|received| received.is_listed() && received.has(&web("web")));
}

#[test]
fn service_cidrs_may_be_missing() {
    let server = server(ApiServerOptions {
        service_cidrs: false,
        ..ApiServerOptions::default()
    });
    let source = Source::listed(&server);
    // It is asked for again, and listed only once.
    server
        .wait_until(|server| requests(server, "servicecidrs").len() > 3)
        .unwrap();
    let log = source.read(|received| received.log.clone());
    let listed = log.iter().filter(|line| *line == "listed ServiceCIDR");
    assert_eq!(listed.count(), 1);
}

#[test]
fn service_cidrs_may_be_forbidden_and_come_later() {
    let server = server(ApiServerOptions::default());
    let cidr = sample::service_cidr("kubernetes", &["10.96.0.0/12"]);
    server.apply(cidr).unwrap();
    server.inject(FaultTarget::kind(Kind::ServiceCidr), Fault::Forbid);
    let source = Source::listed(&server);
    assert!(source.read(|received| received.objects.is_empty()));
    server.heal().unwrap();
    source.wait(|received| received.has("ServiceCIDR /kubernetes"));
    // Forbidden for a while: what is known stays.
    server.inject(FaultTarget::kind(Kind::ServiceCidr), Fault::Forbid);
    let before = requests(&server, "servicecidrs").len();
    server.end_watches(Kind::ServiceCidr, End::Clean);
    server
        .wait_until(|server| requests(server, "servicecidrs").len() > before + 1)
        .unwrap();
    server.delete(Kind::ServiceCidr, "", "kubernetes");
    assert!(source.read(|received| received.has("ServiceCIDR /kubernetes")));
    server.heal().unwrap();
    source.wait(|received| !received.has("ServiceCIDR /kubernetes"));
}

/// A starting API server answers 403 until it has loaded its roles.
#[test]
fn retries_service_cidrs_soon_that_are_forbidden_while_the_server_starts() {
    let server = server(ApiServerOptions::default());
    let cidr = sample::service_cidr("kubernetes", &["10.96.0.0/12"]);
    server.apply(cidr).unwrap();
    server.inject(FaultTarget::kind(Kind::ServiceCidr), Fault::Forbid);
    let mut times = times();
    times.absent = Duration::from_secs(3600);
    let source = Source::start(access_to(&server), times);
    source.wait(Received::is_listed);
    server.heal().unwrap();
    source.wait(|received| received.has("ServiceCIDR /kubernetes"));
}

#[test]
fn requests_are_no_more_frequent_than_allowed() {
    let server = server(ApiServerOptions {
        watch_lists: ferrovia_lab::apiserver::WatchListSupport::Forbidden,
        ..ApiServerOptions::default()
    });
    let mut access = access_to(&server);
    access.qps = 10.0;
    access.burst = 2;
    let start = Instant::now();
    let source = Source::start(access, times());
    source.wait(Received::is_listed);
    server
        .wait_until(|server| server.requests().len() >= 12)
        .unwrap();
    // Four refused, four lists, four watches: two at once, and then one every 100 ms.
    let took = server.requests()[11].at - start;
    assert!(took >= Duration::from_secs(1), "{took:?}");
    assert!(source.seen(|seen| seen.held_back) > 0);
}

#[test]
fn observers_get_status_codes() {
    let server = with_service();
    let refused = Fault::code(StatusCode::SERVICE_UNAVAILABLE);
    server.inject_times(1, FaultTarget::kind(Kind::Service), refused);
    let source = Source::listed(&server);
    let mut codes = source.seen(|seen| seen.codes.clone());
    codes.sort_unstable();
    assert_eq!(codes, [200, 200, 200, 200, 503].map(Some));
}
