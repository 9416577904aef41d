//! The sets that packets fill: affinities and counts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};

use ferrovia_core::dialect::nft::{Element, ElementKey, KeyBuilder, NftOp, Transaction};
use ferrovia_core::family::Family;
use ferrovia_core::model;
use ferrovia_core::plan::nft::layout::{NftSetId, TABLE};
use ferrovia_host::nft::Nft;
use ferrovia_lab::client::{Caller, PATIENCE};
use ferrovia_lab::daemon::TestNode;
use ferrovia_lab::daemon::manifests::web;
use ferrovia_lab::flood::spoof_udp;
use ferrovia_lab::waiting::wait;
use ferrovia_lab::{ClientHost, Outcome, Pod, Protocol, Role};

use super::counters::{Counts, call, counts as counted};
use crate::FERROVIA;

/// The keys of a set's IPv4 entries.
pub(crate) fn entries(node: &TestNode, set: NftSetId) -> Vec<ElementKey> {
    let _inside = node.world.enter(Role::Node).expect("it can be entered");
    let entries = Nft::entries(Family::V4, TABLE, set.name(), usize::MAX);
    let entries = entries.expect("the set is there").into_iter();
    entries.map(|entry| entry.key).collect()
}

fn wait_until_empty(node: &TestNode, set: NftSetId) {
    wait(|| match entries(node, set).len() {
        0 => Ok(()),
        left => Err(format!("{} has {left} entries\n{}", set.name(), node.log())),
    });
}

/// A Service with session affinity, of IPv4 and UDP or TCP.
fn sticky(name: &str, number: u8, protocol: &str, node_port: u16, endpoints: &[&str]) -> String {
    let endpoints = endpoints
        .iter()
        .map(|ip| format!("{{ addresses: [{ip}] }}"));
    let endpoints = endpoints.collect::<Vec<_>>().join(", ");
    format!(
        "
kind: Service
metadata: {{ name: {name} }}
spec:
  type: NodePort
  clusterIP: 10.96.0.{number}
  sessionAffinity: ClientIP
  ports: [{{ port: 80, nodePort: {node_port}, protocol: {protocol} }}]
---
kind: EndpointSlice
metadata: {{ name: {name}-4, labels: {{ kubernetes.io/service-name: {name} }} }}
addressType: IPv4
ports: [{{ port: 8080, protocol: {protocol} }}]
endpoints: [{endpoints}]
"
    )
}

/// Someone who calls: a place and, where it has several, an address.
pub(crate) type Client = (Role, Option<&'static str>);

/// The endpoint that a client gets.
pub(crate) fn endpoint(node: &TestNode, client: Client, to: SocketAddr) -> SocketAddr {
    match attempt(node, client, to) {
        Outcome::Answer(answer) => answer.endpoint,
        outcome => panic!("{client:?} > {to}: {outcome}\n{}", node.log()),
    }
}

fn attempt(node: &TestNode, (role, source): Client, to: SocketAddr) -> Outcome {
    let caller = Caller::enter(&node.world, role).expect("the place can be entered");
    let source = source.map(|source| source.parse().expect("an address"));
    caller.connect(Protocol::Tcp, source, to, PATIENCE)
}

const CLIENTS: [Client; 6] = [
    (Role::Node, None),
    (Role::PodC, None),
    (Role::PodD, None),
    (Role::Outside, Some("192.0.2.9")),
    (Role::Outside, Some("192.0.2.77")),
    (Role::Outside, Some("203.0.113.200")),
];

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address and port")
}

#[test]
fn packets_to_other_addresses_at_a_node_ports_number_are_not_counted() {
    let node = TestNode::new(FERROVIA);
    node.write(
        "dns.yaml",
        &sticky("dns", 53, "UDP", 30053, &["10.244.1.10", "10.244.2.10"]),
    );
    node.start();
    {
        let _inside = node.world.enter(Role::PodC).expect("it can be entered");
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a port is free");
        for number in 0..3000_u32 {
            let to = Ipv4Addr::from(0x0800_0000 + number);
            socket.send_to(b"?", (to, 30053)).expect("it can be sent");
        }
    }
    let mut expected = Counts::new();
    let (from, to) = (ClientHost::Pod(Pod::C), "198.51.100.10:30053");
    call(
        &node,
        from,
        to,
        Protocol::Udp,
        "node port 30053/udp",
        &mut expected,
    );
    let counted = entries(&node, NftSetId::Connections);
    assert_eq!(
        counted.len(),
        1,
        "one node port to one endpoint: {counted:?}"
    );
}

#[test]
fn a_full_set_of_counts_makes_room_and_keeps_the_others() {
    let node = TestNode::new(FERROVIA);
    node.write("web.yaml", &web(&["1.10"]));
    node.start();
    let mut expected = Counts::from([("10.96.0.10:80/tcp".to_owned(), 0)]);
    let mut call = |to: &str| {
        let from = ClientHost::Outside;
        let label = "node port 30080/tcp";
        call(&node, from, to, Protocol::Tcp, label, &mut expected);
        expected.clone()
    };
    let before = call("198.51.100.10:30080");
    fill_connections(&node);
    // Not counted: there is no room.
    call("198.51.100.11:30080");
    node.wait_for_log("Evicted entries from a full set");
    assert!(entries(&node, NftSetId::Connections).len() < 110_000);
    // The bogus entries, which never expire, went first.
    assert_eq!(counted(&node, "default/web", "IPv4"), before);
    call("198.51.100.11:30080");
    let counts = counted(&node, "default/web", "IPv4");
    assert_eq!(
        counts["node port 30080/tcp"],
        2 * before["node port 30080/tcp"]
    );
}

/// Counts for addresses that connections to the node port might have been made to, as many as there is room for.
fn fill_connections(node: &TestNode) {
    let spec = NftSetId::Connections.spec(Family::V4);
    let size = spec.dynamic.expect("packets fill it") as usize;
    let free = size - entries(node, NftSetId::Connections).len();
    let key = |number: u32| {
        KeyBuilder::new()
            .ip([10, 244, 1, 10].into())
            .port(8080)
            .ip(IpAddr::from(Ipv4Addr::from(0x0900_0000 + number)))
            .proto(model::Protocol::Tcp)
            .port(30080)
            .build()
    };
    let elements = (0..free as u32).map(|number| Element::member(key(number)));
    let transaction = Transaction {
        family: Family::V4,
        table: TABLE.into(),
        ops: vec![NftOp::AddElements(spec, elements.collect())],
        notes: Vec::new(),
    };
    let _inside = node.world.enter(Role::Node).expect("it can be entered");
    let mut nft = Nft::open().expect("nf_tables answers");
    nft.apply(&transaction).expect("there is room");
}

#[test]
fn an_address_that_is_given_to_another_service_inherits_neither_counts_nor_affinity() {
    let node = TestNode::new(FERROVIA);
    let pods = ["10.244.1.10", "10.244.1.11", "10.244.2.10"];
    node.write("a.yaml", &sticky("first", 40, "TCP", 30040, &pods));
    node.start();
    let to = at("10.96.0.40:80");
    for from in CLIENTS {
        endpoint(&node, from, to);
        endpoint(&node, from, at("198.51.100.10:30040"));
    }
    assert!(entries(&node, NftSetId::Connections).len() >= 2);
    assert_eq!(entries(&node, NftSetId::Affinity).len(), CLIENTS.len());

    // Deleted, then made under another name.
    node.remove("a.yaml");
    for set in [NftSetId::Connections, NftSetId::Affinity] {
        wait_until_empty(&node, set);
    }
    node.write("b.yaml", &sticky("second", 40, "TCP", 30040, &pods));
    wait(|| match attempt(&node, (Role::PodC, None), to) {
        Outcome::Answer(_) => Ok(()),
        outcome => Err(outcome.to_string()),
    });
    assert!(entries(&node, NftSetId::Connections).len() <= 3);

    // One takes the place of the other within one change.
    node.write("b.yaml", &sticky("third", 40, "TCP", 30041, &pods));
    for set in [NftSetId::Connections, NftSetId::Affinity] {
        wait_until_empty(&node, set);
    }
    // What happened while no daemon ran is found at the next start.
    endpoint(&node, (Role::PodC, None), to);
    node.stop(libc::SIGKILL);
    node.remove("b.yaml");
    node.write("web.yaml", &web(&["1.10"]));
    endpoint(&node, (Role::PodD, None), to);
    node.start();
    for set in [NftSetId::Connections, NftSetId::Affinity] {
        wait_until_empty(&node, set);
    }
}

/// More clients than the affinity map has room for, all of one Service.
const FLOOD: u32 = 290_000;

#[test]
fn a_flood_of_one_service_leaves_the_affinity_of_others_intact() {
    let node = TestNode::new(FERROVIA);
    // The flood's packets go nowhere, so that no flow of theirs is tracked.
    node.on_node("ip", &["route", "add", "blackhole", "10.244.66.0/24"]);
    let nowhere = ["10.244.66.1", "10.244.66.2"];
    node.write(
        "flooded.yaml",
        &sticky("flooded", 66, "UDP", 30066, &nowhere),
    );
    let pods = ["10.244.1.10", "10.244.1.11", "10.244.2.10", "10.244.2.11"];
    node.write("shop.yaml", &sticky("shop", 40, "TCP", 30040, &pods));
    node.start();
    {
        let _inside = node.world.enter(Role::Outside).expect("it can be entered");
        let sources = (0..FLOOD).map(|number| Ipv4Addr::from(0x6440_0000 + number));
        let to = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 10), 30066);
        spoof_udp(sources, to).expect("packets can be sent");
    }
    let to = at("10.96.0.40:80");
    let stick = |before: &[SocketAddr]| {
        for (from, before) in CLIENTS.into_iter().zip(before) {
            assert_eq!(
                endpoint(&node, from, to),
                *before,
                "{from:?}\n{}",
                node.log()
            );
        }
    };
    let remembered = CLIENTS.map(|from| endpoint(&node, from, to));
    // Whether or not there is room to remember them.
    stick(&remembered);
    node.wait_for_log("A set that packets fill was full");
    node.wait_for_log("Evicted entries from a full set");
    let held = entries(&node, NftSetId::Affinity).len();
    assert!((100_000..230_000).contains(&held), "{held} are held");

    // Now all are remembered, so another endpoint makes no difference.
    stick(&remembered);
    let more = [&pods[..], &["10.244.2.12"]].concat();
    node.write("shop.yaml", &sticky("shop", 40, "TCP", 30040, &more));
    wait(|| {
        match node.on_node(
            "nft",
            &["list", "map", "ip", "ferrovia", "sticky-endpoints"],
        ) {
            list if list.contains("10.244.2.12") => Ok(()),
            list => Err(list),
        }
    });
    stick(&remembered);
}
