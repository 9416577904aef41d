//! The same object in JSON and in protobuf is the same to the program.

use std::fmt::Debug;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::wire::{EndpointSlice, Node, Service, ServiceCidr};

type Json = BoxedStrategy<Value>;

/// An object with any of these fields.
fn any_of<const N: usize>(fields: [(&'static str, Json); N]) -> Json {
    let fields = fields.map(|(name, value)| {
        prop::option::of(value).prop_map(move |value| Some((name.to_owned(), value?)))
    });
    Vec::from(fields)
        .prop_map(|fields| Value::Object(fields.into_iter().flatten().collect()))
        .boxed()
}

fn list(item: Json) -> Json {
    prop::collection::vec(item, 0..4)
        .prop_map(Value::from)
        .boxed()
}

fn text() -> Json {
    "[a-z0-9.:/ü-]{1,12}".prop_map(Value::from).boxed()
}

fn texts() -> Json {
    list(text())
}

fn number() -> Json {
    any::<i32>().prop_map(Value::from).boxed()
}

fn flag() -> Json {
    any::<bool>().prop_map(Value::from).boxed()
}

fn map() -> Json {
    prop::collection::btree_map("[a-z./]{1,9}", "[a-z]{0,9}", 0..4)
        .prop_map(|map| json!(map))
        .boxed()
}

fn time() -> Json {
    (0_i64..4_000_000_000)
        .prop_map(|seconds| {
            let time = TimeMessage {
                seconds: Some(seconds),
            };
            json!(time.to_text())
        })
        .boxed()
}

fn named() -> Json {
    any_of([("name", text())])
}

fn metadata() -> Json {
    any_of([
        ("name", text()),
        ("namespace", text()),
        ("resourceVersion", text()),
        ("creationTimestamp", time()),
        ("deletionTimestamp", time()),
        ("labels", map()),
        ("annotations", map()),
    ])
}

fn service() -> Json {
    let port = any_of([
        ("name", text()),
        ("protocol", text()),
        ("port", number()),
        ("nodePort", number()),
    ]);
    let client_ip = any_of([("timeoutSeconds", number())]);
    let spec = any_of([
        ("type", text()),
        ("clusterIP", text()),
        ("clusterIPs", texts()),
        ("ipFamilies", texts()),
        ("ports", list(port)),
        ("externalIPs", texts()),
        ("loadBalancerSourceRanges", texts()),
        ("externalTrafficPolicy", text()),
        ("internalTrafficPolicy", text()),
        ("sessionAffinity", text()),
        ("sessionAffinityConfig", any_of([("clientIP", client_ip)])),
        ("healthCheckNodePort", number()),
    ]);
    let ingress = any_of([("ip", text()), ("ipMode", text())]);
    let load_balancer = any_of([("ingress", list(ingress))]);
    any_of([
        ("metadata", metadata()),
        ("spec", spec),
        ("status", any_of([("loadBalancer", load_balancer)])),
    ])
}

fn slice() -> Json {
    let kind = prop::sample::select(vec!["Pod", "VirtualMachine"]).prop_map(Value::from);
    let conditions = any_of([
        ("ready", flag()),
        ("serving", flag()),
        ("terminating", flag()),
    ]);
    let endpoint = any_of([
        ("addresses", texts()),
        ("conditions", conditions),
        (
            "targetRef",
            any_of([("kind", kind.boxed()), ("name", text())]),
        ),
        ("nodeName", text()),
        ("zone", text()),
        (
            "hints",
            any_of([("forZones", list(named())), ("forNodes", list(named()))]),
        ),
    ]);
    let port = any_of([("name", text()), ("protocol", text()), ("port", number())]);
    any_of([
        ("metadata", metadata()),
        ("addressType", text()),
        ("endpoints", list(endpoint)),
        ("ports", list(port)),
    ])
}

fn node() -> Json {
    let spec = any_of([
        ("podCIDR", text()),
        ("podCIDRs", texts()),
        ("taints", list(any_of([("key", text())]))),
    ]);
    let address = any_of([("type", text()), ("address", text())]);
    any_of([
        ("metadata", metadata()),
        ("spec", spec),
        ("status", any_of([("addresses", list(address))])),
    ])
}

fn service_cidr() -> Json {
    any_of([
        ("metadata", metadata()),
        ("spec", any_of([("cidrs", texts())])),
    ])
}

/// Compares what becomes of an object on both ways.
fn check<M, T>(object: Value) -> TestCaseResult
where
    M: Message + Default + DeserializeOwned,
    T: From<M> + DeserializeOwned + PartialEq + Debug,
{
    let message: M = serde_json::from_value(object.clone()).unwrap();
    let decoded = M::decode(&*message.encode_to_vec()).unwrap();
    let from_json: T = serde_json::from_value(object).unwrap();
    prop_assert_eq!(T::from(decoded), from_json);
    Ok(())
}

proptest! {
    #[test]
    fn a_service_is_the_same_in_both_encodings(object in service()) {
        check::<ServiceMessage, Service>(object)?;
    }

    #[test]
    fn a_slice_is_the_same_in_both_encodings(object in slice()) {
        check::<EndpointSliceMessage, EndpointSlice>(object)?;
    }

    #[test]
    fn a_node_is_the_same_in_both_encodings(object in node()) {
        check::<NodeMessage, Node>(object)?;
    }

    #[test]
    fn a_service_cidr_is_the_same_in_both_encodings(object in service_cidr()) {
        check::<ServiceCidrMessage, ServiceCidr>(object)?;
    }
}

/// A time that is not set, as the API server writes it.
#[test]
fn an_empty_time_is_none() {
    let metadata = MetadataMessage {
        name: "web".to_owned(),
        creation_timestamp: Some(TimeMessage::default()),
        ..MetadataMessage::default()
    };
    let metadata = MetadataMessage::decode(&*metadata.encode_to_vec()).unwrap();
    assert_eq!(
        crate::wire::Metadata::from(metadata).creation_timestamp,
        None
    );
}
