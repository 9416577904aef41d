//! Tests of the builder: ports as they should be, deltas, claims in action, and incremental against from scratch.

mod claims;
mod random;

use serde_json::{Value, json};

use super::*;
use crate::desired::{LocalSetting, NodePortAddresses, NodePortSetting};
use crate::family::Family::{V4, V6};
use crate::model::{ExternalIpPolicy, ServicePolicy};
use crate::store::Event;
use crate::testing::{NODE, TestCluster, endpoint, merge, service, settings, show, slice};
use crate::wire::Kind;

fn world() -> TestCluster {
    TestCluster::new(settings())
}

fn dual(name: &str, spec: Value) -> Value {
    let mut whole = json!({"clusterIPs": ["10.0.0.1", "fd00::1"], "ipFamilies": ["IPv4", "IPv6"]});
    merge(&mut whole, spec);
    service(name, "10.0.0.1", whole)
}

fn with_vips(mut value: Value, ips: &[&str]) -> Value {
    let ingress: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
    merge(
        &mut value,
        json!({"status": {"loadBalancer": {"ingress": ingress}}}),
    );
    value
}

fn node(zone: &str, ips: &[&str]) -> Value {
    let addresses: Vec<Value> = ips
        .iter()
        .map(|ip| json!({"type": "InternalIP", "address": ip}))
        .collect();
    json!({"kind": "Node", "metadata": {"name": NODE, "labels": {"topology.kubernetes.io/zone": zone}},
        "status": {"addresses": addresses}})
}

#[test]
fn both_families_of_a_service() {
    let mut world = world();
    let spec = json!({"ports": [{"name": "http", "port": 80, "nodePort": 30080}],
        "externalIPs": ["8.8.8.8", "2001:db8::8"]});
    world.apply(with_vips(
        dual("web", spec),
        &["203.0.113.1", "2001:db8::1"],
    ));
    assert_eq!(
        world.frontends(V4, "default/web:http"),
        [
            "ClusterIp(10.0.0.1:80)",
            "ExternalIp(8.8.8.8:80)",
            "LoadBalancer(203.0.113.1:80)",
            "NodePort(30080)"
        ]
    );
    assert_eq!(
        world.frontends(V6, "default/web:http"),
        [
            "ClusterIp([fd00::1]:80)",
            "ExternalIp([2001:db8::8]:80)",
            "LoadBalancer([2001:db8::1]:80)",
            "NodePort(30080)"
        ]
    );
    world.apply(service("web", "10.0.0.1", json!({})));
    assert_eq!(world.builder.desired(V6).ports.len(), 0);
    assert_eq!(
        world.builder.desired(V4).ports.len(),
        1,
        "renamed, not added"
    );
}

#[test]
fn endpoints_are_merged_sorted_and_unique() {
    let mut world = world();
    world.apply(dual(
        "web",
        json!({"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2, "protocol": "UDP"}]}),
    ));
    let mut first = slice(
        "web-1",
        "web",
        json!([endpoint("10.1.0.10", "n2"), endpoint("10.1.0.9", "n1")]),
    );
    first["ports"] = json!([{"name": "a", "port": 81}, {"name": "a", "port": 80},
        {"name": "b", "port": 53, "protocol": "UDP"}, {"name": "a", "port": 99, "protocol": "UDP"}]);
    world.apply(first);
    let mut second = slice(
        "web-2",
        "web",
        json!([endpoint("10.1.0.9", "n1"), endpoint("10.1.0.1", "n1")]),
    );
    second["ports"] = json!([{"name": "a", "port": 80}]);
    merge(
        &mut second,
        json!({"metadata": {"annotations": {"ferrovia.io/weight": "7"}}}),
    );
    world.apply(second);
    let mut sixth = slice("web-6", "web", json!([endpoint("fd00:1::1", "n2")]));
    sixth["ports"] = json!([{"name": "a", "port": 80}]);
    world.apply(sixth);
    let cluster = |family, port| show(&world.port(family, port).unwrap().cluster);
    assert_eq!(
        cluster(V4, "default/web:a"),
        [
            "10.1.0.1:80*x7",
            "10.1.0.9:80*",
            "10.1.0.9:81*",
            "10.1.0.10:80",
            "10.1.0.10:81"
        ]
    );
    assert_eq!(
        cluster(V4, "default/web:b"),
        ["10.1.0.9:53*", "10.1.0.10:53"]
    );
    assert_eq!(cluster(V6, "default/web:a"), ["[fd00:1::1]:80"]);
    assert_eq!(cluster(V6, "default/web:b"), [""; 0]);
}

#[test]
fn of_two_copies_the_more_useful_is_kept() {
    let terminating = json!({"ready": false, "serving": true, "terminating": true});
    let cases = [
        // Conditions and nodes of the copies in slices a, b and c; whether the endpoint is used, and as local.
        (
            vec![
                (terminating.clone(), "n1"),
                (json!({}), "n2"),
                (terminating, "n1"),
            ],
            true,
            false,
        ),
        (
            vec![(json!({"ready": false}), "n2"), (json!({}), "n1")],
            true,
            true,
        ),
        (vec![(json!({}), "n1"), (json!({}), "n2")], true, true),
        (
            vec![
                (json!({"ready": false}), "n1"),
                (json!({"ready": true, "terminating": true}), "n1"),
            ],
            false,
            false,
        ),
    ];
    for (copies, used, local) in cases {
        let mut world = world();
        world.apply(service("web", "10.0.0.1", json!({})));
        for (i, (conditions, node)) in copies.iter().enumerate() {
            let copy =
                json!([{"addresses": ["10.1.0.1"], "nodeName": node, "conditions": conditions}]);
            world.apply(slice(&format!("s{i}"), "web", copy));
        }
        let cluster = &world.port(V4, "default/web").unwrap().cluster;
        assert_eq!(
            (!cluster.is_empty(), cluster.iter().any(|e| e.is_local)),
            (used, local),
            "{copies:?}"
        );
    }
}

#[test]
fn weight_zero_takes_endpoints_out() {
    let mut world = world();
    world.apply(service(
        "web",
        "10.0.0.1",
        json!({"internalTrafficPolicy": "Local"}),
    ));
    let mut only = slice("s", "web", json!([endpoint("10.1.0.1", "n1")]));
    world.apply(only.clone());
    assert_eq!(
        show(&world.port(V4, "default/web").unwrap().local),
        ["10.1.0.1:8080*"]
    );
    merge(
        &mut only,
        json!({"metadata": {"annotations": {"ferrovia.io/weight": "0"}}}),
    );
    world.apply(only);
    let port = world.port(V4, "default/web").unwrap();
    assert!(port.local.is_empty() && !port.any_endpoints);
}

#[test]
fn policies_decide_which_lists_are_filled() {
    let mut world = world();
    let endpoints = json!([endpoint("10.1.0.1", "n1"), endpoint("10.1.0.2", "n2")]);
    world.apply(slice("s", "web", endpoints));
    let mut lists = |spec: Value| {
        world.apply(service("web", "10.0.0.1", spec));
        let port = world.port(V4, "default/web").unwrap();
        (port.cluster.len(), port.local.len())
    };
    assert_eq!(lists(json!({})), (2, 0));
    assert_eq!(lists(json!({"internalTrafficPolicy": "Local"})), (0, 1));
    let external = json!({"type": "NodePort", "externalTrafficPolicy": "Local"});
    assert_eq!(lists(external.clone()), (2, 0), "no way in");
    let mut with_node_port = external;
    merge(
        &mut with_node_port,
        json!({"ports": [{"port": 80, "nodePort": 30000}]}),
    );
    assert_eq!(lists(with_node_port), (2, 1));
    let internal = json!({"internalTrafficPolicy": "Local", "externalIPs": ["8.8.8.8"]});
    assert_eq!(lists(internal), (2, 1));
}

#[test]
fn forbidden_external_ips_still_shape_the_lists() {
    let mut world = TestCluster::new(NodeSettings {
        services: ServicePolicy {
            external_ips: ExternalIpPolicy::Deny,
            ..ServicePolicy::default()
        },
        ..settings()
    });
    world.apply(slice("s", "web", json!([endpoint("10.1.0.1", "n1")])));
    world.apply(service(
        "web",
        "10.0.0.1",
        json!({"internalTrafficPolicy": "Local", "externalIPs": ["8.8.8.8"]}),
    ));
    assert_eq!(
        world.frontends(V4, "default/web"),
        ["ClusterIp(10.0.0.1:80)"]
    );
    let port = world.port(V4, "default/web").unwrap();
    assert_eq!((port.cluster.len(), port.local.len()), (1, 1));
}

#[test]
fn an_address_in_two_roles_is_served_in_the_stricter() {
    let mut world = world();
    let value = service(
        "web",
        "10.0.0.1",
        json!({"externalIPs": ["203.0.113.1", "10.0.0.1"]}),
    );
    let (_, warnings) = world.apply(with_vips(value, &["203.0.113.1"]));
    assert_eq!(
        world.frontends(V4, "default/web"),
        ["ClusterIp(10.0.0.1:80)", "LoadBalancer(203.0.113.1:80)"]
    );
    assert_eq!(warnings, []);
}

#[test]
fn source_ranges_are_normalised() {
    let mut world = world();
    world.apply(node("a", &["192.168.0.5", "fd00::5"]));
    let mut ranges = |ranges: Value| {
        let value = dual("web", json!({"loadBalancerSourceRanges": ranges}));
        world.apply(with_vips(value, &["203.0.113.1", "2001:db8::1"]));
        [V4, V6].map(|family| {
            let port = world.port(family, "default/web").unwrap();
            port.source_ranges
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        })
    };
    assert_eq!(ranges(json!([])), ["", ""]);
    assert_eq!(
        ranges(json!(["10.0.0.0/8", "10.1.0.0/16", " 9.9.9.9/32"])),
        ["9.9.9.9/32 10.0.0.0/8", ""]
    );
    assert_eq!(
        ranges(json!(["10.0.0.0/8", "0.0.0.0/0", "2001:db8:1::/48"])),
        ["", "2001:db8:1::/48"]
    );
    assert_eq!(ranges(json!(["10.0.0.0/8", "::/0"])), ["10.0.0.0/8", ""]);
    // This node is inside: the load balancer's own address may be the source.
    assert_eq!(
        ranges(json!(["192.168.0.0/16", "fd00::/64"])),
        ["192.168.0.0/16 203.0.113.1/32", "2001:db8::1/128 fd00::/64"]
    );
}

#[test]
fn the_nodes_address_may_come_later_and_change() {
    let mut world = world();
    let value = service(
        "web",
        "10.0.0.1",
        json!({"loadBalancerSourceRanges": ["192.168.0.0/16"]}),
    );
    world.apply(with_vips(value, &["203.0.113.1"]));
    let count = |world: &TestCluster| world.port(V4, "default/web").unwrap().source_ranges.len();
    assert_eq!(count(&world), 1);
    let (deltas, _) = world.apply(node("a", &["192.168.0.5"]));
    assert_eq!(
        (count(&world), deltas.v4.ports.len(), deltas.v4.node),
        (2, 1, false)
    );
    world.apply(node("a", &["10.9.9.9"]));
    assert_eq!(count(&world), 1);
}

#[test]
fn a_change_of_zone_is_followed() {
    let mut world = world();
    world.apply(service("web", "10.0.0.1", json!({})));
    let hinted =
        |ip: &str, zone: &str| json!({"addresses": [ip], "hints": {"forZones": [{"name": zone}]}});
    world.apply(slice(
        "s",
        "web",
        json!([hinted("10.1.0.1", "a"), hinted("10.1.0.2", "b")]),
    ));
    let cluster = |world: &TestCluster| show(&world.port(V4, "default/web").unwrap().cluster);
    assert_eq!(cluster(&world).len(), 2);
    world.apply(node("a", &[]));
    assert_eq!(cluster(&world), ["10.1.0.1:8080"]);
    world.apply(node("b", &[]));
    assert_eq!(cluster(&world), ["10.1.0.2:8080"]);
    world.apply(node("", &[]));
    assert_eq!(cluster(&world).len(), 2);
}

#[test]
fn what_changes_nothing_is_no_change() {
    let mut world = world();
    world.apply(node("a", &["192.168.0.5"]));
    world.apply(dual("web", json!({})));
    let endpoints = [endpoint("10.1.0.1", "n1"), endpoint("10.1.0.2", "n2")];
    world.apply(slice("s", "web", json!(endpoints)));
    let reversed: Vec<&Value> = endpoints.iter().rev().collect();
    let mut tainted = node("a", &["192.168.0.5"]);
    merge(
        &mut tainted,
        json!({"spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler"}]}}),
    );
    let events = [
        dual("web", json!({"selector": {"a": "b"}})),
        slice("s", "web", json!(reversed)),
        slice("t", "web", json!([endpoint("10.1.0.1", "n1")])),
        slice("u", "unknown", json!([endpoint("10.1.0.1", "n1")])),
        tainted,
    ];
    for event in events {
        let (deltas, warnings) = world.apply(event.clone());
        assert!(deltas.v4.is_empty() && deltas.v6.is_empty(), "{event}");
        assert_eq!(warnings, []);
    }
    // There and back again between two updates is no change either.
    world.store.handle(crate::testing::applied(dual(
        "web",
        json!({"externalIPs": ["8.8.8.8"]}),
    )));
    world
        .store
        .handle(crate::testing::applied(dual("web", json!({}))));
    assert!(world.sync().deltas.v4.is_empty());
}

#[test]
fn a_renamed_port_is_replaced_in_one_update() {
    let mut world = world();
    world.apply(service(
        "web",
        "10.0.0.1",
        json!({"ports": [{"name": "old", "port": 80}]}),
    ));
    let (deltas, warnings) = world.apply(service(
        "web",
        "10.0.0.1",
        json!({"ports": [{"name": "new", "port": 80}]}),
    ));
    let changes: Vec<_> = deltas
        .v4
        .ports
        .iter()
        .map(|c| (&*c.key.name, c.old.is_some(), c.new.is_some()))
        .collect();
    assert_eq!(changes, [("new", false, true), ("old", true, false)]);
    assert_eq!(warnings, [], "the port does not claim against its own past");
    world.delete(Kind::Service, "web");
    assert_eq!(world.builder.desired(V4).ports.len(), 0);
}

/// A slot for each unit of weight, in each of many ports, would take more memory than the endpoints of a whole cluster.
#[test]
fn weights_are_scaled_down_where_there_are_many_ports() {
    let total = |ports: u32| {
        let mut world = world();
        let numbers = 0..ports;
        let named: Vec<Value> = numbers
            .map(|i| json!({"name": format!("p{i}"), "port": 1 + i}))
            .collect();
        world.apply(service("web", "10.0.0.1", json!({"ports": named})));
        for (name, ip, weight) in [
            ("a", "10.1.0.1", "999"),
            ("b", "10.1.0.2", "1"),
            ("c", "10.1.0.3", "0"),
        ] {
            let mut value = slice(name, "web", json!([endpoint(ip, "n1")]));
            value["ports"] = named
                .iter()
                .map(|port| json!({"name": port["name"], "port": 80}))
                .collect();
            value["metadata"]["annotations"] = json!({"ferrovia.io/weight": weight});
            world.apply(value);
        }
        let port = world.port(V4, "default/web:p0").unwrap();
        port.cluster.iter().map(|it| it.weight).collect::<Vec<_>>()
    };
    assert_eq!(total(16), [999, 1]);
    assert_eq!(total(1_000), [64, 1]);
}

#[test]
fn node_rules_follow_settings_node_and_interfaces() {
    let mut world = TestCluster::new(NodeSettings {
        node_ports: NodePortSetting::Primary,
        local: LocalSetting::NodeCidr,
        ..settings()
    });
    let update = world.sync();
    assert_eq!(update.warnings.len(), 2, "no address is known yet");
    assert_eq!(world.sync().warnings, [], "and that is said once");
    world.local_addresses = vec!["127.0.0.1".parse().unwrap(), "192.168.0.5".parse().unwrap()];
    let mut ours = node("a", &["192.168.0.5"]);
    merge(&mut ours, json!({"spec": {"podCIDRs": ["10.1.0.0/24"]}}));
    let (deltas, warnings) = world.apply(ours);
    assert!(deltas.v4.node && !deltas.v6.node);
    assert_eq!(warnings, []);
    let only = NodePortAddresses::Only(["192.168.0.5".parse().unwrap()].into());
    assert_eq!(world.builder.desired(V4).node.node_ports, only);
    assert_eq!(
        world.builder.desired(V6).node.node_ports,
        NodePortAddresses::Any
    );
    // The address leaves the interface: no event, but the next update sees it.
    world.local_addresses.clear();
    assert!(world.sync().deltas.v4.node);
    let (deltas, _) = world.apply(json!({"kind": "ServiceCIDR", "metadata": {"name": "a"},
        "spec": {"cidrs": ["fd00:1::/108"]}}));
    assert!(!deltas.v4.node && deltas.v6.node);
    world.handle(Event::Deleted {
        kind: Kind::ServiceCidr,
        namespace: String::new(),
        name: "a".into(),
    });
    assert_eq!(world.builder.desired(V6).node.service_cidrs, []);
}
