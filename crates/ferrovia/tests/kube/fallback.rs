//! What a watch-list or a watch that fails leads to, and how fresh the list after it has to be.

use std::time::Duration;

use ferrovia_core::wire::Kind as Kinds;
use ferrovia_lab::apiserver::{
    ApiServer, ApiServerOptions, End, Fault, FaultTarget, Kind, Request, WatchListSupport, sample,
};
use http::StatusCode;

use super::support::{
    Received, Source, access_to, let_in, lists, requests, server, service, times, web,
};

fn with_service() -> ApiServer {
    let server = server(ApiServerOptions::default());
    server.apply(service("web", 80)).unwrap();
    server
}

fn is_watch_list(request: &Request) -> bool {
    request.parameter("sendInitialEvents").is_some()
}

fn is_page(request: &Request) -> bool {
    !request.is_watch()
}

/// The requests for Services of a sort.
fn of_sort(server: &ApiServer, is_it: fn(&Request) -> bool) -> Vec<Request> {
    let mut all = requests(server, "services");
    all.retain(is_it);
    all
}

#[test]
fn falls_back_to_paged_list_whatever_ends_the_watch_list() {
    let code = |code| Fault::code(StatusCode::from_u16(code).unwrap());
    let faults = [
        code(400),
        code(404),
        code(405),
        code(500),
        code(501),
        code(503),
        code(504),
        Fault::Forbid,
        Fault::Garbage,
        Fault::BreakOff,
        Fault::Abort,
        Fault::Reset,
    ];
    for fault in faults {
        let server = with_service();
        server.inject(FaultTarget::watch_list(Kind::Service), fault);
        let source = Source::listed(&server);
        assert!(
            source.read(|received| received.has(&web("web"))),
            "{fault:?}"
        );
        server.apply(service("web", 81)).unwrap();
        source.wait(|received| received.is(&web("web"), "81"));
        let watch_lists = of_sort(&server, is_watch_list).len();
        assert_eq!(watch_lists, 1, "{fault:?}");
    }
}

#[test]
fn a_storage_without_progress_reports_is_listed_in_pages_at_first() {
    let server = server(ApiServerOptions {
        watch_lists: WatchListSupport::WithoutProgress,
        ..ApiServerOptions::default()
    });
    server.apply(service("web", 80)).unwrap();
    let source = Source::listed(&server);
    assert!(source.read(|received| received.has(&web("web"))));
    assert_eq!(of_sort(&server, is_watch_list).len(), 1);
    assert_eq!(of_sort(&server, is_page).len(), 1);
}

#[test]
fn a_watch_list_is_tried_again_after_a_while() {
    let server = with_service();
    let refused = Fault::code(StatusCode::SERVICE_UNAVAILABLE);
    server.inject_times(1, FaultTarget::watch_list(Kind::Service), refused);
    let mut times = times();
    times.watch_list_retry = Duration::ZERO;
    let source = Source::start(access_to(&server), times);
    source.wait(Received::is_listed);
    assert_eq!(of_sort(&server, is_watch_list).len(), 2);
    assert!(of_sort(&server, is_page).is_empty());
}

#[test]
fn keeps_watch_lists_when_the_server_is_unreachable_or_busy() {
    let server = with_service();
    let busy = Fault::code(StatusCode::TOO_MANY_REQUESTS);
    server.inject_times(2, FaultTarget::watch_list(Kind::Service), busy);
    server.refuse_connections(true).unwrap();
    let source = Source::of(&server);
    source.wait_seen(|seen| seen.codes.len() > 8);
    let_in(&server);
    source.wait(Received::is_listed);
    assert_eq!(of_sort(&server, is_watch_list).len(), 3);
    assert!(of_sort(&server, is_page).is_empty());
}

#[test]
fn polls_the_list_where_watch_is_forbidden() {
    let server = with_service();
    server.inject(FaultTarget::watch(Kind::Service), Fault::Forbid);
    server.inject(FaultTarget::watch(Kind::ServiceCidr), Fault::Forbid);
    let cidr = sample::service_cidr("kubernetes", &["10.96.0.0/12"]);
    server.apply(cidr).unwrap();
    let source = Source::listed(&server);
    assert!(
        source
            .read(|received| received.has(&web("web")) && received.has("ServiceCIDR /kubernetes"))
    );
    for port in ["81", "82"] {
        server.apply(service("web", port.parse().unwrap())).unwrap();
        source.wait(|received| received.is(&web("web"), port));
    }
    // Once it is granted there are no more lists.
    server.heal().unwrap();
    server
        .wait_until(|server| server.watches(Kind::Service) == 1)
        .unwrap();
    let polled = lists(&server, "services");
    server.apply(service("web", 83)).unwrap();
    source.wait(|received| received.is(&web("web"), "83"));
    assert_eq!(lists(&server, "services"), polled);
}

#[test]
fn a_role_that_grants_watch_and_not_list_is_enough() {
    let server = with_service();
    server.inject(FaultTarget::list(Kind::Service), Fault::Forbid);
    let broken = Fault::code(StatusCode::INTERNAL_SERVER_ERROR);
    server.inject_times(1, FaultTarget::watch_list(Kind::Service), broken);
    let source = Source::listed(&server);
    assert!(source.read(|received| received.has(&web("web"))));
}

#[test]
fn a_refused_watch_leads_to_a_relist() {
    for code in [404, 500, 502, 503] {
        let server = with_service();
        let source = Source::listed(&server);
        let refused = Fault::code(StatusCode::from_u16(code).unwrap());
        server.inject_times(1, FaultTarget::watch(Kind::Service), refused);
        let before = lists(&server, "services");
        server.end_watches(Kind::Service, End::Abort);
        server
            .wait_until(|server| lists(server, "services") > before)
            .unwrap();
        server.apply(service("web", 81)).unwrap();
        source.wait(|received| received.is(&web("web"), "81"));
    }
}

#[test]
fn does_not_relist_after_429_or_401() {
    for code in [401, 429] {
        let server = with_service();
        let source = Source::listed(&server);
        let refused = Fault::code(StatusCode::from_u16(code).unwrap());
        server.inject_times(3, FaultTarget::watch(Kind::Service), refused);
        server.end_watches(Kind::Service, End::Abort);
        server.apply(service("web", 81)).unwrap();
        source.wait(|received| received.is(&web("web"), "81"));
        assert_eq!(lists(&server, "services"), 1, "{code}");
    }
}

#[test]
fn accepts_delayed_headers_of_a_watch() {
    let server = with_service();
    server.inject(FaultTarget::watch(Kind::Service), Fault::HoldHeaders);
    let mut times = times();
    times.answer = Duration::from_secs(2);
    times.page = Duration::from_secs(2);
    let source = Source::start(access_to(&server), times);
    source.wait(Received::is_listed);
    server.end_watches(Kind::Service, End::Abort);
    let is_resumed = |request: &Request| request.is_watch() && !is_watch_list(request);
    server
        .wait_until(|server| requests(server, "services").iter().any(is_resumed))
        .unwrap();
    // Far longer than any limit but the watch's own.
    std::thread::sleep(Duration::from_secs(5));
    server.apply(service("web", 81)).unwrap();
    source.wait(|received| received.is(&web("web"), "81"));
    assert_eq!(requests(&server, "services").len(), 2);
}

#[test]
fn retries_a_list_without_response() {
    let server = with_service();
    server.inject(FaultTarget::watch_list(Kind::Service), Fault::Hang);
    server.inject_times(2, FaultTarget::list(Kind::Service), Fault::Hang);
    let mut times = times();
    times.answer = Duration::from_secs(1);
    times.page = Duration::from_secs(1);
    let source = Source::start(access_to(&server), times);
    source.wait(|received| received.is_listed() && received.has(&web("web")));
    assert_eq!(of_sort(&server, is_page).len(), 3);
}

#[test]
fn retries_a_watch_without_response() {
    let server = with_service();
    let mut times = times();
    times.watch = (Duration::from_secs(1), Duration::from_secs(1));
    times.overdue = Duration::from_millis(500);
    let source = Source::start(access_to(&server), times);
    source.wait(Received::is_listed);
    server.inject_times(2, FaultTarget::watch(Kind::Service), Fault::Hang);
    server.apply(service("web", 81)).unwrap();
    source.wait(|received| received.is(&web("web"), "81"));
    server.apply(service("web", 82)).unwrap();
    source.wait(|received| received.is(&web("web"), "82"));
}

/// The resourceVersion of each page of Services, and whether it is limited.
fn freshness(server: &ApiServer) -> Vec<(Option<String>, bool)> {
    let pages = of_sort(server, is_page);
    let of_page = |request: &Request| {
        let version = request.parameter("resourceVersion").map(str::to_owned);
        (version, request.parameter("limit").is_some())
    };
    pages.iter().map(of_page).collect()
}

#[test]
fn only_a_resource_version_that_the_server_lacks_costs_a_consistent_read() {
    let server = server(ApiServerOptions {
        watch_lists: WatchListSupport::Forbidden,
        ..ApiServerOptions::default()
    });
    server.apply(service("web", 80)).unwrap();
    let source = Source::listed(&server);
    assert_eq!(freshness(&server), [(Some("0".to_owned()), true)]);

    // Not as old as that again, for it would go back in time.
    let known = server.apply(service("web", 81)).unwrap().to_string();
    source.wait(|received| received.is(&web("web"), "81"));
    server
        .wait_until(|server| server.watches(Kind::Service) == 1)
        .unwrap();
    let refused = Fault::code(StatusCode::INTERNAL_SERVER_ERROR);
    server.inject_times(1, FaultTarget::watch(Kind::Service), refused);
    server.end_watches(Kind::Service, End::Abort);
    server
        .wait_until(|server| freshness(server).len() == 2 && server.watches(Kind::Service) == 1)
        .unwrap();
    assert_eq!(freshness(&server)[1], (Some(known.clone()), false));

    // A list that has expired by the time it is asked for.
    let expired = Fault::code(StatusCode::GONE);
    server.inject_times(1, FaultTarget::list(Kind::Service), expired);
    server.inject_times(1, FaultTarget::watch(Kind::Service), refused);
    server.end_watches(Kind::Service, End::Abort);
    server
        .wait_until(|server| freshness(server).len() == 4)
        .unwrap();
    assert_eq!(
        freshness(&server)[2..],
        [(Some(known), false), (None, true)]
    );
    assert!(source.read(|received| received.listed.contains(&Kinds::Service)));
}

#[test]
fn a_restored_backup_is_followed_to_its_true_state() {
    for style in [WatchListSupport::Served, WatchListSupport::Forbidden] {
        let server = server(ApiServerOptions {
            watch_lists: style,
            bookmark_every: Duration::from_millis(50),
            ..ApiServerOptions::default()
        });
        server.apply(service("stays", 80)).unwrap();
        server.apply(service("goes", 80)).unwrap();
        let backup = server.back_up();
        // The same revisions as after the restore, for other changes.
        server.apply(service("stays", 81)).unwrap();
        server.delete(Kind::Service, "shop", "goes");
        server.apply(service("later", 80)).unwrap();
        let source = Source::listed(&server);
        assert!(
            source.read(|received| received.is(&web("stays"), "81") && !received.has(&web("goes")))
        );

        // A connection that the server has not taken yet would outlive the restore, as none does when a real server is restarted.
        server
            .wait_until(|server| server.watches(Kind::Service) == 1)
            .unwrap();
        server.refuse_connections(true).unwrap();
        server.restore(&backup);
        server.apply(service("stays", 82)).unwrap();
        let_in(&server);
        source.wait(|received| {
            received.is(&web("stays"), "82")
                && received.has(&web("goes"))
                && !received.has(&web("later"))
        });
        server.apply(service("new", 80)).unwrap();
        source.wait(|received| received.has(&web("new")));
    }
}

/// A server that starts refuses what it grants a moment later, and a refused probe has no resourceVersion.
#[test]
fn a_restored_backup_is_detected_although_the_first_probe_is_refused() {
    let server = server(ApiServerOptions::default());
    server.apply(service("stays", 80)).unwrap();
    let backup = server.back_up();
    server.apply(service("stays", 81)).unwrap();
    server.apply(service("later", 80)).unwrap();
    let source = Source::listed(&server);
    let all = [Kind::Service, Kind::EndpointSlice, Kind::Node];
    server
        .wait_until(|server| all.iter().all(|kind| server.watches(*kind) == 1))
        .unwrap();

    server.refuse_connections(true).unwrap();
    let refused = Fault::code(StatusCode::SERVICE_UNAVAILABLE);
    server.inject_times(1, FaultTarget::list(Kind::Node), refused);
    server.restore(&backup);
    let_in(&server);
    source.wait(|received| received.is(&web("stays"), "80") && !received.has(&web("later")));
}
