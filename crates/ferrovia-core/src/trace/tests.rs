//! Traces of single packets. That traces agree with the kernel is shown by the case files, flow by flow.

use serde_json::{Value, json};

use super::*;
use crate::desired::{EndpointSelection, LocalSetting, NodePortSetting, NodeSettings};
use crate::family::PerFamily;
use crate::model::Protocol;
use crate::testing::{NODE, TestCluster, endpoint, merge, service, settings, slice};

const BOTH: PerFamily<bool> = PerFamily { v4: true, v6: true };
const BIND_PORTALS: TraceProfile = super::BIND_PORTALS.with_localhost_node_ports(BOTH);
const IPTABLES: TraceProfile = super::IPTABLES.with_localhost_node_ports(PerFamily {
    v4: true,
    v6: false,
});

/// A node with a pod range and two addresses, and these objects.
fn world(objects: impl IntoIterator<Item = Value>) -> TestCluster {
    world_with(&["198.51.100.10/32"], objects)
}

/// The same with node ports on other addresses.
fn world_with(node_ports: &[&str], objects: impl IntoIterator<Item = Value>) -> TestCluster {
    let node_ports = node_ports.iter().map(|net| net.parse().unwrap());
    let mut world = TestCluster::new(NodeSettings {
        local: LocalSetting::ClusterCidr(vec!["10.244.0.0/16".parse().unwrap()]),
        node_ports: NodePortSetting::Cidrs(node_ports.collect()),
        ..settings()
    });
    world.local_addresses = ["127.0.0.1", "198.51.100.10", "198.51.100.11"]
        .map(|ip| ip.parse().unwrap())
        .to_vec();
    world.apply(json!({
        "kind": "Node",
        "metadata": {"name": NODE, "labels": {"topology.kubernetes.io/zone": "a"}},
        "spec": {"podCIDR": "10.244.1.0/24"},
    }));
    for object in objects {
        world.apply(object);
    }
    world
}

fn ask(world: &TestCluster, profile: TraceProfile, from: &str, to: &str) -> Trace {
    let context = TraceContext {
        builder: &world.builder,
        store: &world.store,
        addresses: &world.local_addresses,
        profile,
    };
    let (to, protocol) = match to.split_once('/') {
        Some((to, "udp")) => (to, Protocol::Udp),
        Some((to, _)) => (to, Protocol::Sctp),
        None => (to, Protocol::Tcp),
    };
    let to: SocketAddr = to.parse().unwrap();
    let source = from.parse().unwrap();
    let packet = Packet {
        source,
        place: context.place(source),
        destination: to.ip(),
        port: to.port(),
        protocol,
    };
    trace(&context, &packet)
}

/// A node port Service with an endpoint here and one elsewhere.
fn web(spec: Value) -> Vec<Value> {
    let mut whole = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]});
    merge(&mut whole, spec);
    vec![
        service("web", "10.96.0.10", whole),
        slice(
            "web-1",
            "web",
            json!([endpoint("10.244.1.20", NODE), endpoint("10.244.2.20", "n2")]),
        ),
    ]
}

fn used(trace: &Trace) -> Vec<String> {
    let used = trace.endpoints.iter().filter(|e| e.used);
    used.map(|e| format!("{} {:.2}", e.address, e.chance))
        .collect()
}

#[test]
fn a_pod_reaches_a_cluster_ip() {
    let trace = ask(
        &world(web(json!({}))),
        NFTABLES,
        "10.244.1.30",
        "10.96.0.10:80",
    );
    assert_eq!(trace.outcome, Outcome::Delivered);
    assert_eq!(trace.packet.place, Place::LocalPod);
    assert_eq!(
        used(&trace),
        ["10.244.1.20:8080 0.50", "10.244.2.20:8080 0.50"]
    );
    assert_eq!(trace.masquerade, Masquerade::None);
    assert_eq!(trace.service.unwrap().frontend, FrontendKind::ClusterIp);
}

#[test]
fn an_endpoint_that_reaches_itself_is_masqueraded() {
    let trace = ask(
        &world(web(json!({}))),
        NFTABLES,
        "10.244.1.20",
        "10.96.0.10:80",
    );
    let seen: Vec<_> = trace.endpoints.iter().map(|e| e.masquerade).collect();
    assert_eq!(seen, [Masquerade::Hairpin, Masquerade::None]);
    assert!(
        trace
            .to_string()
            .contains("the endpoint is the sender itself"),
        "{trace}"
    );
}

#[test]
fn an_endpoint_in_the_node_s_own_network_sees_the_sender() {
    let host = |ip, node| slice("web-1", "web", vec![endpoint(ip, node)]);
    let mut objects = web(json!({}));
    objects[1] = host("198.51.100.10", NODE);
    let here = world(objects.clone());
    let seen = |world: &TestCluster, mode, from| {
        let trace = ask(world, mode, from, "198.51.100.10:30080");
        assert_eq!(used(&trace).len(), 1);
        trace.endpoints[0].masquerade
    };
    // What is for this machine does not pass where packets that leave it are masqueraded; what it sends itself does.
    assert_eq!(seen(&here, NFTABLES, "192.0.2.9"), Masquerade::None);
    assert_eq!(seen(&here, IPTABLES, "10.244.1.30"), Masquerade::None);
    let external = Masquerade::ExternalPolicyCluster;
    assert_eq!(seen(&here, NFTABLES, "198.51.100.10"), external);
    objects[1] = host("198.51.100.20", "n2");
    assert_eq!(seen(&world(objects), NFTABLES, "192.0.2.9"), external);
}

#[test]
fn policy_local_depends_on_who_asks() {
    let world = world(web(json!({"externalTrafficPolicy": "Local"})));
    let outside = ask(&world, NFTABLES, "192.0.2.9", "198.51.100.10:30080");
    assert_eq!(used(&outside), ["10.244.1.20:8080 1.00"]);
    assert_eq!(outside.masquerade, Masquerade::None);
    assert_eq!(outside.endpoints[1].because, "on node n2, not on this one");
    let node = ask(&world, NFTABLES, "198.51.100.10", "198.51.100.10:30080");
    assert_eq!(used(&node).len(), 2);
    assert_eq!(node.masquerade, Masquerade::FromNode);
    let because = node.service.unwrap().policy_because;
    assert!(
        because.contains("this node itself may use any"),
        "{because}"
    );
}

#[test]
fn what_cannot_be_carried_is_refused_whatever_the_policy() {
    let ports = json!([{"port": 80, "nodePort": 30080, "protocol": "SCTP"}]);
    let mut objects = web(json!({"ports": ports, "externalTrafficPolicy": "Local"}));
    objects[1] = slice("web-1", "web", json!([endpoint("10.244.2.20", "n2")]));
    objects[1]["ports"][0]["protocol"] = json!("SCTP");
    let world = world(objects);
    let userspace = USERSPACE.with_localhost_node_ports(BOTH);
    for from in ["10.244.1.30", "198.51.100.10", "192.0.2.9"] {
        for mode in [userspace, BIND_PORTALS] {
            let trace = ask(&world, mode, from, "198.51.100.10:30080/sctp");
            let seen = (trace.outcome, trace.cause);
            assert_eq!(seen, (Outcome::Refused, Cause::NotCarried), "{trace}");
        }
    }
}

#[test]
fn an_address_of_the_node_is_left_to_the_node_port_of_another_service() {
    // `edge` lists the node's address with the number of the node port of `web`.
    let edge = json!({"externalIPs": ["198.51.100.10"], "ports": [{"port": 30080}, {"name": "b", "port": 30081}]});
    let mut objects = web(json!({}));
    objects.push(service("edge", "10.96.0.20", edge));
    objects.push(slice(
        "edge-1",
        "edge",
        json!([endpoint("10.244.2.21", "n2")]),
    ));
    let world = world(objects);
    let name = |mode, to| {
        let trace = ask(&world, mode, "192.0.2.9", to);
        trace.service.map(|service| service.name)
    };
    let of = |service: &str| Some(service.to_owned());
    for mode in [NFTABLES, IPTABLES, IPVS, BIND_PORTALS] {
        assert_eq!(name(mode, "198.51.100.10:30080"), of("web"));
        assert_eq!(name(mode, "198.51.100.10:30081"), of("edge"));
    }
}

#[test]
fn refusals_say_why() {
    let mut lonely = web(json!({}));
    lonely.truncate(1);
    let trace = ask(&world(lonely), NFTABLES, "10.244.1.30", "10.96.0.10:80");
    assert_eq!(
        (trace.outcome, trace.cause),
        (Outcome::Refused, Cause::NoEndpoints)
    );
    assert!(
        trace.hints[0].contains("does its selector match"),
        "{trace}"
    );

    let other_port = vec![
        service(
            "web",
            "10.96.0.10",
            json!({"ports": [{"name": "http", "port": 80}]}),
        ),
        slice("web-1", "web", json!([endpoint("10.244.1.20", NODE)])),
    ];
    let trace = ask(&world(other_port), NFTABLES, "10.244.1.30", "10.96.0.10:80");
    assert!(trace.hints[0].contains("none is \"http\"/tcp"), "{trace}");

    let mut far = web(json!({"internalTrafficPolicy": "Local"}));
    far[1] = slice("web-1", "web", json!([endpoint("10.244.2.20", "n2")]));
    let trace = ask(&world(far), NFTABLES, "10.244.1.30", "10.96.0.10:80");
    assert_eq!(
        (trace.outcome, trace.cause),
        (Outcome::Dropped, Cause::NoLocalEndpoints)
    );
}

#[test]
fn source_ranges_keep_others_out() {
    let mut objects =
        web(json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ["192.0.2.0/28"]}));
    objects[0]["status"] = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}});
    let world = world(objects);
    for mode in [NFTABLES, IPTABLES] {
        let inside = ask(&world, mode, "192.0.2.9", "203.0.113.1:80");
        assert_eq!(inside.outcome, Outcome::Delivered);
        assert_eq!(inside.masquerade, Masquerade::ExternalPolicyCluster);
        let trace = ask(&world, mode, "192.0.2.77", "203.0.113.1:80");
        assert_eq!(
            (trace.outcome, trace.cause),
            (Outcome::Dropped, Cause::SourceRanges)
        );
        assert!(trace.because.contains("192.0.2.0/28"), "{trace}");
    }
}

#[test]
fn hints_that_are_not_followed_are_explained() {
    let hinted = |ip: &str, zone: &str| json!({"addresses": [ip], "nodeName": "n2", "hints": {"forZones": [{"name": zone}]}});
    let mut objects = web(json!({}));
    objects[1] = slice(
        "web-1",
        "web",
        json!([hinted("10.244.2.1", "a"), hinted("10.244.2.2", "b")]),
    );
    let followed = ask(
        &world(objects.clone()),
        NFTABLES,
        "10.244.1.30",
        "10.96.0.10:80",
    );
    assert_eq!(used(&followed), ["10.244.2.1:8080 1.00"]);
    assert_eq!(followed.endpoints[1].because, "meant for zone b");
    objects.push(slice("web-2", "web", json!([endpoint("10.244.2.3", "n2")])));
    let ignored = ask(&world(objects), NFTABLES, "10.244.1.30", "10.96.0.10:80");
    assert_eq!(
        ignored.service.unwrap().topology.as_deref(),
        Some("zone hints ignored: 1 of 3 endpoints have none")
    );
}

#[test]
fn weights_and_readiness_of_endpoints() {
    let mut objects = web(json!({}));
    let conditions = |ip: &str, conditions: Value| json!({"addresses": [ip], "nodeName": "n2", "conditions": conditions});
    objects[1] = slice(
        "web-1",
        "web",
        json!([
            conditions("10.244.2.1", json!({"ready": false})),
            conditions(
                "10.244.2.2",
                json!({"ready": false, "serving": true, "terminating": true})
            ),
            endpoint("10.244.2.3", "n2"),
        ]),
    );
    objects[1]["metadata"]["annotations"] = json!({"ferrovia.io/weight": "3"});
    objects.push(slice("web-2", "web", json!([endpoint("10.244.2.4", "n2")])));
    let mut off = slice("web-3", "web", json!([endpoint("10.244.2.5", "n2")]));
    off["metadata"]["annotations"] = json!({"ferrovia.io/weight": "0"});
    objects.push(off);
    let trace = ask(&world(objects), NFTABLES, "10.244.1.30", "10.96.0.10:80");
    assert_eq!(
        used(&trace),
        ["10.244.2.3:8080 0.75", "10.244.2.4:8080 0.25"]
    );
    let standings: Vec<_> = trace.endpoints.iter().map(|e| e.standing).collect();
    use EndpointSelection::{NoWeight, NotReady, Ready, Terminating};
    assert_eq!(standings, [NotReady, Terminating, Ready, Ready, NoWeight]);
}

#[test]
fn what_is_no_service_gets_hints() {
    let world = world(web(json!({})));
    let hint = |mode, to| {
        let trace = ask(&world, mode, "10.244.1.30", to);
        (trace.outcome, trace.hints.join("; "))
    };
    let (outcome, hints) = hint(NFTABLES, "10.96.0.10:81");
    assert_eq!(outcome, Outcome::Refused);
    assert!(
        hints.contains("default/web has this cluster IP with port 80/tcp"),
        "{hints}"
    );
    assert_eq!(hint(IPTABLES, "10.96.0.10:81").0, Outcome::NotAService);
    let (outcome, hints) = hint(NFTABLES, "198.51.100.11:30080");
    assert_eq!(outcome, Outcome::NotAService);
    assert!(hints.contains("do not answer on 198.51.100.11"), "{hints}");
    assert!(
        hint(NFTABLES, "192.0.2.1:30080")
            .1
            .contains("not an address of this node")
    );
    assert!(
        hint(NFTABLES, "198.51.100.10:30080/udp")
            .1
            .contains("not for udp")
    );
    assert!(
        hint(NFTABLES, "10.244.2.20:8080")
            .1
            .contains("is an endpoint of default/web")
    );
}

#[test]
fn modes_differ_on_loopback() {
    let objects = || web(json!({"externalTrafficPolicy": "Local"}));
    for (range, outcome) in [
        ("127.0.0.0/8", Outcome::Delivered),
        ("127.0.2.0/28", Outcome::NotAService),
    ] {
        let world = world_with(&[range], objects());
        let trace = ask(&world, IPTABLES, "127.0.0.1", "127.0.0.1:30080");
        assert_eq!(trace.outcome, outcome, "{range}");
    }
    let world = world(objects());
    let to = |mode, to: &str| ask(&world, mode, "127.0.0.1", to);
    let ask = |mode| to(mode, "127.0.0.1:30080").outcome;
    assert_eq!(ask(NFTABLES), Outcome::NotAService);
    assert_eq!(ask(IPVS), Outcome::NotAService);
    assert_eq!(ask(BIND_PORTALS), Outcome::Delivered);
    let with_proxy = NFTABLES.with_localhost_node_ports(BOTH);
    let proxied = to(with_proxy, "127.0.0.1:30080");
    assert_eq!(proxied.masquerade, Masquerade::Proxy);
    // Whoever is on loopback is on this node, and may use any endpoint.
    assert_eq!(used(&proxied).len(), 2, "{proxied}");
    assert_eq!(
        to(with_proxy, "127.0.0.2:30080").outcome,
        Outcome::NotAService
    );
}

#[test]
fn what_no_proxy_listens_for_is_refused() {
    let with_proxy = NFTABLES.with_localhost_node_ports(BOTH);
    let mut lonely = web(json!({}));
    lonely.truncate(1);
    let trace = ask(&world(lonely), with_proxy, "127.0.0.1", "127.0.0.1:30080");
    assert_eq!(
        (trace.outcome, trace.cause),
        (Outcome::Refused, Cause::NoEndpoints)
    );
    let mut far = web(json!({"externalTrafficPolicy": "Local", "externalIPs": ["203.0.113.1"]}));
    far[1] = slice("web-1", "web", json!([endpoint("10.244.2.20", "n2")]));
    let far = world(far);
    // It is listened for, because those inside may use any endpoint.
    for (from, to, outcome) in [
        ("192.0.2.9", "203.0.113.1:80", Outcome::Refused),
        ("10.244.1.30", "203.0.113.1:80", Outcome::Delivered),
        ("198.51.100.10", "198.51.100.10:30080", Outcome::Delivered),
        // Node ports do not answer here.
        ("198.51.100.11", "198.51.100.11:30080", Outcome::Refused),
    ] {
        let trace = ask(&far, BIND_PORTALS, from, to);
        assert_eq!(trace.outcome, outcome, "{trace}");
    }
}

#[test]
fn bound_portals_turn_away_whom_they_have_heard() {
    let balanced = |ranges: Value| {
        let mut objects = web(json!({
            "type": "LoadBalancer",
            "loadBalancerSourceRanges": ranges,
            "ports": [
                {"name": "web", "port": 80},
                {"name": "dns", "port": 53, "protocol": "UDP"},
            ],
        }));
        objects[0]["status"] = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}});
        objects[1]["ports"] = json!([
            {"name": "web", "port": 8080},
            {"name": "dns", "port": 53, "protocol": "UDP"},
        ]);
        world(objects)
    };
    let ask =
        |world: &TestCluster, from: &str, to: &str| ask(world, BIND_PORTALS, from, to).outcome;
    let few = balanced(json!(["192.0.2.0/28"]));
    assert_eq!(ask(&few, "192.0.2.9", "203.0.113.1:80"), Outcome::Delivered);
    assert_eq!(ask(&few, "192.0.2.77", "203.0.113.1:80"), Outcome::Refused);
    let datagram = ask(&few, "192.0.2.77", "203.0.113.1:53/udp");
    assert_eq!(datagram, Outcome::Dropped);
    // The node calls from the address it calls, which is not what ranges are about.
    let near = balanced(json!(["203.0.113.0/24"]));
    let from_node = ask(&near, "198.51.100.10", "203.0.113.1:80");
    assert_eq!(from_node, Outcome::Refused);
    let here = balanced(json!(["198.51.100.0/24"]));
    let from_node = ask(&here, "198.51.100.10", "203.0.113.1:80");
    assert_eq!(from_node, Outcome::Delivered);
}

#[test]
fn bound_portals_cannot_tell_pods_by_their_interface() {
    let mut world = TestCluster::new(NodeSettings {
        local: LocalSetting::InterfacePrefix("veth".to_owned()),
        ..settings()
    });
    for object in web(json!({"externalTrafficPolicy": "Local", "externalIPs": ["203.0.113.1"]})) {
        world.apply(object);
    }
    for (mode, policy) in [(NFTABLES, "Cluster"), (BIND_PORTALS, "Local")] {
        let trace = ask(&world, mode, "10.244.1.20", "203.0.113.1:80");
        assert_eq!(trace.packet.place, Place::LocalPod, "{trace}");
        let service = trace.service.as_ref().unwrap();
        assert_eq!(service.policy, policy, "{trace}");
    }
}

#[test]
fn bound_portals_masquerade_nothing_that_passes_by() {
    let pods = "10.244.0.0/16".parse().unwrap();
    let world = TestCluster::new(NodeSettings {
        local: LocalSetting::ClusterCidr(vec![pods]),
        egress_except: Some(vec![pods]),
        ..settings()
    });
    for (mode, masquerade) in [
        (NFTABLES, Masquerade::Egress),
        (BIND_PORTALS, Masquerade::None),
    ] {
        let trace = ask(&world, mode, "10.244.1.30", "192.0.2.9:80");
        assert_eq!(trace.masquerade, masquerade, "{trace}");
    }
}

#[test]
fn modes_differ_in_ports_that_no_service_has() {
    let world = world(web(
        json!({"externalIPs": ["203.0.113.1", "198.51.100.11"]}),
    ));
    let ask = |mode, to: &str| ask(&world, mode, "10.244.1.30", to).cause;
    for (mode, cluster_ip, external_ip) in [
        (NFTABLES, Cause::NoSuchPort, Cause::Unknown),
        (IPTABLES, Cause::Unknown, Cause::Unknown),
        (IPVS, Cause::NoSuchPort, Cause::NoSuchPort),
        (BIND_PORTALS, Cause::NoSuchPort, Cause::NoSuchPort),
    ] {
        assert_eq!(ask(mode, "10.96.0.10:81"), cluster_ip, "{mode:?}");
        assert_eq!(ask(mode, "203.0.113.1:81"), external_ip, "{mode:?}");
        // The node has this address anyway, with whatever listens there.
        assert_eq!(ask(mode, "198.51.100.11:81"), Cause::Unknown, "{mode:?}");
    }
}

#[test]
fn the_shape_of_the_json_stays() {
    let trace = ask(
        &world(web(json!({}))),
        NFTABLES,
        "192.0.2.9",
        "198.51.100.10:30080",
    );
    let mut value = serde_json::to_value(&trace).unwrap();
    value["endpoints"].as_array_mut().unwrap().truncate(1);
    let expected = json!({
        "packet": {
            "source": "192.0.2.9", "place": "outside",
            "destination": "198.51.100.10", "port": 30080, "protocol": "tcp",
        },
        "mode": "nftables",
        "outcome": "delivered",
        "cause": "endpoints-ready",
        "because": "default/web has 2 endpoints for it",
        "service": {
            "namespace": "default", "name": "web", "port": "", "frontend": "node-port",
            "policy": "Cluster", "policy_because": "externalTrafficPolicy is Cluster",
            "affinity_seconds": null, "algorithm": "random", "topology": null,
        },
        "endpoints": [{
            "address": "10.244.1.20:8080", "node": "n1", "local": true, "used": true,
            "standing": "ready", "because": "ready", "chance": 0.5, "weight": 1,
            "masquerade": "external-policy-cluster",
        }],
        "masquerade": "external-policy-cluster",
        "hints": [],
    });
    assert_eq!(value, expected);
}
