//! Protobuf and JSON: what is asked for, what is understood, and frames that are no events.

use std::time::Duration;

use ferrovia::source::kube::Encoding;
use ferrovia_core::wire::protobuf::{
    EnvelopeMessage, MAGIC, MetadataMessage, RawMessage, ServiceMessage, StatusMessage,
    WatchEventMessage,
};
use ferrovia_lab::apiserver::{
    ApiServer, ApiServerOptions, Fault, FaultTarget, Kind, WatchListSupport, sample,
};
use http::StatusCode;
use prost::Message;

use super::support::{
    NODE, Received, Source, access_to, let_in, lists, requests, server, service, times, web,
};

const PROTOBUF_OR_JSON: &str = "application/vnd.kubernetes.protobuf,application/json";

/// A server that answers in this encoding to a client that would take either.
fn answering(encoding: Encoding, watch_lists: WatchListSupport) -> ApiServer {
    server(ApiServerOptions {
        protobuf: encoding == Encoding::Protobuf,
        watch_lists,
        ..ApiServerOptions::default()
    })
}

fn in_both(check: impl Fn(Encoding)) {
    for encoding in [Encoding::Protobuf, Encoding::Json] {
        check(encoding);
    }
}

fn accepted(server: &ApiServer) -> Vec<String> {
    let accept = |request: &ferrovia_lab::apiserver::Request| {
        let value = request.headers.get("accept")?.to_str().ok()?;
        Some(value.to_owned())
    };
    let all = requests(server, "services");
    all.iter().filter_map(accept).collect()
}

fn start() -> (ApiServer, Source) {
    let server = server(ApiServerOptions::default());
    server.apply(service("web", 80)).unwrap();
    let source = Source::listed(&server);
    (server, source)
}

#[test]
fn reads_objects_of_every_kind_in_both_encodings() {
    in_both(|encoding| {
        for lists in [WatchListSupport::Served, WatchListSupport::Forbidden] {
            let server = answering(encoding, lists);
            let addresses = ["198.51.100.1".parse().unwrap()];
            server.apply(sample::node(NODE, &addresses)).unwrap();
            server.apply_many((0..1200).map(sample::service)).unwrap();
            server.apply(sample::slice(7, 2)).unwrap();
            let cidr = sample::service_cidr("kubernetes", &["10.96.0.0/12"]);
            server.apply(cidr).unwrap();
            let source = Source::listed(&server);
            assert_eq!(source.read(|known| known.objects.len()), 1203);
            assert!(source.read(|known| known.is_complete), "{encoding:?}");
            assert_eq!(accepted(&server)[0], PROTOBUF_OR_JSON);
        }
    });
}

#[test]
fn reads_changes_and_relists_in_both_encodings() {
    in_both(|encoding| {
        let server = answering(encoding, WatchListSupport::Served);
        server.apply(service("web", 80)).unwrap();
        server.apply(service("other", 80)).unwrap();
        let source = Source::listed(&server);
        server.apply(service("web", 81)).unwrap();
        server.delete(Kind::Service, "shop", "other");
        source.wait(|known| known.is(&web("web"), "81") && !known.has(&web("other")));
        // The version is too old when the watch is resumed: an error event in a good answer.
        server.refuse_connections(true).unwrap();
        server.reset_connections();
        server.apply(service("web", 82)).unwrap();
        server.compact();
        let_in(&server);
        source.wait(|known| known.is(&web("web"), "82"));
        assert_eq!(lists(&server, "services"), 2);
    });
}

#[test]
fn an_object_that_cannot_be_decoded_leaves_its_last_good_state_in_both_encodings() {
    in_both(|encoding| {
        let server = answering(encoding, WatchListSupport::Served);
        server.apply(service("web", 80)).unwrap();
        let source = Source::listed(&server);
        let mut bad = service("web", 81);
        bad["spec"]["ports"][0]["port"] = "eighty".into();
        server.apply(bad).unwrap();
        server.apply(service("other", 1)).unwrap();
        source.wait(|known| known.has(&web("other")));
        assert!(source.read(|known| known.is_complete && known.is(&web("web"), "80")));
    });
}

#[test]
fn requests_only_json_if_configured() {
    let server = server(ApiServerOptions::default());
    server.apply(service("web", 80)).unwrap();
    let mut access = access_to(&server);
    access.encoding = Encoding::Json;
    let source = Source::start(access, times());
    source.wait(Received::is_listed);
    assert!(source.read(|known| known.is(&web("web"), "80")));
    assert_eq!(accepted(&server), ["application/json"]);
}

#[test]
fn falls_back_to_json_if_protobuf_is_rejected() {
    for code in [
        StatusCode::NOT_ACCEPTABLE,
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
    ] {
        let server = server(ApiServerOptions::default());
        server.apply(service("web", 80)).unwrap();
        server.inject_times(1, FaultTarget::list(Kind::Service), Fault::code(code));
        server.inject_times(1, FaultTarget::watch(Kind::Service), Fault::code(code));
        let source = Source::listed(&server);
        assert!(source.read(|known| known.is(&web("web"), "80")));
        // Other resources may have been asked for in between, so the refused request need not be in protobuf; the next ones are not.
        let accepted = accepted(&server);
        assert!(accepted.len() >= 2, "{accepted:?}");
        assert!(
            accepted[1..]
                .iter()
                .all(|accept| accept == "application/json")
        );
        server.apply(service("web", 81)).unwrap();
        source.wait(|known| known.is(&web("web"), "81"));
    }
}

fn enveloped(message: &impl Message) -> Vec<u8> {
    let envelope = EnvelopeMessage {
        type_meta: None,
        raw: message.encode_to_vec(),
    };
    [&MAGIC[..], &envelope.encode_to_vec()].concat()
}

fn frame(content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap();
    [&length.to_be_bytes()[..], content].concat()
}

fn event(kind: &str, object: &impl Message) -> Vec<u8> {
    let event = WatchEventMessage {
        kind: kind.to_owned(),
        object: Some(RawMessage {
            raw: enveloped(object),
        }),
    };
    frame(&event.encode_to_vec())
}

#[test]
fn skips_an_invalid_frame() {
    let (server, source) = start();
    let nameless = event("ADDED", &ServiceMessage::default());
    let garbage = [frame(b""), frame(b"garbage"), frame(b"\x0a\xff"), nameless];
    for garbage in garbage {
        server.write_to_watches(Kind::Service, garbage);
    }
    server.apply(service("web", 81)).unwrap();
    source.wait(|known| known.is(&web("web"), "81"));
    assert_eq!(
        requests(&server, "services").len(),
        1,
        "no reason to reconnect"
    );
}

#[test]
fn frames_that_are_none_end_the_watch_but_not_the_list() {
    for garbage in [frame(b"garbage").repeat(10), b"garbage in ASCII".to_vec()] {
        let (server, source) = start();
        server.write_to_watches(Kind::Service, garbage);
        server
            .wait_until(|server| requests(server, "services").len() == 2)
            .unwrap();
        server.apply(service("web", 81)).unwrap();
        source.wait(|known| known.is(&web("web"), "81"));
        assert_eq!(lists(&server, "services"), 1);
    }
}

#[test]
fn skips_an_oversized_frame() {
    let (server, source) = start();
    for name in ["", "web"] {
        let mut huge = ServiceMessage {
            metadata: Some(MetadataMessage {
                name: name.to_owned(),
                namespace: "shop".to_owned(),
                ..MetadataMessage::default()
            }),
            ..ServiceMessage::default()
        };
        let annotations = &mut huge.metadata.as_mut().unwrap().annotations;
        annotations.insert("a".to_owned(), "x".repeat(5 << 20));
        server.write_to_watches(Kind::Service, event("MODIFIED", &huge));
    }
    server.apply(service("web", 81)).unwrap();
    source.wait(|known| known.is(&web("web"), "81"));
    assert_eq!(requests(&server, "services").len(), 1);
}

#[test]
fn resumes_after_a_truncated_frame() {
    let (server, source) = start();
    let whole = event("ADDED", &ServiceMessage::default());
    server.write_to_watches(Kind::Service, whole[..whole.len() / 2].to_vec());
    server.end_watches(Kind::Service, ferrovia_lab::apiserver::End::Clean);
    server
        .wait_until(|server| requests(server, "services").len() == 2)
        .unwrap();
    server.apply(service("web", 81)).unwrap();
    source.wait(|known| known.is(&web("web"), "81"));
    assert_eq!(lists(&server, "services"), 1);
}

#[test]
fn relists_after_an_error_event_in_protobuf() {
    let (server, source) = start();
    let gone = StatusMessage {
        status: "Failure".to_owned(),
        message: "too old resource version".to_owned(),
        reason: "Expired".to_owned(),
        code: 410,
        ..StatusMessage::default()
    };
    server.write_to_watches(Kind::Service, event("ERROR", &gone));
    server
        .wait_until(|server| lists(server, "services") == 2)
        .unwrap();
    server.apply(service("web", 81)).unwrap();
    source.wait(|known| known.is(&web("web"), "81"));
}

#[test]
fn reads_a_protobuf_list_that_arrives_in_small_pieces() {
    let server = answering(Encoding::Protobuf, WatchListSupport::Forbidden);
    server.apply_many((0..20).map(sample::service)).unwrap();
    server.interfere(ferrovia_lab::apiserver::Interference::Drip {
        bytes: 301,
        every: Duration::from_millis(1),
    });
    let source = Source::listed(&server);
    assert_eq!(source.read(|known| known.objects.len()), 20);
}
