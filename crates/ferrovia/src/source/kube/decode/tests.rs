//! Objects as API servers of several versions write them.

use super::*;

fn applied(kind: Kind, line: &str) -> Box<Object> {
    match news(kind, line.as_bytes()) {
        Ok(News::Applied(object)) => object,
        other => panic!("not an object: {other:?}"),
    }
}

fn event(kind: &str, object: &str) -> String {
    format!(r#"{{"type":"{kind}","object":{object}}}"#)
}

const KUBE_DNS: &str = include_str!("tests/kube-dns.json");
const LOAD_BALANCER: &str = include_str!("tests/load-balancer.json");
const SLICE_WITH_NULLS: &str = include_str!("tests/slice-with-nulls.json");
const NODE: &str = include_str!("tests/node.json");

#[test]
fn the_dns_service_as_1_20_wrote_it() {
    let Object::Service(service) = *applied(Kind::Service, &event("ADDED", KUBE_DNS)) else {
        panic!("no Service");
    };
    assert_eq!(service.metadata.name, "kube-dns");
    assert_eq!(service.metadata.namespace, "kube-system");
    assert_eq!(service.metadata.resource_version.as_deref(), Some("269"));
    assert_eq!(service.spec.cluster_ips, ["10.96.0.10"]);
    let ports: Vec<_> = service
        .spec
        .ports
        .iter()
        .map(|port| (&*port.name, port.port))
        .collect();
    assert_eq!(ports, [("dns", 53), ("dns-tcp", 53), ("metrics", 9153)]);
}

#[test]
fn a_load_balancer_with_a_status() {
    let Object::Service(service) = *applied(Kind::Service, &event("MODIFIED", LOAD_BALANCER))
    else {
        panic!("no Service");
    };
    let ingress = &service.status.load_balancer.ingress;
    assert_eq!(ingress[0].ip, "203.0.113.20");
    assert_eq!(ingress[0].ip_mode.as_deref(), Some("VIP"));
    assert_eq!(ingress[1].ip, "");
    assert_eq!(service.spec.health_check_node_port, 31005);
}

#[test]
fn null_means_absent() {
    let Object::EndpointSlice(slice) =
        *applied(Kind::EndpointSlice, &event("ADDED", SLICE_WITH_NULLS))
    else {
        panic!("no EndpointSlice");
    };
    assert_eq!(slice.endpoints.len(), 2);
    assert_eq!(slice.endpoints[0].conditions.ready, None);
    assert!(slice.endpoints[0].hints.for_zones.is_empty());
    assert!(slice.ports.is_empty());
}

#[test]
fn a_node_with_many_addresses() {
    let Object::Node(node) = *applied(Kind::Node, &event("ADDED", NODE)) else {
        panic!("no Node");
    };
    assert_eq!(node.status.addresses.len(), 6);
    assert_eq!(node.spec.pod_cidrs, ["10.244.1.0/24", "fd00:10:244:1::/64"]);
}

#[test]
fn the_fields_of_an_event_may_come_in_any_order() {
    let line = format!(r#" {{ "object" : {KUBE_DNS} , "type" : "ADDED" }} "#);
    assert_eq!(applied(Kind::Service, &line).metadata().name, "kube-dns");
}

#[test]
fn bookmarks_and_the_end_of_a_list() {
    let plain = r#"{"type":"BOOKMARK","object":{"kind":"Service","apiVersion":"v1","metadata":{"resourceVersion":"12746","creationTimestamp":null},"spec":{},"status":{"loadBalancer":{}}}}"#;
    let Ok(News::Bookmark { version, ends_list }) = news(Kind::Service, plain.as_bytes()) else {
        panic!("no bookmark");
    };
    assert_eq!((version.as_str(), ends_list), ("12746", false));
    let last = r#"{"type":"BOOKMARK","object":{"kind":"Service","apiVersion":"v1","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
    assert!(matches!(
        news(Kind::Service, last.as_bytes()),
        Ok(News::Bookmark {
            ends_list: true,
            ..
        })
    ));
}

#[test]
fn an_expired_version_is_an_error_event() {
    let line = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: 1 (2731)","reason":"Expired","code":410}}"#;
    let Ok(News::Error(status)) = news(Kind::Service, line.as_bytes()) else {
        panic!("no error");
    };
    assert!(status.is_gone());
    assert_eq!(status.message, "too old resource version: 1 (2731)");
}

#[test]
fn a_version_of_the_future_is_about_the_version_and_a_time_out_is_not() {
    let ahead = br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Too large resource version: 90, current: 9","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}"#;
    assert!(Status::of_answer(504, ahead).is_about_version());
    assert!(!Status::of_answer(504, b"upstream timed out").is_about_version());
    assert!(Status::of_answer(410, b"").is_about_version());
    assert!(!Status::of_answer(500, b"").is_about_version());
}

#[test]
fn an_answer_that_is_no_status_is_quoted() {
    let status = Status::of_answer(502, b"<html>\x1b[2Jbad gateway</html>");
    assert_eq!(status.code, 502);
    assert_eq!(status.message, "<html> [2Jbad gateway</html>");
    let long = Status::of_answer(500, &vec![b'x'; 100_000]);
    assert!(long.message.len() < 400);
    let busy = br#"{"code":429,"details":{"retryAfterSeconds":7}}"#;
    assert_eq!(Status::of_answer(429, busy).retry_after_seconds(), Some(7));
}

#[test]
fn a_wrong_type_is_a_fault_that_names_its_object() {
    let line = r#"{"type":"MODIFIED","object":{"metadata":{"name":"web","namespace":"shop","resourceVersion":"8"},"spec":{"ports":[{"port":"eighty"}]}}}"#;
    let Err(fault) = news(Kind::Service, line.as_bytes()) else {
        panic!("it cannot be read");
    };
    let object = fault.object.expect("the metadata can be read");
    assert_eq!((&*object.key, &*object.version), ("shop/web", "8"));
    assert!(fault.what.contains("eighty"), "{}", fault.what);
}

#[test]
fn garbage_is_a_fault_and_nothing_worse() {
    let lines: [&[u8]; 9] = [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        br#"{"type":"ADDED"}"#,
        br#"{"type":"ADDED","object":{"metadata":{"name":""}}}"#,
        br#"{"type":"PARTY","object":{}}"#,
        br#"{"type":"BOOKMARK","object":{"metadata":{}}}"#,
    ];
    for line in lines {
        assert!(news(Kind::Service, line).is_err());
    }
    let deep = format!(r#"{{"type":"ADDED","object":{}"#, "[".repeat(100_000));
    assert!(news(Kind::Service, deep.as_bytes()).is_err());
}

#[test]
fn an_object_that_is_too_long_is_named_by_its_beginning() {
    let named = too_long(&event("ADDED", KUBE_DNS).as_bytes()[..200]);
    let object = named.object.expect("the name comes first");
    assert_eq!(
        (&*object.key, &*object.version),
        ("kube-system/kube-dns", "")
    );
    assert!(
        too_long(b"\xff{\"metadata\":{\"name\":\"cut")
            .object
            .is_none()
    );
    assert!(too_long(b"").object.is_none());
}
