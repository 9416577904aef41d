//! Objects in protobuf, as Kubernetes 1.36 sent them and as nothing would.
//!
//! The files `recorded-*` of the corpora are answers of a real API server to the same request in both encodings.

use ferrovia_core::wire::protobuf::{
    EnvelopeMessage, MetadataMessage, RawMessage, ServiceSpecMessage, WatchEventMessage,
};

use super::super::format::{Encoding, ListPart};
use super::*;

fn recorded(name: &str, encoding: Encoding) -> Vec<u8> {
    let (folder, extension) = match encoding {
        Encoding::Json => ("api", "json"),
        Encoding::Protobuf => ("api-protobuf", "pb"),
    };
    let root = env!("CARGO_MANIFEST_DIR");
    std::fs::read(format!(
        "{root}/fuzz/corpus/{folder}/recorded-{name}.{extension}"
    ))
    .unwrap()
}

/// Objects, and the version and continuation of a list.
fn listed(kind: Kind, name: &str, encoding: Encoding) -> (Vec<Object>, String, String) {
    let mut list = encoding.list(kind);
    let (mut objects, mut metadata) = (Vec::new(), None);
    list.feed(&recorded(name, encoding), &mut |part| match part {
        ListPart::Item(item) => objects.push(*item.unwrap()),
        ListPart::Metadata(read) => metadata = read.ok(),
    })
    .unwrap();
    assert!(list.is_done());
    let metadata = metadata.unwrap();
    (objects, metadata.resource_version, metadata.next)
}

fn watched(kind: Kind, name: &str, encoding: Encoding) -> Vec<News> {
    let mut events = encoding.events(kind);
    let mut all = Vec::new();
    events
        .feed(&recorded(name, encoding), &mut |event| {
            all.push(event.unwrap());
        })
        .unwrap();
    assert!(!events.is_half());
    all
}

#[test]
fn recorded_lists_are_the_same_in_both_encodings() {
    for (kind, name, count) in [
        (Kind::Service, "list-services", 3),
        (Kind::EndpointSlice, "list-endpointslices", 2),
        (Kind::Node, "list-nodes", 1),
        (Kind::ServiceCidr, "list-servicecidrs", 2),
    ] {
        let in_protobuf = listed(kind, name, Encoding::Protobuf);
        assert_eq!(in_protobuf.0.len(), count, "{name}");
        assert_eq!(in_protobuf, listed(kind, name, Encoding::Json), "{name}");
    }
}

/// Not only the same, but what was applied: every field that the decoder reads.
#[test]
fn a_recorded_service_has_all_its_fields() {
    let (objects, version, next) = listed(Kind::Service, "list-services", Encoding::Protobuf);
    assert!(version.parse::<u64>().is_ok() && next.is_empty());
    let web = objects
        .iter()
        .find(|object| object.metadata().name == "web");
    let Some(Object::Service(web)) = web else {
        panic!("no Service");
    };
    let metadata = &web.metadata;
    assert_eq!(metadata.namespace, "shop");
    assert_eq!(metadata.labels["tier"], "front");
    assert_eq!(metadata.annotations["example.org/owner"], "team-shop");
    let created = metadata.creation_timestamp.as_deref();
    assert_eq!(created, Some("2026-11-18T13:36:03Z"));
    assert_eq!(metadata.deletion_timestamp, None);
    let spec = &web.spec;
    assert_eq!(spec.kind, "LoadBalancer");
    assert_eq!([&*spec.cluster_ip], spec.cluster_ips[..]);
    assert_eq!(spec.ip_families, ["IPv4"]);
    assert_eq!(spec.external_ips, ["192.0.2.7"]);
    assert_eq!(spec.load_balancer_source_ranges, ["198.51.100.0/24"]);
    assert_eq!(spec.external_traffic_policy, "Local");
    assert_eq!(spec.internal_traffic_policy, "Cluster");
    assert_eq!(spec.session_affinity, "ClientIP");
    let affinity = spec.session_affinity_config.as_ref().unwrap();
    let client_ip = affinity.client_ip.as_ref().unwrap();
    assert_eq!(client_ip.timeout_seconds, Some(600));
    assert!((30000..32768).contains(&spec.health_check_node_port));
    let ports: Vec<_> = spec
        .ports
        .iter()
        .map(|port| (&*port.name, &*port.protocol, port.port, port.node_port > 0))
        .collect();
    assert_eq!(
        ports,
        [("http", "TCP", 80, true), ("https", "TCP", 443, true)]
    );
    let ingress = &web.status.load_balancer.ingress;
    assert_eq!(ingress[0].ip, "203.0.113.20");
    assert_eq!(ingress[0].ip_mode.as_deref(), Some("VIP"));
    assert_eq!(ingress[1].ip, "");
}

#[test]
fn recorded_watches_are_the_same_in_both_encodings() {
    for name in ["watch-services", "watch-gone"] {
        let in_protobuf = watched(Kind::Service, name, Encoding::Protobuf);
        let in_json = watched(Kind::Service, name, Encoding::Json);
        assert_eq!(in_protobuf.len(), in_json.len(), "{name}");
        for (one, other) in in_protobuf.iter().zip(&in_json) {
            match (one, other) {
                (News::Error(one), News::Error(other)) => assert_alike(one, other),
                _ => assert_eq!(format!("{one:?}"), format!("{other:?}")),
            }
        }
    }
    let gone = watched(Kind::Service, "watch-gone", Encoding::Protobuf);
    assert!(matches!(&gone[..], [News::Error(status)] if status.is_gone()));
}

#[test]
fn a_recorded_refusal_is_the_same_in_both_encodings() {
    let [one, other] = [Encoding::Protobuf, Encoding::Json]
        .map(|encoding| Status::of_answer(404, &recorded("status-404", encoding)));
    assert_eq!(one.reason, "NotFound");
    assert_alike(&one, &other);
}

fn assert_alike(one: &Status, other: &Status) {
    assert_eq!(
        (one.code, &one.reason, &one.message),
        (other.code, &other.reason, &other.message)
    );
    assert_eq!(one.retry_after_seconds(), other.retry_after_seconds());
}

fn enveloped(raw: Vec<u8>) -> Vec<u8> {
    let envelope = EnvelopeMessage {
        type_meta: None,
        raw,
    };
    [&MAGIC[..], &envelope.encode_to_vec()].concat()
}

fn frame(event: &str, object: Vec<u8>) -> Vec<u8> {
    let event = WatchEventMessage {
        kind: event.to_owned(),
        object: Some(RawMessage {
            raw: enveloped(object),
        }),
    };
    event.encode_to_vec()
}

fn service(name: &str) -> ServiceMessage {
    ServiceMessage {
        metadata: Some(MetadataMessage {
            name: name.to_owned(),
            namespace: "shop".to_owned(),
            resource_version: "7".to_owned(),
            ..MetadataMessage::default()
        }),
        ..ServiceMessage::default()
    }
}

fn named_web(fault: &Fault, version: &str) -> bool {
    let expected = Identity {
        key: "shop/web".to_owned(),
        version: version.to_owned(),
    };
    fault.object == Some(expected)
}

#[test]
fn an_object_with_a_field_of_the_wrong_type_is_a_fault_with_its_name() {
    let mut object = service("web").encode_to_vec();
    // `spec` as a number.
    object.extend(b"\x10\x01");
    let fault = news(Kind::Service, &frame("MODIFIED", object.clone())).unwrap_err();
    assert!(named_web(&fault, "7"), "{fault:?}");
    assert!(fault.what.contains("spec"), "{fault:?}");
    // A deletion needs no more than the name.
    let deleted = news(Kind::Service, &frame("DELETED", object));
    assert!(matches!(deleted, Ok(News::Deleted(identity)) if identity.key == "shop/web"));
}

#[test]
fn an_object_that_was_cut_off_is_a_fault_with_its_name() {
    let mut web = service("web");
    web.spec = Some(ServiceSpecMessage {
        cluster_ip: "10.96.0.1".to_owned(),
        ..ServiceSpecMessage::default()
    });
    let whole = web.encode_to_vec();
    let fault = object(Kind::Service, &whole[..whole.len() - 1]).unwrap_err();
    assert!(named_web(&fault, "7"), "{fault:?}");
}

#[test]
fn an_object_without_a_name_or_of_a_kind_we_never_ask_for_is_a_fault() {
    assert!(object(Kind::Service, b"").is_err());
    assert!(object(Kind::Endpoints, &service("web").encode_to_vec()).is_err());
    let mut invalid = service("web").encode_to_vec();
    let at = invalid.iter().position(|byte| *byte == b'w').unwrap();
    invalid[at] = 0xff;
    let fault = object(Kind::Service, &invalid).unwrap_err();
    assert_eq!(fault.object, None, "the name is not text");
}

#[test]
fn an_overlong_object_is_a_fault_with_its_name() {
    let mut web = service("web");
    let annotations = &mut web.metadata.as_mut().unwrap().annotations;
    annotations.insert("long".to_owned(), "x".repeat(10_000));
    let object = web.encode_to_vec();
    assert!(named_web(&item_too_long(&object[..4096]), "7"));
    let frame = frame("ADDED", object);
    assert!(named_web(&frame_too_long(&frame[..4096]), "7"));
    assert!(frame_too_long(&frame[..8]).object.is_none());
}

#[test]
fn a_frame_that_is_no_event_is_a_fault() {
    let event = |raw: &[u8]| WatchEventMessage {
        kind: "ADDED".to_owned(),
        object: Some(RawMessage { raw: raw.to_vec() }),
    };
    let not_enveloped = event(&service("web").encode_to_vec()).encode_to_vec();
    let in_json = event(br#"{"metadata":{"name":"web"}}"#).encode_to_vec();
    for bad in [&b""[..], b"\xff", b"{}", &not_enveloped, &in_json] {
        assert!(news(Kind::Service, bad).is_err(), "{bad:?}");
    }
    let unknown = frame("EXPLODED", Vec::new());
    let fault = news(Kind::Service, &unknown).unwrap_err();
    assert!(fault.what.contains("EXPLODED"));
}

#[test]
fn a_status_says_when_to_ask_again() {
    let status = StatusMessage {
        code: 429,
        message: "busy".to_owned(),
        details: Some(ferrovia_core::wire::protobuf::StatusDetailsMessage {
            retry_after_seconds: 3,
        }),
        ..StatusMessage::default()
    };
    let status = Status::of_answer(429, &enveloped(status.encode_to_vec()));
    assert_eq!(status.retry_after_seconds(), Some(3));
    // Half of one is no status, but still a refusal.
    let status = Status::of_answer(503, b"k8s\0\x12\x09x");
    assert_eq!(status.code, 503);
}
