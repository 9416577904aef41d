//! Tests of claims in action: which Service has an address that several list.

use serde_json::{Value, json};

use super::{dual, world};
use crate::desired::{NodePortSetting, NodeSettings};
use crate::family::Family::V4;
use crate::store::Event;
use crate::testing::{TestCluster, merge, service, settings};
use crate::wire::Kind;

#[test]
fn the_older_service_keeps_what_a_younger_claims() {
    let mut world = world();
    world.apply(service(
        "old",
        "10.0.0.1",
        json!({"ports": [{"port": 80, "nodePort": 30000}]}),
    ));
    let thief =
        json!({"externalIPs": ["10.0.0.1", "8.8.8.8"], "ports": [{"port": 80, "nodePort": 30000}]});
    let (deltas, warnings) = world.apply(service("a-thief", "10.0.0.9", thief.clone()));
    assert_eq!(
        world.frontends(V4, "default/a-thief"),
        ["ClusterIp(10.0.0.9:80)", "ExternalIp(8.8.8.8:80)"]
    );
    assert_eq!(deltas.v4.ports.len(), 1, "the older one is not disturbed");
    let reported: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        reported,
        [
            "Service default/a-thief: spec.externalIPs: 10.0.0.1:80/tcp of default/a-thief is not served: default/old has it as its cluster IP",
            "Service default/a-thief: spec.ports: IPv4 node port 30000/tcp of default/a-thief is not served: default/old claimed it first",
        ]
    );
    // Reported once, however often the loser changes.
    let mut changed = thief;
    merge(&mut changed, json!({"sessionAffinity": "ClientIP"}));
    assert_eq!(world.apply(service("a-thief", "10.0.0.9", changed)).1, []);

    let (deltas, _) = world.apply(service("old", "10.0.0.1", json!({})));
    assert_eq!(
        deltas.v4.ports.len(),
        2,
        "the node port changes hands at once"
    );
    assert!(
        world
            .frontends(V4, "default/a-thief")
            .contains(&"NodePort(30000)".to_string())
    );
    let (_, warnings) = world.apply(service(
        "old",
        "10.0.0.1",
        json!({"ports": [{"port": 80, "nodePort": 30000}]}),
    ));
    let repeated: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        repeated,
        reported[1..],
        "age is the Service's, so it gets its port back"
    );
    world.delete(Kind::Service, "old");
    assert_eq!(world.frontends(V4, "default/a-thief").len(), 4);
}

/// A Service in a namespace, with its creation time.
fn tenant(namespace: &str, name: &str, ip: &str, day: u8, spec: Value) -> Value {
    let mut value = service(name, ip, spec);
    let created = format!("2026-01-{day:02}T00:00:00Z");
    merge(
        &mut value,
        json!({"metadata": {"namespace": namespace, "creationTimestamp": created}}),
    );
    value
}

fn with_ingress(mut value: Value, ip: &str) -> Value {
    merge(
        &mut value,
        json!({"status": {"loadBalancer": {"ingress": [{"ip": ip}]}}}),
    );
    value
}

/// What is assigned by the API server or a controller cannot be claimed in advance, whichever Service comes first and is older.
#[test]
fn an_address_cannot_be_claimed_before_it_is_assigned() {
    let as_cluster_ip = |day| tenant("shop", "db", "10.0.0.77", day, json!({}));
    let as_balancer = |day| {
        with_ingress(
            tenant("shop", "db", "10.0.0.5", day, json!({})),
            "10.0.0.77",
        )
    };
    let listed = |day| {
        let spec = json!({"externalIPs": ["10.0.0.77"]});
        tenant("evil", "bait", "10.0.0.66", day, spec)
    };
    let balanced = |day| {
        with_ingress(
            tenant("evil", "bait", "10.0.0.66", day, json!({})),
            "10.0.0.77",
        )
    };
    type Make<'a> = &'a dyn Fn(u8) -> Value;
    let pairs: [(Make<'_>, Make<'_>, &str); 3] = [
        (&as_cluster_ip, &listed, "ClusterIp(10.0.0.77:80)"),
        (&as_cluster_ip, &balanced, "ClusterIp(10.0.0.77:80)"),
        (&as_balancer, &listed, "LoadBalancer(10.0.0.77:80)"),
    ];
    for (victim, attacker, frontend) in pairs {
        for (of_victim, of_attacker) in [(1, 2), (2, 1)] {
            let [first, second] = [victim(of_victim), attacker(of_attacker)];
            for (first, second) in [(first.clone(), second.clone()), (second, first)] {
                let mut world = world();
                world.apply(first);
                world.apply(second);
                let found = world.frontends(V4, "shop/db");
                assert!(found.contains(&frontend.to_string()), "{found:?}");
                let left = world.frontends(V4, "evil/bait");
                assert_eq!(left, ["ClusterIp(10.0.0.66:80)"]);
            }
        }
    }
}

#[test]
fn a_loss_does_not_reveal_names_of_another_namespace() {
    let mut world = world();
    world.apply(tenant("shop", "db", "10.0.0.77", 2, json!({})));
    let spec = json!({"externalIPs": ["10.0.0.77"]});
    let (_, warnings) = world.apply(tenant("evil", "bait", "10.0.0.66", 1, spec));
    let [warning] = &*warnings else {
        panic!("{warnings:?}")
    };
    assert_eq!(warning.object, "Service evil/bait");
    assert_eq!(warning.field, "spec.externalIPs");
    assert_eq!(
        warning.problem,
        "10.0.0.77:80/tcp of evil/bait is not served: a Service in another namespace has it as its cluster IP"
    );
    let detail = warning.operator_detail.as_deref();
    assert_eq!(detail, Some("the Service is shop/db"));
}

/// An external IP or a load balancer's address may be the node's own. Where a node port answers there, it is the node port's.
#[test]
fn a_node_port_goes_before_addresses_that_are_listed() {
    let mut world = world();
    world.local_addresses = vec!["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
    let ports = json!({"ports": [{"port": 30000}], "externalIPs": ["192.0.2.1", "192.0.2.9"]});
    let bait = with_ingress(tenant("evil", "bait", "10.0.0.66", 1, ports), "192.0.2.2");
    world.apply(bait.clone());
    assert_eq!(world.frontends(V4, "evil/bait").len(), 4);
    let spec = json!({"ports": [{"port": 80, "nodePort": 30000}]});
    let (deltas, warnings) = world.apply(tenant("shop", "web", "10.0.0.77", 2, spec));
    assert_eq!(
        world.frontends(V4, "evil/bait"),
        ["ClusterIp(10.0.0.66:30000)", "ExternalIp(192.0.2.9:30000)"]
    );
    assert_eq!(deltas.v4.ports.len(), 2);
    assert_eq!(warnings.len(), 2);
    assert!(warnings[0].problem.ends_with("has it as its node port"));
    // Said once, also when the loser changes.
    let mut changed = bait;
    merge(
        &mut changed,
        json!({"spec": {"sessionAffinity": "ClientIP"}}),
    );
    assert_eq!(world.apply(changed).1, []);

    // Node ports do not answer at an address that the node no longer has.
    world.local_addresses = vec!["192.0.2.2".parse().unwrap()];
    world.sync();
    assert_eq!(world.frontends(V4, "evil/bait").len(), 3);
    world.handle(Event::Deleted {
        kind: Kind::Service,
        namespace: "shop".into(),
        name: "web".into(),
    });
    assert_eq!(world.frontends(V4, "evil/bait").len(), 4);
}

/// A Service's own node port is no rival, and neither is one that does not answer at the address.
#[test]
fn a_node_port_matters_only_where_it_answers() {
    let mut world = TestCluster::new(NodeSettings {
        node_ports: NodePortSetting::Cidrs(vec!["192.0.2.2/32".parse().unwrap()]),
        ..settings()
    });
    world.local_addresses = vec!["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
    let spec = json!({"ports": [{"port": 80, "nodePort": 30000}]});
    world.apply(tenant("shop", "web", "10.0.0.77", 1, spec));
    let spec = json!({"ports": [{"port": 30000}], "externalIPs": ["192.0.2.1", "192.0.2.2"]});
    world.apply(tenant("shop", "edge", "10.0.0.78", 2, spec));
    assert_eq!(
        world.frontends(V4, "shop/edge"),
        ["ClusterIp(10.0.0.78:30000)", "ExternalIp(192.0.2.1:30000)"]
    );
    let spec = json!({"ports": [{"port": 30001, "nodePort": 30001}], "externalIPs": ["192.0.2.2"]});
    world.apply(tenant("shop", "both", "10.0.0.79", 3, spec));
    assert_eq!(world.frontends(V4, "shop/both").len(), 3);
}

#[test]
fn a_flood_of_lost_claims_is_cut_short() {
    let mut world = world();
    let ips: Vec<String> = (0..200).map(|i| format!("192.0.2.{i}")).collect();
    let greedy = json!({"externalIPs": ips});
    world.apply(service("a", "10.0.0.1", greedy.clone()));
    let (_, warnings) = world.apply(service("b", "10.0.0.2", greedy));
    assert_eq!(warnings.len(), 17);
    assert_eq!(
        warnings[16].to_string(),
        "Service default/b: ...: 184 more problems are not listed"
    );
}

#[test]
fn claims_differ_by_protocol_port_and_family() {
    let mut world = world();
    world.apply(service(
        "a",
        "10.0.0.1",
        json!({"ports": [{"port": 53, "nodePort": 30000}]}),
    ));
    let other = json!({"externalIPs": ["10.0.0.1"], "ports": [{"port": 53, "protocol": "UDP", "nodePort": 30000},
        {"name": "x", "port": 54}]});
    assert_eq!(world.apply(service("b", "10.0.0.2", other)).1, []);
    // A node port is free in the family the other service is not in.
    assert_eq!(
        world
            .apply(service(
                "c",
                "fd00::3",
                json!({"ports": [{"port": 53, "nodePort": 30000}]})
            ))
            .1,
        []
    );
    let (_, warnings) = world.apply(dual(
        "d",
        json!({"clusterIPs": ["10.0.0.4", "fd00::4"],
        "ports": [{"port": 53, "nodePort": 30000}]}),
    ));
    assert_eq!(warnings.len(), 2);
}

#[test]
fn two_ports_of_one_service_can_be_rivals() {
    let mut world = world();
    let ports = json!({"ports": [{"name": "b", "port": 80}, {"name": "a", "port": 80}]});
    let (_, warnings) = world.apply(service("web", "10.0.0.1", ports));
    assert_eq!(warnings.len(), 1);
    assert_eq!(world.frontends(V4, "default/web:a").len(), 1);
    assert_eq!(world.frontends(V4, "default/web:b").len(), 0);
}

#[test]
fn creation_time_goes_before_appearance() {
    let mut world = world();
    let at = |name: &str, time: &str| {
        let mut value = service(name, "10.0.0.1", json!({}));
        merge(&mut value, json!({"metadata": {"creationTimestamp": time}}));
        value
    };
    world.apply(at("young", "2026-02-01T00:00:00Z"));
    world.apply(at("elder", "2026-01-01T00:00:00Z"));
    assert_eq!(world.frontends(V4, "default/young").len(), 0);
    assert_eq!(world.frontends(V4, "default/elder").len(), 1);
    // Deleted and created again in between: now the younger one.
    world.apply(at("elder", "2026-03-01T00:00:00Z"));
    assert_eq!(world.frontends(V4, "default/elder").len(), 0);
}
