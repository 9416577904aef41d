//! Tests of reading EndpointSlices and Endpoints.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::testing::{endpoint, merge, slice};

fn read(value: Value) -> Result<(EndpointSlice, Vec<Warning>), Unusable> {
    EndpointSlice::parse(&serde_json::from_value(value).unwrap())
}

/// A usable slice and the fields it was warned about.
fn parse(changes: Value) -> (EndpointSlice, Vec<String>) {
    let mut value = slice("web-1", "web", json!([endpoint("10.1.0.1", "n1")]));
    merge(&mut value, changes);
    let (slice, warnings) = read(value).unwrap();
    (
        slice,
        warnings.into_iter().map(|warning| warning.field).collect(),
    )
}

#[test]
fn absent_fields_have_the_api_servers_meaning() {
    let (slice, fields) = parse(json!({}));
    assert_eq!(fields, [""; 0]);
    assert_eq!(
        (slice.key.as_str(), slice.service.as_str()),
        ("default/web-1", "default/web")
    );
    assert_eq!(
        (slice.weight, slice.family, slice.mirrored),
        (1, Family::V4, false)
    );
    assert_eq!(
        *slice.ports,
        [SlicePort {
            name: "".into(),
            protocol: Protocol::Tcp,
            port: 8080
        }]
    );
    let one = &slice.endpoints[0];
    assert_eq!(
        (one.ready, one.serving, one.terminating),
        (true, true, false)
    );
    assert_eq!((one.node.as_deref(), &one.hints), (Some("n1"), &None));
}

#[test]
fn slices_of_others_are_left_alone() {
    for changes in [
        json!({"addressType": "FQDN"}),
        json!({"addressType": ""}),
        json!({"metadata": {"labels": {HEADLESS_LABEL: ""}}}),
        json!({"metadata": {"labels": {SERVICE_LABEL: ""}}}),
        json!({"metadata": {"labels": null}}),
    ] {
        let mut value = slice("web-1", "web", json!([]));
        merge(&mut value, changes.clone());
        assert!(
            matches!(read(value), Err(Unusable::NotOurs(_))),
            "{changes}"
        );
    }
}

#[test]
fn the_service_is_always_of_the_slices_namespace() {
    let (slice, _) = parse(json!({"metadata": {"namespace": "mine"}}));
    assert_eq!(slice.service.as_str(), "mine/web");
    for hostile in ["other/web", "a\nb", "web;"] {
        let mut value = self::slice("web-1", hostile, json!([]));
        value["addressType"] = json!("IPv4");
        let Err(Unusable::Broken { field, .. }) = read(value) else {
            panic!("{hostile:?} accepted")
        };
        assert_eq!(field, "metadata.labels[kubernetes.io/service-name]");
    }
}

#[test]
fn ports_that_cannot_be_served_are_dropped() {
    let (slice, fields) = parse(json!({"ports": [
        {"name": "a", "port": 80}, {"name": "b"}, {"name": "c", "port": 0}, {"port": 81}, {"name": null, "port": 82},
        {"name": "d", "port": 70000}, {"name": "e\n", "port": 1}, {"name": "f", "port": 1, "protocol": "X"},
        {"name": "g", "port": 1, "protocol": null}]}));
    let names: Vec<&str> = slice.ports.iter().map(|port| &*port.name).collect();
    assert_eq!(names, ["a", "", "", "g"]);
    assert_eq!(
        fields,
        [
            "ports[1].port",
            "ports[2].port",
            "ports[5].port",
            "ports[6].name",
            "ports[7].protocol"
        ]
    );
}

#[test]
fn dangerous_endpoints_are_dropped() {
    for (family, bad) in [
        ("IPv4", "127.0.0.1"),
        ("IPv4", "169.254.169.254"),
        ("IPv4", "0.0.0.0"),
        ("IPv4", "224.0.0.1"),
        ("IPv4", "255.255.255.255"),
        ("IPv4", "fd00::1"),
        ("IPv4", "::ffff:10.0.0.1"),
        ("IPv4", "web\n"),
        ("IPv6", "::1"),
        ("IPv6", "fe80::1"),
        ("IPv6", "::"),
        ("IPv6", "ff02::1"),
        ("IPv6", "10.0.0.1"),
        ("IPv6", "::ffff:10.0.0.1"),
        ("IPv6", "::ffff:127.0.0.1"),
    ] {
        let (slice, fields) =
            parse(json!({"addressType": family, "endpoints": [endpoint(bad, "n1")]}));
        assert!(slice.endpoints.is_empty(), "{family} {bad}");
        assert_eq!(fields, ["endpoints[0].addresses[0]"], "{family} {bad}");
    }
    let (slice, _) = parse(json!({"endpoints": [{}, {"addresses": ["010.1.0.02", "10.9.9.9"]}]}));
    assert_eq!(slice.endpoints.len(), 1);
    assert_eq!(slice.endpoints[0].ip.to_string(), "10.1.0.2");
}

#[test]
fn hints_and_hostile_names() {
    let (slice, fields) = parse(json!({"endpoints": [
        {"addresses": ["10.1.0.1"], "hints": {"forZones": [{"name": "a"}, {"name": "b\n"}], "forNodes": []}},
        {"addresses": ["10.1.0.2"], "hints": {"forZones": [{"name": ""}]}, "nodeName": "n\n1"},
        {"addresses": ["10.1.0.3"], "hints": {"forZones": []}, "nodeName": ""}]}));
    assert_eq!(
        *slice.endpoints[0].hints.as_ref().unwrap().zones,
        ["a".into()]
    );
    assert_eq!(slice.endpoints[1].hints, None);
    assert_eq!(
        (&slice.endpoints[1].node, &slice.endpoints[2].node),
        (&None, &None)
    );
    assert_eq!(
        fields,
        [
            "endpoints[0].hints.forZones[1].name",
            "endpoints[1].nodeName",
            "endpoints[1].hints.forZones[0].name"
        ]
    );
}

#[test]
fn weights_are_limited() {
    for (text, weight, warned) in [
        ("0", 0, false),
        ("5", 5, false),
        ("1000", 1000, false),
        ("1001", 1, true),
        ("-1", 1, true),
        ("heavy", 1, true),
        ("", 1, true),
        ("99999999999", 1, true),
    ] {
        let (slice, fields) =
            parse(json!({"metadata": {"annotations": {WEIGHT_ANNOTATION: text}}}));
        assert_eq!(
            (slice.weight, !fields.is_empty()),
            (weight, warned),
            "{text}"
        );
    }
}

#[test]
fn endpoints_stay_small() {
    // Twenty thousand of these are ordinary; names are shared, so this is nearly all an endpoint costs.
    assert!(size_of::<SliceEndpoint>() <= 48);
    assert!(size_of::<EndpointSlice>() <= 80);
}

proptest! {
    /// Whatever comes in, nothing panics, and what is accepted keeps its promises.
    #[test]
    fn any_object_can_be_read(name in "[a-z]{1,3}|\\PC*", label in "[a-z]{1,3}|\\PC*", weight in any::<String>(), v6 in any::<bool>(),
        addresses in prop::collection::vec("[0-9.:a-f]{0,12}|10\\.0\\.0\\.[0-9]{1,4}|fd00::[0-9a-f]{1,4}|\\PC*", 0..5),
        port in any::<Option<i64>>(), hint in any::<String>(), node in any::<Option<String>>()) {
        let mut object = wire::EndpointSlice {
            address_type: if v6 { "IPv6" } else { "IPv4" }.into(),
            ports: vec![wire::EndpointPort { name: node.clone(), protocol: hint.clone(), port }],
            ..Default::default()
        };
        object.metadata.name = name;
        object.metadata.labels.insert(SERVICE_LABEL.into(), label);
        object.metadata.annotations.insert(WEIGHT_ANNOTATION.into(), weight);
        for address in addresses {
            let hints = wire::EndpointHints { for_zones: vec![wire::HintTarget { name: hint.clone() }], ..Default::default() };
            let node_name = node.clone();
            object.endpoints.push(wire::Endpoint { addresses: vec![address], hints, node_name, ..Default::default() });
        }
        if let Ok((slice, warnings)) = EndpointSlice::parse(&object) {
            for endpoint in &slice.endpoints {
                prop_assert_eq!(Family::of(endpoint.ip), slice.family);
                prop_assert_eq!(refused(endpoint.ip), None);
            }
            for warning in warnings {
                prop_assert!(warning.to_string().is_ascii() && !warning.to_string().contains('\n'));
            }
        }
    }
}
