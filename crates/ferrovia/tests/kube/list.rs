//! Watch-lists and paged lists, and the changes that a second list sends.

use std::time::Duration;

use ferrovia_lab::apiserver::{
    ApiServer, ApiServerOptions, Fault, FaultTarget, Interference, Kind, WatchListSupport, sample,
};
use http::StatusCode;

use super::support::{
    NODE, Received, Source, access_to, let_in, lists, requests, server, service, times, web,
};

fn with_lists(watch_lists: WatchListSupport) -> ApiServer {
    server(ApiServerOptions {
        watch_lists,
        ..ApiServerOptions::default()
    })
}

/// A server that sends pages even where a watch cache would do.
fn with_pages() -> ApiServer {
    server(ApiServerOptions {
        watch_lists: WatchListSupport::Forbidden,
        watch_cache: false,
        ..ApiServerOptions::default()
    })
}

#[test]
fn a_watch_list_is_one_request_per_resource() {
    let server = with_lists(WatchListSupport::Served);
    let addresses = ["198.51.100.1".parse().unwrap()];
    server.apply(sample::node(NODE, &addresses)).unwrap();
    server.apply(sample::node("another", &addresses)).unwrap();
    server.apply(service("web", 80)).unwrap();
    server.apply(sample::slice(7, 2)).unwrap();
    let cidr = sample::service_cidr("kubernetes", &["10.96.0.0/12"]);
    server.apply(cidr).unwrap();
    let source = Source::listed(&server);
    source.read(|received| {
        let names: Vec<_> = received.objects.keys().map(String::as_str).collect();
        let slice = names[0].strip_prefix("EndpointSlice shop/web-00007");
        assert!(slice.is_some(), "{names:?}");
        let rest = [
            "Node /node-1",
            "Service shop/web",
            "ServiceCIDR /kubernetes",
        ];
        assert_eq!(names[1..], rest);
        assert!(received.is_complete);
    });
    for kind in Kind::ALL {
        let requests = requests(&server, kind.resource());
        assert_eq!(requests.len(), 1, "{requests:#?}");
        let request = &requests[0];
        assert_eq!(request.path, kind.path());
        assert_eq!(request.parameter("sendInitialEvents"), Some("true"));
        assert_eq!(
            request.parameter("resourceVersionMatch"),
            Some("NotOlderThan")
        );
        assert_eq!(request.parameter("allowWatchBookmarks"), Some("true"));
        let lasts: u64 = request
            .parameter("timeoutSeconds")
            .unwrap()
            .parse()
            .unwrap();
        assert!((300..=600).contains(&lasts), "{lasts}");
        let agent = request.headers["user-agent"].to_str().unwrap();
        assert!(agent.starts_with("kube-proxy/v1.36.4 (linux/"), "{agent}");
    }
}

#[test]
fn lists_come_compressed_and_watches_do_not() {
    for pages in [with_pages(), with_lists(WatchListSupport::Forbidden)] {
        pages.apply_many((0..1200).map(sample::service)).unwrap();
        let source = Source::listed(&pages);
        assert_eq!(source.read(|received| received.objects.len()), 1200);
        pages
            .wait_until(|server| server.watches(Kind::Service) == 1)
            .unwrap();
        for request in requests(&pages, "services") {
            let asked = request.headers.get("accept-encoding");
            assert_eq!(asked.is_some(), !request.is_watch(), "{request:?}");
        }
        // The server compressed what it was asked to, and that was read.
        assert!(pages.compressed() > 0);
    }
}

#[test]
fn falls_back_to_pages_if_watch_lists_are_rejected() {
    let server = with_pages();
    server.apply_many((0..1200).map(sample::service)).unwrap();
    let source = Source::listed(&server);
    assert_eq!(source.read(|received| received.objects.len()), 1200);
    let requests = requests(&server, "services");
    let pages: Vec<_> = requests.iter().filter(|r| !r.is_watch()).collect();
    assert_eq!(pages.len(), 3);
    assert!(pages.iter().all(|r| r.parameter("limit") == Some("500")));
    server.apply(service("late", 1)).unwrap();
    source.wait(|received| received.has(&web("late")));
    assert_eq!(
        lists(&server, "services"),
        2,
        "one that was refused, one in pages"
    );
}

#[test]
fn falls_back_to_pages_if_watch_lists_are_ignored() {
    let server = server(ApiServerOptions {
        watch_lists: WatchListSupport::Ignored,
        bookmark_every: Duration::from_millis(20),
        ..ApiServerOptions::default()
    });
    server.apply(service("web", 80)).unwrap();
    let source = Source::listed(&server);
    assert!(source.read(|received| received.is(&web("web"), "80")));
    let paged = requests(&server, "services");
    assert!(paged.iter().any(|r| r.parameter("limit").is_some()));
}

#[test]
fn gives_up_a_watch_list_without_an_end() {
    // No bookmarks and no end: the server says nothing more.
    let server = with_lists(WatchListSupport::Ignored);
    server.apply(service("web", 80)).unwrap();
    let mut times = times();
    times.list_silence = Duration::from_secs(1);
    let source = Source::start(access_to(&server), times);
    source.wait(Received::is_listed);
    let log = source.read(|received| received.log.clone());
    let received = log.iter().filter(|line| line.starts_with("+Service"));
    assert_eq!(
        received.count(),
        1,
        "objects of the watch-list are not sent again"
    );
}

#[test]
fn restarts_the_list_after_an_expired_page() {
    let server = with_pages();
    server.apply_many((0..1200).map(sample::service)).unwrap();
    // Long enough to act between two pages.
    let slow = Fault::Delay(Duration::from_secs(3));
    server.inject(FaultTarget::list(Kind::Service), slow);
    let source = Source::of(&server);
    let second = |server: &ApiServer| {
        let requests = requests(server, "services");
        requests.iter().any(|r| r.parameter("continue").is_some())
    };
    server.wait_until(second).unwrap();
    server.apply(service("late", 1)).unwrap();
    server.compact();
    source.wait(Received::is_listed);
    assert_eq!(source.read(|received| received.objects.len()), 1201);
    let requests = requests(&server, "services");
    let whole = requests
        .iter()
        .filter(|r| !r.is_watch() && r.parameter("limit").is_none());
    assert_eq!(whole.count(), 1);
}

#[test]
fn a_second_list_sends_only_changes() {
    for style in [WatchListSupport::Served, WatchListSupport::Forbidden] {
        let server = with_lists(style);
        for name in ["goes", "changes", "stays"] {
            server.apply(service(name, 80)).unwrap();
        }
        let source = Source::listed(&server);
        let mut mark = 0;
        source.since(&mut mark);

        server.refuse_connections(true).unwrap();
        server.reset_connections();
        server.delete(Kind::Service, "shop", "goes");
        server.apply(service("changes", 81)).unwrap();
        server.apply(service("comes", 80)).unwrap();
        server.compact();
        let_in(&server);
        source.wait(|received| !received.has(&web("goes")));
        let mut news = source.since(&mut mark);
        news.sort();
        let expected = [
            "+Service shop/changes:81",
            "+Service shop/comes:80",
            "-Service shop/goes",
        ];
        assert_eq!(news, expected, "{style:?}");
        assert!(source.seen(|seen| seen.relists) > 0);

        server.apply(service("comes", 82)).unwrap();
        source.wait(|received| received.is(&web("comes"), "82"));
    }
}

#[test]
fn a_truncated_list_removes_nothing() {
    for style in [WatchListSupport::Served, WatchListSupport::Forbidden] {
        let server = with_lists(style);
        server.apply_many((0..600).map(sample::service)).unwrap();
        let source = Source::listed(&server);
        let mut mark = 0;
        source.since(&mut mark);
        // The next list is slow, and cut off in the middle.
        server.refuse_connections(true).unwrap();
        server.reset_connections();
        server.apply(service("late", 1)).unwrap();
        server.compact();
        let interference = Interference::Drip {
            bytes: 2000,
            every: Duration::from_millis(5),
        };
        server.interfere(interference);
        let before = lists(&server, "services");
        let_in(&server);
        server
            .wait_until(|server| lists(server, "services") > before)
            .unwrap();
        server.reset_connections();
        server.heal().unwrap();
        source.wait_seen(|seen| seen.relists > 0);
        server.apply(service("later", 1)).unwrap();
        source.wait(|received| received.has(&web("later")));
        let expected = ["+Service shop/late:1", "+Service shop/later:1"];
        assert_eq!(source.since(&mut mark), expected, "{style:?}");
    }
}

#[test]
fn retries_a_rejected_list() {
    let server = with_lists(WatchListSupport::Served);
    server.apply(service("web", 80)).unwrap();
    let refused = Fault::code(StatusCode::INTERNAL_SERVER_ERROR);
    server.inject_times(3, FaultTarget::kind(Kind::Service), refused);
    let source = Source::listed(&server);
    assert!(source.read(|received| received.has(&web("web"))));
    assert_eq!(lists(&server, "services"), 4);
}

#[test]
fn an_unreadable_object_of_a_list_does_not_affect_others() {
    for style in [WatchListSupport::Served, WatchListSupport::Forbidden] {
        let server = with_lists(style);
        server.apply(service("good", 80)).unwrap();
        let mut bad = service("bad", 80);
        bad["spec"]["ports"] = "many".into();
        server.apply(bad).unwrap();
        server.apply(service("well", 80)).unwrap();
        let source = Source::listed(&server);
        assert_eq!(source.read(|received| received.objects.len()), 2);
        assert!(
            !source.read(|received| received.is_complete),
            "one object is missing"
        );
        server.apply(service("bad", 81)).unwrap();
        source.wait(|received| received.is(&web("bad"), "81") && received.is_complete);
    }
}
