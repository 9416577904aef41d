//! Tests of reading Services: defaults, upstream's edge cases, hostile input.

mod limits;

use std::net::Ipv4Addr;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::options::{ALGORITHM_ANNOTATION, SCHEDULER_ANNOTATION};
use super::*;
use crate::model::address::refused;
use crate::testing::{merge, service};

fn read(value: Value) -> Result<(Service, Vec<Warning>), Unusable> {
    read_with(value, &ServicePolicy::default())
}

fn read_with(value: Value, policy: &ServicePolicy) -> Result<(Service, Vec<Warning>), Unusable> {
    Service::parse(&serde_json::from_value(value).unwrap(), policy)
}

/// A usable Service and the fields it was warned about.
fn parse(spec: Value) -> (Service, Vec<String>) {
    let (service, warnings) = read(service("web", "10.0.0.1", spec)).unwrap();
    (
        service,
        warnings.into_iter().map(|warning| warning.field).collect(),
    )
}

fn good(spec: Value) -> Service {
    let (service, warnings) = parse(spec);
    assert_eq!(warnings, [""; 0]);
    service
}

fn external_access(service: &Service) -> ExternalAccess {
    service
        .external_access
        .as_deref()
        .cloned()
        .unwrap_or_default()
}

fn texts<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

#[test]
fn defaults_are_those_of_the_api_server() {
    let service = good(json!({}));
    assert_eq!(service.key.as_str(), "default/web");
    assert_eq!(
        service.cluster_ips,
        PerFamily {
            v4: Some("10.0.0.1".parse().unwrap()),
            v6: None
        }
    );
    let port = ServicePortSpec {
        name: "".into(),
        protocol: Protocol::Tcp,
        port: 80,
        node_port: None,
    };
    assert_eq!(*service.ports, [port]);
    assert_eq!((service.affinity, service.health_check_port), (None, None));
    assert_eq!(service.external_policy, TrafficPolicy::Cluster);
    assert_eq!(service.internal_policy, TrafficPolicy::Cluster);
    assert_eq!(service.algorithm, Algorithm::Random);
}

#[test]
fn a_service_without_a_cluster_ip_is_a_warning() {
    let result = read(service("web", "10.0.0.1", json!({"clusterIP": ""})));
    let field = match result {
        Err(Unusable::Broken { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    assert_eq!(field, "spec.clusterIP");
    let listed = json!({"clusterIP": "", "clusterIPs": ["10.0.0.2"]});
    let (service, _) = read(service("web", "10.0.0.1", listed)).unwrap();
    assert_eq!(service.cluster_ips.v4, Some("10.0.0.2".parse().unwrap()));
}

#[test]
fn services_of_others_are_left_alone() {
    for spec in [
        json!({"clusterIP": "None"}),
        json!({"type": "ExternalName"}),
    ] {
        let result = read(service("web", "10.0.0.1", spec));
        assert!(matches!(result, Err(Unusable::NotOurs(_))), "{result:?}");
    }
    let mut labelled = service("web", "10.0.0.1", json!({}));
    merge(
        &mut labelled,
        json!({"metadata": {"labels": {OTHER_PROXY_LABEL: ""}}}),
    );
    assert!(matches!(read(labelled), Err(Unusable::NotOurs(_))));
}

#[test]
fn cluster_ips_follow_the_families() {
    // clusterIP, clusterIPs, ipFamilies, then the address of each family.
    let cases = [
        ("10.0.0.1", json!([]), json!([]), "10.0.0.1", ""),
        ("fd00::1", json!([]), json!([]), "", "fd00::1"),
        ("fd00::1", json!([]), json!(["IPv6"]), "", "fd00::1"),
        (
            "10.0.0.1",
            json!(["10.0.0.1", "fd00::1"]),
            json!(["IPv4", "IPv6"]),
            "10.0.0.1",
            "fd00::1",
        ),
        (
            "fd00::1",
            json!(["fd00::1", "10.0.0.1"]),
            json!(["IPv6", "IPv4"]),
            "10.0.0.1",
            "fd00::1",
        ),
        // What the API server would list for a manifest that gives addresses but no families.
        (
            "10.0.0.1",
            json!(["10.0.0.1", "fd00::1"]),
            json!([]),
            "10.0.0.1",
            "fd00::1",
        ),
        // Lists of unequal length: what has no partner does not count.
        (
            "10.0.0.1",
            json!(["10.0.0.1", "fd00::1"]),
            json!(["IPv4"]),
            "10.0.0.1",
            "",
        ),
        (
            "10.0.0.1",
            json!(["10.0.0.1"]),
            json!(["IPv4", "IPv6"]),
            "10.0.0.1",
            "",
        ),
        ("172.30.0.041", json!([]), json!([]), "172.30.0.41", ""),
        ("::ffff:10.0.0.1", json!([]), json!([]), "10.0.0.1", ""),
    ];
    for (ip, ips, families, v4, v6) in cases {
        let (service, _) =
            parse(json!({"clusterIP": ip, "clusterIPs": ips, "ipFamilies": families}));
        let shown = PerFamily::from_fn(|f| {
            service.cluster_ips[f].map_or(String::new(), |ip| ip.to_string())
        });
        assert_eq!(
            (shown.v4.as_str(), shown.v6.as_str()),
            (v4, v6),
            "{ip} {ips} {families}"
        );
    }
}

#[test]
fn a_service_without_a_usable_cluster_ip_or_port_is_broken() {
    let cases = [
        (json!({"clusterIP": "bogus"}), "spec.clusterIP"),
        (json!({"clusterIP": "0.0.0.0"}), "spec.clusterIP"),
        (json!({"clusterIP": "127.0.0.1"}), "spec.clusterIP"),
        (
            json!({"clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv6"]}),
            "spec.clusterIP",
        ),
        (json!({"ports": []}), "spec.ports"),
        (json!({"ports": [{"port": 0}]}), "spec.ports"),
        (json!({"ports": null}), "spec.ports"),
    ];
    for (spec, expected) in cases {
        match read(service("web", "10.0.0.1", spec.clone())) {
            Err(Unusable::Broken { field, .. }) => assert_eq!(field, expected, "{spec}"),
            other => panic!("{spec}: {other:?}"),
        }
    }
}

#[test]
fn bad_ports_are_dropped_one_by_one() {
    let (service, fields) = parse(json!({"ports": [
        {"name": "a", "port": 80}, {"name": "b", "port": 65536}, {"name": "c", "port": -1},
        {"name": "d\n", "port": 1}, {"name": "e", "port": 1, "protocol": "ICMP"},
        {"name": "f", "port": 2, "nodePort": 70000}, {"name": "a", "port": 81},
        {"name": "x".repeat(64), "port": 3}, {"name": "g", "port": 65535, "nodePort": 30000},
    ]}));
    let names: Vec<&str> = service.ports.iter().map(|port| &*port.name).collect();
    assert_eq!(names, ["a", "f", "g"]);
    assert_eq!(service.ports[1].node_port, None);
    assert_eq!(service.ports[2].node_port, Some(30000));
    let expected = [
        "[1].port",
        "[2].port",
        "[3].name",
        "[4].protocol",
        "[5].nodePort",
        "[6].name",
        "[7].name",
    ];
    assert_eq!(fields, expected.map(|field| format!("spec.ports{field}")));
}

#[test]
fn protocols_make_ports_distinct() {
    let service = good(json!({"ports": [
        {"name": "dns", "port": 53}, {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns", "port": 53, "protocol": "SCTP"}]}));
    assert_eq!(service.ports.len(), 3);
}

#[test]
fn affinity_has_limits() {
    let seconds = |config: Value| {
        parse(json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": config}))
    };
    let timeout = |seconds: i64| json!({"clientIP": {"timeoutSeconds": seconds}});
    for config in [
        Value::Null,
        json!({}),
        json!({"clientIP": null}),
        json!({"clientIP": {}}),
    ] {
        assert_eq!((seconds(config).0.affinity), Some(10800));
    }
    assert_eq!(seconds(timeout(1)).0.affinity, Some(1));
    assert_eq!(seconds(timeout(86400)).0.affinity, Some(86400));
    for bad in [0, -1, 86401, i64::MAX] {
        let (service, fields) = seconds(timeout(bad));
        assert_eq!(service.affinity, Some(10800), "{bad}");
        assert_eq!(
            fields,
            ["spec.sessionAffinityConfig.clientIP.timeoutSeconds"]
        );
    }
    assert_eq!(good(json!({"sessionAffinity": "None"})).affinity, None);
    assert_eq!(
        parse(json!({"sessionAffinity": "Cookie"})).1,
        ["spec.sessionAffinity"]
    );
}

#[test]
fn addresses_that_must_not_reach_the_kernel_are_dropped() {
    let (service, fields) = parse(json!({"externalIPs": [
        "0.0.0.0", "::", "127.0.0.1", "::1", "224.0.0.1", "ff02::1", "169.254.169.254", "fe80::1",
        "255.255.255.255", "8.8.8.8", "2001:db8::1", "8.8.8.8", "", " ", "1.2.3", "::ffff:127.0.0.1",
        "::ffff:9.9.9.9"]}));
    assert_eq!(
        texts(&external_access(&service).external_ips),
        ["8.8.8.8", "2001:db8::1", "9.9.9.9"]
    );
    assert_eq!(fields.len(), 11);
    assert_eq!(fields[10], "spec.externalIPs[15]");
}

#[test]
fn services_stay_small() {
    // There are tens of thousands, and what only few have must not cost the others.
    assert!(size_of::<Service>() <= 120);
    assert_eq!(good(json!({})).external_access, None);
}

#[test]
fn only_vips_of_the_load_balancer_count() {
    let mut value = service("web", "10.0.0.1", json!({"loadBalancerIP": "203.0.113.99"}));
    merge(
        &mut value,
        json!({"status": {"loadBalancer": {"ingress": [
        {"ip": "203.0.113.1"}, {"ip": "203.0.113.2", "ipMode": "VIP"}, {"ip": "203.0.113.3", "ipMode": "Proxy"},
        {"hostname": "lb.example"}, {"ip": "2001:db8::1"}, {"ip": "0.0.0.0"}]}}}),
    );
    let (service, warnings) = read(value).unwrap();
    assert_eq!(
        texts(&external_access(&service).load_balancer_ips),
        ["203.0.113.1", "203.0.113.2", "2001:db8::1"]
    );
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].field, "status.loadBalancer.ingress[5].ip");
    assert_eq!(service.load_balancer_ips(Family::V6).count(), 1);
}

#[test]
fn source_ranges_are_trimmed_and_masked() {
    let service = good(
        json!({"loadBalancerSourceRanges": [" 10.1.2.0/28", "203.0.113.077/025", "fd00::5/64 "]}),
    );
    assert_eq!(
        texts(&external_access(&service).source_ranges),
        ["10.1.2.0/28", "203.0.113.0/25", "fd00::/64"]
    );
}

#[test]
fn an_unreadable_range_never_opens_the_load_balancer() {
    let vips = |ranges: Value| {
        let mut value = service(
            "web",
            "10.0.0.1",
            json!({"loadBalancerSourceRanges": ranges}),
        );
        merge(
            &mut value,
            json!({"status": {"loadBalancer": {"ingress": [
            {"ip": "203.0.113.1"}, {"ip": "2001:db8::1"}]}}}),
        );
        texts(&external_access(&read(value).unwrap().0).load_balancer_ips)
    };
    assert_eq!(vips(json!(["10.0.0.0/99"])), [""; 0]);
    assert_eq!(vips(json!(["10.0.0.0/8", "fd00::/999"])), ["203.0.113.1"]);
    assert_eq!(
        vips(json!(["10.0.0.0/8", "bogus", "fd00::/8"])),
        ["203.0.113.1", "2001:db8::1"]
    );
    // All readable: a family without a range is open, as the API means it.
    assert_eq!(vips(json!(["10.0.0.0/8"])), ["203.0.113.1", "2001:db8::1"]);
}

#[test]
fn external_policy_local_needs_a_way_in() {
    let policy = |spec: Value| {
        let mut whole = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000});
        merge(&mut whole, spec);
        let service = parse(whole).0;
        (
            service.external_policy == TrafficPolicy::Local,
            service.health_check_port,
        )
    };
    assert_eq!(policy(json!({})), (false, None));
    assert_eq!(
        policy(json!({"type": "ClusterIP", "externalIPs": ["8.8.8.8"]})),
        (true, None)
    );
    assert_eq!(policy(json!({"type": "NodePort"})), (true, None));
    assert_eq!(policy(json!({"type": "LoadBalancer"})), (true, Some(32000)));
    let cluster = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Cluster"});
    assert_eq!(policy(cluster), (false, None));
    let (service, fields) =
        parse(json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"}));
    assert_eq!(
        (service.health_check_port, fields),
        (None, vec!["spec.healthCheckNodePort".to_string()])
    );
}

#[test]
fn internal_policy_and_unknown_words() {
    assert_eq!(
        good(json!({"internalTrafficPolicy": "Local"})).internal_policy,
        TrafficPolicy::Local
    );
    let (service, fields) =
        parse(json!({"internalTrafficPolicy": "x", "externalTrafficPolicy": "y", "type": "z"}));
    assert_eq!(service.internal_policy, TrafficPolicy::Cluster);
    assert_eq!(
        fields,
        [
            "spec.type",
            "spec.externalTrafficPolicy",
            "spec.internalTrafficPolicy"
        ]
    );
}

#[test]
fn the_algorithm_comes_from_an_annotation() {
    let algorithm = |text: &str| {
        let mut value = service("web", "10.0.0.1", json!({}));
        merge(
            &mut value,
            json!({"metadata": {"annotations": {ALGORITHM_ANNOTATION: text}}}),
        );
        let (service, warnings) = read(value).unwrap();
        (service.algorithm, warnings.len())
    };
    assert_eq!(algorithm("random"), (Algorithm::Random, 0));
    assert_eq!(algorithm("source-hash"), (Algorithm::SourceHash, 0));
    assert_eq!(algorithm("fastest\n"), (Algorithm::Random, 1));
    let mut value = service("web", "10.0.0.1", json!({"ports": many_ports(65)}));
    value["metadata"]["annotations"] = json!({ALGORITHM_ANNOTATION: "source-hash"});
    let (service, warnings) = read(value).unwrap();
    assert_eq!((service.algorithm, warnings.len()), (Algorithm::Random, 1));
}

#[test]
fn the_scheduler_comes_from_an_annotation() {
    let scheduler = |text: &str| {
        let mut value = service("web", "10.0.0.1", json!({}));
        merge(
            &mut value,
            json!({"metadata": {"annotations": {SCHEDULER_ANNOTATION: text}}}),
        );
        let (service, warnings) = read(value).unwrap();
        let fields = warnings.into_iter().map(|warning| warning.field).collect();
        (service.scheduler.map(|it| it.to_string()), fields)
    };
    assert_eq!(scheduler("wlc"), (Some("wlc".into()), Vec::<String>::new()));
    for bad in ["", "fastest", "RR", "rr\n"] {
        let field = "metadata.annotations[ferrovia.io/scheduler]";
        assert_eq!(scheduler(bad), (None, vec![field.to_owned()]), "{bad:?}");
    }
}

#[test]
fn creation_times_sort_as_time() {
    let time = |text: &str| CreationTime::parse(text);
    assert!(time("2025-12-31T23:59:59Z") < time("2026-01-01T00:00:00Z"));
    for bad in [
        "",
        "2026-01-01",
        "2026-01-01T00:00:00+01:00",
        "2026-01-01T00:00:00.5Z",
        "0000-00-00T00:00:00Z",
    ] {
        assert_eq!(time(bad), None, "{bad}");
    }
}

#[test]
fn hostile_names_are_refused_and_shown_harmlessly() {
    let long = "a".repeat(256);
    for bad in [
        "a\nb",
        "a\"b",
        "a;b",
        "caf\u{e9}",
        "a/b",
        "a\\b",
        "A",
        "",
        "a b",
        long.as_str(),
    ] {
        for field in ["name", "namespace"] {
            if field == "namespace" && bad.is_empty() {
                continue;
            }
            let mut value = service("web", "10.0.0.1", json!({}));
            merge(&mut value, json!({"metadata": {field: bad}}));
            let Err(Unusable::Broken { field: at, problem }) = read(value) else {
                panic!("{bad:?} accepted")
            };
            assert_eq!(at, format!("metadata.{field}"));
            assert!(
                problem.is_ascii() && !problem.contains('\n') && problem.len() < 100,
                "{problem}"
            );
        }
    }
}

#[test]
fn a_flood_of_problems_is_cut_short() {
    let bad: Vec<String> = (0..1000).map(|i| format!("bogus-{i}")).collect();
    let (_, fields) = parse(json!({"externalIPs": bad}));
    assert_eq!(fields.len(), 17);
}

fn many_ips(count: u32) -> Vec<String> {
    let ips = (0..count).map(|i| Ipv4Addr::from_bits(0x0b00_0000 + i));
    ips.map(|ip| ip.to_string()).collect()
}

fn many_ports(count: u32) -> Vec<Value> {
    let port = |i| json!({"name": format!("p{i}"), "port": 1 + i % 65_535});
    (0..count).map(port).collect()
}

fn text() -> impl Strategy<Value = String> {
    const KNOWN: &[&str] = &[
        "",
        "None",
        "ClientIP",
        "Local",
        "Cluster",
        "IPv4",
        "IPv6",
        "TCP",
        "UDP",
        "LoadBalancer",
        "ExternalName",
        "10.0.0.1",
        "fd00::1",
        "::ffff:1.2.3.4",
        "0.0.0.0/0",
        "10.0.0.0/8",
        "1.2.3.4/",
        "/",
        "VIP",
        "a-b",
        "\n",
        "2026-01-01T00:00:00Z",
    ];
    prop_oneof![3 => prop::sample::select(KNOWN).prop_map(String::from), 1 => any::<String>()]
}

fn texts_of() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(text(), 0..4)
}

prop_compose! {
    fn wire_port()(name in text(), protocol in text(), port in any::<i64>(), small in 0i64..70000, node_port in any::<i32>())
        -> wire::ServicePort {
        wire::ServicePort { name, protocol, port: if port % 2 == 0 { port } else { small }, node_port: node_port.into() }
    }
}

prop_compose! {
    fn wire_spec()(kind in text(), cluster_ip in text(), cluster_ips in texts_of(), ip_families in texts_of(),
        ports in prop::collection::vec(wire_port(), 0..4), external_ips in texts_of(), ranges in texts_of(),
        external in text(), internal in text(), affinity in text(), timeout in any::<Option<i64>>())
        -> wire::ServiceSpec {
        wire::ServiceSpec {
            kind, cluster_ip, cluster_ips, ip_families, ports, external_ips,
            load_balancer_source_ranges: ranges,
            external_traffic_policy: external,
            internal_traffic_policy: internal,
            session_affinity: affinity,
            session_affinity_config: timeout.map(|seconds| wire::SessionAffinityConfig {
                client_ip: Some(wire::ClientIpConfig { timeout_seconds: Some(seconds) }),
            }),
            health_check_node_port: timeout.unwrap_or(0),
        }
    }
}

proptest! {
    /// Whatever comes in, nothing panics, and what is accepted keeps its promises.
    #[test]
    fn any_object_can_be_read(name in text(), namespace in text(), created in text(), spec in wire_spec(),
        ips in prop::collection::vec((text(), prop::option::of(text())), 0..4)) {
        let mut object = wire::Service { spec, ..Default::default() };
        object.metadata.name = name;
        object.metadata.namespace = namespace;
        object.metadata.creation_timestamp = Some(created);
        object.status.load_balancer.ingress =
            ips.into_iter().map(|(ip, ip_mode)| wire::Ingress { ip, ip_mode }).collect();
        if let Ok((service, warnings)) = Service::parse(&object, &ServicePolicy::default()) {
            prop_assert!(!service.ports.is_empty());
            let ips = Family::ALL.iter().filter_map(|family| service.cluster_ips[*family]);
            for ip in ips.chain(service.outside_ips()) {
                prop_assert_eq!(refused(ip), None);
                prop_assert_eq!(ip, ip.to_canonical());
            }
            for warning in warnings {
                prop_assert!(warning.to_string().is_ascii() && !warning.to_string().contains('\n'));
            }
        }
    }
}
