//! Events we post.

use std::sync::Arc;

use ferrovia::kube_event::{Notice, Regarding, Severity};
use ferrovia::source::kube::events::{Reporter, noticeboard};
use ferrovia::source::kube::{Api, Unobserved};
use ferrovia_core::model::ServiceKey;
use ferrovia_lab::apiserver::{ApiServer, ApiServerOptions, Fault, FaultTarget, Verb};
use http::StatusCode;

use super::support::{access_to, runtime, server, times};

fn notice(regarding: Regarding, note: &str) -> Notice {
    Notice {
        regarding,
        severity: Severity::Normal,
        reason: "Starting",
        action: "StartKubeProxy",
        note: note.to_owned(),
    }
}

/// Posts notices and waits until all work is done.
fn post(server: &ApiServer, notices: Vec<Notice>) {
    let access = access_to(server);
    runtime().block_on(async move {
        let api = Api::open(access, times(), Arc::new(Unobserved))
            .await
            .unwrap();
        let reporter = Reporter {
            node_name: "node-1".to_owned(),
            hostname: "host-1".to_owned(),
        };
        let (board, work) = noticeboard(api, reporter);
        notices.into_iter().for_each(|notice| board(notice));
        drop(board);
        work.await;
    });
}

#[test]
fn notices_become_events() {
    let server = server(ApiServerOptions::default());
    let about_service = Regarding::Service(ServiceKey::new("shop", "web").unwrap());
    post(
        &server,
        vec![
            notice(Regarding::Node, ""),
            notice(Regarding::Node, ""),
            notice(about_service, "a port is taken"),
        ],
    );
    let events = server.events();
    assert_eq!(events.len(), 2, "the same is not said twice");
    assert_eq!(events[0]["reportingController"], "kube-proxy");
    assert_eq!(events[0]["reportingInstance"], "kube-proxy-host-1");
    assert_eq!(events[0]["reason"], "Starting");
    assert_eq!(events[0]["action"], "StartKubeProxy");
    assert_eq!(events[0]["type"], "Normal");
    assert_eq!(events[0]["regarding"]["name"], "node-1");
    assert_eq!(events[1]["regarding"]["namespace"], "shop");
    assert_eq!(events[1]["note"], "a port is taken");
    let paths: Vec<_> = server.requests().iter().map(|r| r.path.clone()).collect();
    let expected = [
        "/apis/events.k8s.io/v1/namespaces/default/events",
        "/apis/events.k8s.io/v1/namespaces/shop/events",
    ];
    assert_eq!(paths, expected);
}

#[test]
fn retries_a_rejected_event_only_if_that_may_succeed() {
    let server = server(ApiServerOptions::default());
    server.inject_times(1, FaultTarget::verb(Verb::Create), Fault::Forbid);
    let unwell = Fault::code(StatusCode::SERVICE_UNAVAILABLE);
    server.inject_times(1, FaultTarget::verb(Verb::Create), unwell);
    post(
        &server,
        vec![
            notice(Regarding::Node, "forbidden"),
            notice(Regarding::Node, "later"),
        ],
    );
    let notes: Vec<_> = server.events().iter().map(|e| e["note"].clone()).collect();
    assert_eq!(notes, ["later"]);
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn the_board_never_waits() {
    let server = server(ApiServerOptions::default());
    server.inject(FaultTarget::ALL, Fault::Hang);
    let access = access_to(&server);
    runtime().block_on(async move {
        let api = Api::open(access, times(), Arc::new(Unobserved))
            .await
            .unwrap();
        let reporter = Reporter {
            node_name: "node-1".to_owned(),
            hostname: "host-1".to_owned(),
        };
        let (board, _work) = noticeboard(api, reporter);
        for i in 0..10_000 {
            board(notice(Regarding::Node, &i.to_string()));
        }
    });
}
