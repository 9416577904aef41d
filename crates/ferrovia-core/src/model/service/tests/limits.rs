//! Tests of what of a Service is left out: too much of it, or what the node does not allow.

use serde_json::{Value, json};

use super::{external_access, good, many_ips, many_ports, parse, read, read_with, texts};
use crate::family::Family;
use crate::model::{ExternalIpPolicy, ServicePolicy};
use crate::testing::service;

/// Compared each with each, so many addresses and ports would take minutes.
#[test]
fn an_object_full_of_addresses_or_ports_is_read_at_once() {
    let (service, fields) = parse(json!({"externalIPs": many_ips(300_000)}));
    assert_eq!(external_access(&service).external_ips.len(), 16_384);
    assert_eq!(fields, ["spec.externalIPs"]);
    assert_eq!(
        good(json!({"ports": many_ports(60_000)})).ports.len(),
        60_000
    );
}

/// A megabyte could ask for a billion frontends, and for more pairs of those with source ranges.
#[test]
fn addresses_times_ports_times_ranges_are_limited() {
    let mut value = service(
        "web",
        "10.0.0.1",
        json!({
            "externalIPs": many_ips(1_000),
            "ports": many_ports(100),
            "loadBalancerSourceRanges": (0..200).map(|i| format!("10.0.{i}.0/24")).collect::<Vec<_>>(),
        }),
    );
    let ingress: Vec<Value> = many_ips(100).iter().map(|ip| json!({"ip": ip})).collect();
    value["status"]["loadBalancer"]["ingress"] = ingress.into();
    let (service, warnings) = read(value).unwrap();
    let external_access = external_access(&service);
    assert_eq!(
        (
            external_access.external_ips.len(),
            external_access.load_balancer_ips.len()
        ),
        (163, 3)
    );
    let texts: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "Service default/web: status.loadBalancer.ingress: 100 addresses with 100 ports and 200 source ranges are too many for one \
             Service; only the first 3 are served, as the limit is 65536 combinations",
            "Service default/web: spec.externalIPs: 1000 addresses with 100 ports are too many for one Service; only the first 163 are \
             served, as the limit is 16384 frontends",
        ]
    );
}

/// As many ports as fit into an object of the API server, such as those of a media server.
#[test]
fn ten_thousand_ports_are_served_at_a_load_balancers_address() {
    let mut value = service("rtp", "10.0.0.1", json!({"ports": many_ports(10_001)}));
    value["status"]["loadBalancer"]["ingress"] = json!([{"ip": "203.0.113.1"}]);
    let (service, warnings) = read(value).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(service.load_balancer_ips(Family::V4).count(), 1);
}

/// What is cut off must not open a family that had ranges, and lets fewer clients in, not more.
#[test]
fn too_many_source_ranges_let_fewer_clients_in() {
    let four = (0..5_000).map(|i| format!("10.{}.{}.0/24", i / 250, i % 250));
    let six = (0..2).map(|i| format!("fd00:{i}::/64"));
    let ranges: Vec<String> = four.chain(six).collect();
    let (service, fields) = parse(json!({"loadBalancerSourceRanges": ranges}));
    assert_eq!(fields, ["spec.loadBalancerSourceRanges"]);
    assert_eq!(service.source_ranges(Family::V4).count(), 4_096);
    assert_eq!(service.source_ranges(Family::V6).count(), 2);
}

#[test]
fn external_ips_are_served_as_far_as_they_are_allowed() {
    let spec = json!({"externalIPs": ["203.0.113.5", "198.51.100.1", "2001:db8::5", "fd00::5"]});
    let served = |external_ips: ExternalIpPolicy| {
        let policy = ServicePolicy {
            external_ips,
            ..ServicePolicy::default()
        };
        let value = service("web", "10.0.0.1", spec.clone());
        let (service, warnings) = read_with(value, &policy).unwrap();
        assert!(service.lists_external_ips(Family::V4) && service.lists_external_ips(Family::V6));
        let fields = warnings.into_iter().map(|warning| warning.field);
        assert!(fields.clone().all(|field| field == "spec.externalIPs"));
        (
            texts(&external_access(&service).external_ips),
            fields.count(),
        )
    };
    let all = ["203.0.113.5", "198.51.100.1", "2001:db8::5", "fd00::5"];
    assert_eq!(
        served(ExternalIpPolicy::Allow),
        (all.map(String::from).to_vec(), 0)
    );
    assert_eq!(served(ExternalIpPolicy::Deny), (Vec::new(), 4));
    let ranges = ["203.0.113.0/24", "2001:db8::/32"].map(|range| range.parse().unwrap());
    let (left, warnings) = served(ExternalIpPolicy::Within(ranges.to_vec()));
    assert_eq!(
        (left, warnings),
        (vec!["203.0.113.5".into(), "2001:db8::5".into()], 2)
    );
}
