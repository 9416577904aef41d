//! Any chain of events ends in the state that its last objects alone give.

use std::collections::BTreeMap;
use std::net::IpAddr;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::{Value, json};

use crate::desired::{Frontend, NodePortSetting, NodeSettings};
use crate::family::Family;
use crate::model::ServiceKey;
use crate::store::{Event, Store};
use crate::testing::{NODE, TestCluster, applied, settings};
use crate::wire::Kind;

const ZONES: [&str; 3] = ["", "a", "b"];
const PORT_NAMES: [&str; 2] = ["", "x"];
const PORTS: [u16; 3] = [80, 81, 30000];
const NODE_PORTS: [u16; 3] = [0, 30000, 30001];

/// One thing that happens.
#[derive(Clone, Debug)]
enum Step {
    /// An object of this kind and name appears, changes or stays.
    Apply(Kind, String, Value),
    Delete(Kind, String),
    /// The first lists are complete.
    Listed,
    /// The node has these of the addresses that services list.
    Addresses(u8),
    /// The builder is asked to catch up.
    Sync,
}

/// Few names and few addresses, so that services meet each other all the time; most endpoints ready and hinted, so that hints count.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..5u8, a_service()).prop_map(|(i, value)| Step::Apply(Kind::Service, format!("s{i}"), value)),
        6 => (0..6u8, a_slice()).prop_map(|(i, value)| Step::Apply(Kind::EndpointSlice, format!("e{i}"), value)),
        1 => (0..5u8, an_ip()).prop_map(|(i, ip)| Step::Apply(Kind::Endpoints, format!("s{i}"), json!({
            "subsets": [{"addresses": [{"ip": ip}], "ports": [{"port": 80}]}]}))),
        3 => (0..3u8, 0..3u8).prop_map(|(zone, ip)| Step::Apply(Kind::Node, NODE.into(), json!({
            "metadata": {"labels": {"topology.kubernetes.io/zone": ZONES[usize::from(zone)]}},
            "status": {"addresses": [{"type": "InternalIP", "address": format!("10.0.0.{ip}")}]}}))),
        1 => (0..2u8, 0..3u8).prop_map(|(i, net)| Step::Apply(Kind::ServiceCidr, format!("c{i}"), json!({
            "spec": {"cidrs": [format!("10.{net}.0.0/16"), "10.0.0.0/8"]}}))),
        3 => (0..5u8).prop_map(|i| Step::Delete(Kind::Service, format!("s{i}"))),
        2 => (0..6u8).prop_map(|i| Step::Delete(Kind::EndpointSlice, format!("e{i}"))),
        1 => (0..5u8).prop_map(|i| Step::Delete(Kind::Endpoints, format!("s{i}"))),
        1 => (0..2u8).prop_map(|i| Step::Delete(Kind::ServiceCidr, format!("c{i}"))),
        1 => Just(Step::Listed),
        2 => (0..8u8).prop_map(Step::Addresses),
        8 => Just(Step::Sync),
    ];
    prop::collection::vec(step, 0..60)
}

fn an_ip() -> impl Strategy<Value = String> {
    prop_oneof![
        (0..4u8).prop_map(|i| format!("10.0.0.{i}")),
        (0..4u8).prop_map(|i| format!("fd00::{i}"))
    ]
}

prop_compose! {
    fn a_service()(ip in an_ip(), second in an_ip(), external in prop::collection::vec(an_ip(), 0..2),
        vips in prop::collection::vec(an_ip(), 0..2), ports in prop::collection::vec((0..2u8, 0..3u8, 0..3u8), 1..3),
        (local, kind) in (0..4u8, 0..4u8), created in 0..4u8, ranges in prop::bool::weighted(0.4)) -> Value {
        let ports: Vec<Value> = ports.iter().map(|(name, port, node)| json!({
            "name": PORT_NAMES[usize::from(*name)], "port": PORTS[usize::from(*port)],
            "nodePort": NODE_PORTS[usize::from(*node)]})).collect();
        let mut value = json!({
            "spec": {
                "clusterIP": if kind == 0 { "None" } else { ip.as_str() }, "clusterIPs": [ip, second], "type": "LoadBalancer", "healthCheckNodePort": 31000,
                "ports": ports, "externalIPs": external,
                "internalTrafficPolicy": if local & 1 == 1 { "Local" } else { "Cluster" },
                "externalTrafficPolicy": if local & 2 == 2 { "Local" } else { "Cluster" },
                "loadBalancerSourceRanges": if ranges { json!(["10.0.0.0/31", "fd00::/127"]) } else { json!([]) },
            },
            "status": {"loadBalancer": {"ingress": vips.iter().map(|ip| json!({"ip": ip})).collect::<Vec<_>>()}},
        });
        if created > 0 {
            value["metadata"]["creationTimestamp"] = json!(format!("2026-01-0{created}T00:00:00Z"));
        }
        value
    }
}

prop_compose! {
    fn a_slice()(service in 0..5u8, v6 in any::<bool>(), weight in prop::sample::select(&[0u8, 1, 1, 1, 2][..]), named in any::<bool>(),
        endpoints in prop::collection::vec((1..4u8, 0..3u8, 0..8u8, 0..6u8), 0..4)) -> Value {
        let endpoints: Vec<Value> = endpoints.iter().map(|(ip, node, zone, state)| json!({
            "addresses": [if v6 { format!("fd00:1::{ip}") } else { format!("10.1.0.{ip}") }],
            "nodeName": format!("n{node}"),
            "hints": {"forZones": if *zone == 0 { json!([]) } else { json!([{"name": ZONES[usize::from(1 + zone % 2)]}]) }},
            "conditions": {"ready": *state > 2, "terminating": *state == 1},
        })).collect();
        json!({
            "metadata": {"labels": {"kubernetes.io/service-name": format!("s{service}")},
                "annotations": {"ferrovia.io/weight": weight.to_string()}},
            "addressType": if v6 { "IPv6" } else { "IPv4" },
            "ports": [{"name": if named { "x" } else { "" }, "port": 8080}],
            "endpoints": endpoints,
        })
    }
}

fn event(kind: Kind, name: &str, value: &Value) -> Event {
    let mut value = value.clone();
    value["kind"] = json!(kind.name());
    value["metadata"]["name"] = json!(name);
    applied(value)
}

fn deleted(kind: Kind, name: &str) -> Event {
    Event::Deleted {
        kind,
        namespace: String::new(),
        name: name.into(),
    }
}

fn fresh(node_ports: &NodePortSetting) -> TestCluster {
    let settings = NodeSettings {
        node_ports: node_ports.clone(),
        ..settings()
    };
    let mut world = TestCluster::with_store(Store::new(NODE), settings);
    world.local_addresses = addresses(3);
    world
}

/// Some of three addresses that services have too.
fn addresses(bits: u8) -> Vec<IpAddr> {
    let all = ["10.0.0.1", "10.0.0.2", "fd00::1"].iter().enumerate();
    let chosen = all.filter(|(i, _)| bits >> i & 1 == 1);
    chosen.map(|(_, ip)| ip.parse().unwrap()).collect()
}

fn node_ports() -> impl Strategy<Value = NodePortSetting> {
    prop_oneof![Just(NodePortSetting::Primary), Just(NodePortSetting::Any)]
}

/// Runs the steps; the world and the objects that are left.
fn run(
    steps: &[Step],
    node_ports: &NodePortSetting,
) -> (TestCluster, BTreeMap<(Kind, String), Value>) {
    let mut world = fresh(node_ports);
    let mut objects = BTreeMap::new();
    for step in steps {
        match step {
            Step::Apply(kind, name, value) => {
                world.store.handle(event(*kind, name, value));
                objects.insert((*kind, name.clone()), value.clone());
            }
            Step::Delete(kind, name) => {
                world.store.handle(deleted(*kind, name));
                objects.remove(&(*kind, name.clone()));
            }
            Step::Listed => drop(world.store.handle(Event::Listed(Kind::Service))),
            Step::Addresses(bits) => world.local_addresses = addresses(*bits),
            Step::Sync => drop(world.sync()),
        }
    }
    world.sync();
    (world, objects)
}

/// Makes the same state from what is left, with services in the order in which they appeared.
fn replay(
    world: &TestCluster,
    objects: &BTreeMap<(Kind, String), Value>,
    node_ports: &NodePortSetting,
) -> TestCluster {
    let age = |name: &str| {
        world
            .store
            .age(&ServiceKey::from_checked_names("default", name))
            .map_or(0, |age| age.appeared)
    };
    let mut objects: Vec<_> = objects.iter().collect();
    objects.sort_by_key(|((kind, name), _)| if *kind == Kind::Service { age(name) } else { 0 });
    let mut replayed = fresh(node_ports);
    replayed.local_addresses.clone_from(&world.local_addresses);
    let mut listed = false;
    for ((kind, name), value) in objects {
        if *kind == Kind::Service && age(name) > 0 && !listed {
            listed = true;
            replayed.store.handle(Event::Listed(Kind::Service));
        }
        replayed.store.handle(event(*kind, name, value));
    }
    replayed.sync();
    replayed
}

proptest! {
    // A fixed seed, so that a failure is reproducible.
    #![proptest_config(ProptestConfig { cases: 512, rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..Default::default() })]

    #[test]
    fn incremental_equals_from_scratch(steps in steps(), node_ports in node_ports()) {
        let (world, objects) = run(&steps, &node_ports);
        let replayed = replay(&world, &objects, &node_ports);
        for family in Family::ALL {
            let (found, expected) = (world.builder.desired(family), replayed.builder.desired(family));
            prop_assert_eq!(&found.ports, &expected.ports);
            prop_assert_eq!(&found.node, &expected.node);
            prop_assert_eq!(&found.health_checks, &expected.health_checks);
            prop_assert_eq!(found.without_local, expected.without_local);
            check_unique(found);
            check_ranks(found, &world.store);
        }
    }
}

/// No two service ports have the same frontend, and an address has one role.
fn check_unique(desired: &crate::desired::Desired) {
    let mut seen = std::collections::BTreeSet::new();
    for port in desired.ports.values() {
        for frontend in &port.frontends {
            let place = frontend
                .address()
                .map_or_else(|| format!("{frontend:?}"), |address| address.to_string());
            assert!(seen.insert((port.protocol(), place)), "{frontend:?} twice");
        }
    }
}

/// What an author lists is never taken from a Service that the API server or a controller assigned it to.
fn check_ranks(desired: &crate::desired::Desired, store: &Store) {
    let family = desired.family;
    for port in desired.ports.values() {
        for frontend in &port.frontends {
            let Some(at) = frontend.address().filter(|_| !frontend.is_internal()) else {
                continue;
            };
            let node_port = Frontend::NodePort(at.port());
            let rivals = desired.ports.values().filter(|it| {
                it.key != port.key
                    && it.frontends.contains(&node_port)
                    && it.protocol() == port.protocol()
            });
            assert!(rivals.count() == 0 || !desired.node.answers_node_ports(at.ip()));
            let others = store
                .services()
                .filter(|it| it.key != port.key.service && it.cluster_ips[family].is_some());
            for other in others {
                let has_port = other.ports.iter().any(|it| it.port == at.port());
                assert!(!(has_port && other.cluster_ips[family] == Some(at.ip())));
                let is_external = matches!(frontend, Frontend::ExternalIp(_));
                let is_balanced = other.load_balancer_ips(family).any(|ip| ip == at.ip());
                assert!(!(is_external && has_port && is_balanced));
            }
        }
    }
}
