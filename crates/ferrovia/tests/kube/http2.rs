//! One connection for everything, and what becomes of it.

use std::time::Duration;

use ferrovia::source::kube::{ApiAccess, Times};
use ferrovia_lab::Folder;
use ferrovia_lab::apiserver::{ApiServer, ApiServerOptions, Auth, End, Kind};
use http::Version;

use super::support::{Source, lists, server, service, times, wait_until, web};

/// A server with TLS, and what a client needs to reach it.
struct Stage {
    server: ApiServer,
    folder: Folder,
}

impl Stage {
    fn new(mut options: ApiServerOptions) -> Self {
        options.tls = true;
        options.auth = Auth::Token;
        let server = server(options);
        server.apply(service("web", 80)).unwrap();
        let folder = Folder::new();
        Self { server, folder }
    }

    fn source(&self, times: Times) -> Source {
        let access = ApiAccess {
            kubeconfig: Some(self.server.kubeconfig(self.folder.path()).unwrap()),
            qps: -1.0,
            ..ApiAccess::default()
        };
        let source = Source::start(access, times);
        source.wait(|told| told.is_listed() && told.has(&web("web")));
        source
    }

    fn versions(&self) -> Vec<Version> {
        let requests = self.server.requests();
        let mut versions: Vec<_> = requests.iter().map(|request| request.version).collect();
        versions.dedup();
        versions
    }

    /// Makes a change, and waits until it was told.
    fn assert_followed(&self, source: &Source, port: u16) {
        self.server.apply(service("web", port)).unwrap();
        source.wait(|told| told.is(&web("web"), &port.to_string()));
    }

    fn end_watches(&self) {
        for kind in [
            Kind::Node,
            Kind::Service,
            Kind::EndpointSlice,
            Kind::ServiceCidr,
        ] {
            self.server.end_watches(kind, End::Clean);
        }
    }

    fn lists(&self) -> usize {
        let resources = ["nodes", "services", "endpointslices", "servicecidrs"];
        let count = |resource| lists(&self.server, resource);
        resources.into_iter().map(count).sum()
    }
}

#[test]
fn all_requests_share_one_connection() {
    let stage = Stage::new(ApiServerOptions::default());
    let source = stage.source(times());
    stage.assert_followed(&source, 81);
    assert_eq!(stage.versions(), [Version::HTTP_2]);
    assert_eq!(stage.server.connections_made(), 1);
}

#[test]
fn speaks_http_1_where_http_2_is_not_offered() {
    let stage = Stage::new(ApiServerOptions {
        http2: false,
        ..ApiServerOptions::default()
    });
    let source = stage.source(times());
    stage.assert_followed(&source, 81);
    assert_eq!(stage.versions(), [Version::HTTP_11]);
    assert_eq!(stage.server.connections_made(), 4);
}

#[test]
fn goaway_ends_no_watch_and_moves_the_next_ones_to_a_new_connection() {
    let stage = Stage::new(ApiServerOptions::default());
    let source = stage.source(times());
    stage.server.go_away();
    stage.assert_followed(&source, 81);
    assert_eq!(stage.server.connections_made(), 1);
    stage.end_watches();
    stage
        .server
        .wait_until(|s| s.connections_made() > 1)
        .unwrap();
    stage.assert_followed(&source, 82);
    // The one before has closed.
    wait_until(|| stage.server.connections() == 1);
    assert_eq!(stage.server.connections_made(), 2);
    assert_eq!((stage.lists(), source.seen(|seen| seen.relists)), (4, 0));
}

#[test]
fn goaway_again_and_again_loses_no_change() {
    let stage = Stage::new(ApiServerOptions::default());
    let source = stage.source(times());
    for port in 81..101 {
        stage.server.go_away();
        stage.server.end_watches(Kind::Service, End::Clean);
        stage.assert_followed(&source, port);
    }
    // A connection that closes in the very moment of a request costs a probe, which asks for the Node.
    assert_eq!(lists(&stage.server, "services"), 1);
    assert_eq!(source.seen(|seen| seen.relists), 0);
}

#[test]
fn a_connection_that_answers_no_ping_is_replaced() {
    let stage = Stage::new(ApiServerOptions::default());
    let mut times = times();
    times.ping = (Duration::from_secs(1), Duration::from_secs(1));
    let source = stage.source(times);
    stage.server.freeze_connections();
    stage.assert_followed(&source, 81);
    assert_eq!(source.seen(|seen| seen.relists), 0);
}

#[test]
fn a_connection_on_which_a_watch_falls_silent_is_replaced() {
    let stage = Stage::new(ApiServerOptions {
        bookmark_every: Duration::from_millis(50),
        ..ApiServerOptions::default()
    });
    let mut times = times();
    times.silence = Duration::from_secs(3);
    // No answer on the silent connection would come sooner than the test ends.
    times.answer = Duration::from_secs(3600);
    let source = stage.source(times);
    source.wait_seen(|seen| seen.heard_of_services > 2);
    stage.server.freeze_connections();
    stage.assert_followed(&source, 81);
}

#[test]
fn resets_are_survived_with_one_connection_each() {
    let stage = Stage::new(ApiServerOptions::default());
    let source = stage.source(times());
    for port in 81..86 {
        stage.server.reset_connections();
        stage.assert_followed(&source, port);
        wait_until(|| stage.server.watches(Kind::Node) == 1);
        wait_until(|| stage.server.watches(Kind::EndpointSlice) == 1);
    }
    assert_eq!(stage.versions(), [Version::HTTP_2]);
    assert_eq!(source.seen(|seen| seen.relists), 0);
}
