//! Keys as packets write them, filed under the frontends they are about.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use super::*;
use crate::dialect::nft::KeyBuilder;
use crate::family::Family;
use crate::testing::ports::node;

const SERVED: FrontendPath = FrontendPath::List {
    list: 1 << 31,
    masquerade: false,
};

fn frontend(address: Option<&str>, port: u16, path: FrontendPath) -> KernelFrontend {
    KernelFrontend {
        service: "demo/web".into(),
        address: address.map(|text| text.parse().unwrap()),
        protocol: Protocol::Tcp.number(),
        port,
        path,
        connections: BTreeMap::new(),
        refused: 0,
    }
}

fn view(frontends: impl Into<Vec<KernelFrontend>>) -> ServiceTableView {
    ServiceTableView {
        frontends: frontends.into(),
        lists: BTreeMap::new(),
    }
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A key of `connections`.
fn went(protocol: Protocol, addressed: &str, target: &str) -> ElementKey {
    let (addressed, target) = (at(addressed), at(target));
    KeyBuilder::new()
        .ip(target.ip())
        .port(target.port())
        .ip(addressed.ip())
        .proto(protocol)
        .port(addressed.port())
        .build()
}

/// A key of `refusals`.
fn refused(addressed: &str) -> ElementKey {
    let addressed = at(addressed);
    KeyBuilder::new()
        .ip(addressed.ip())
        .proto(Protocol::Tcp)
        .port(addressed.port())
        .build()
}

fn counts(frontend: &KernelFrontend) -> Vec<(String, u64)> {
    let named = |((ip, port), count): (&(IpAddr, u16), &u64)| {
        (SocketAddr::new(*ip, *port).to_string(), *count)
    };
    frontend.connections.iter().map(named).collect()
}

#[test]
fn keys_are_as_long_as_their_sets_say() {
    let spec = NftSetId::Connections.spec(Family::V6);
    let key = went(Protocol::Tcp, "[fd00::1]:80", "[fd00::2]:8080");
    assert_eq!(key.as_bytes().len(), spec.key_len());
    let spec = NftSetId::Refusals.spec(Family::V4);
    assert_eq!(refused("10.96.0.1:80").as_bytes().len(), spec.key_len());
}

#[test]
fn connections_belong_to_an_address_or_else_to_a_node_port() {
    let (one, two) = ("10.244.1.1:8080", "10.244.2.2:8080");
    let counted = view([
        frontend(Some("10.96.0.1"), 30080, SERVED),
        frontend(None, 30080, SERVED),
    ])
    .counted(
        &[
            (went(Protocol::Tcp, "10.96.0.1:30080", one), 5),
            // A node port by each of the node's addresses.
            (went(Protocol::Tcp, "198.51.100.10:30080", one), 2),
            (went(Protocol::Tcp, "192.0.2.10:30080", one), 1),
            (went(Protocol::Tcp, "192.0.2.10:30080", two), 4),
            // Another protocol, another port, nothing we can read.
            (went(Protocol::Udp, "10.96.0.1:30080", one), 100),
            (went(Protocol::Tcp, "10.96.0.1:81", one), 100),
            (ElementKey::from_bytes(&[0; 3]), 100),
            (ElementKey::from_bytes(&[]), 100),
        ],
        &[],
    );
    assert_eq!(counts(&counted.frontends[0]), [(one.to_owned(), 5)]);
    assert_eq!(
        counts(&counted.frontends[1]),
        [(one.to_owned(), 3), (two.to_owned(), 4)]
    );
}

#[test]
fn both_families_are_read() {
    let pod = "[fd00:10:244:1::a]:8080";
    let key = went(Protocol::Tcp, "[fd00:10:96::1]:80", pod);
    let counted = view([frontend(Some("fd00:10:96::1"), 80, SERVED)]).counted(&[(key, 7)], &[]);
    assert_eq!(counts(&counted.frontends[0]), [(pod.to_owned(), 7)]);
}

/// Under policy Local a frontend may serve pods and refuse others.
#[test]
fn a_frontend_that_serves_some_and_refuses_others_has_both_counts() {
    let load_balancer = Some("203.0.113.1");
    let by_source = FrontendPath::BySource {
        inside: Some(1 << 31),
        outside: None,
    };
    let counted = view([
        frontend(load_balancer, 80, by_source),
        frontend(load_balancer, 80, FrontendPath::Dropped),
        frontend(None, 30080, FrontendPath::Dropped),
    ])
    .counted(
        &[(went(Protocol::Tcp, "203.0.113.1:80", "10.244.2.2:8080"), 3)],
        &[
            (refused("203.0.113.1:80"), 4),
            (refused("198.51.100.10:30080"), 5),
            (refused("198.51.100.10:30081"), 100),
            (ElementKey::from_bytes(&[1, 2]), 100),
        ],
    );
    let sums: Vec<(usize, u64)> = counted
        .frontends
        .iter()
        .map(|f| (f.connections.len(), f.refused))
        .collect();
    assert_eq!(sums, [(1, 0), (0, 4), (0, 5)]);
}

#[test]
fn connections_to_node_ports_count_only_if_translated_and_made_to_an_address_of_theirs() {
    let any = NodeRules {
        node_ports: NodePortAddresses::Any,
        ..node()
    };
    let only = NodeRules {
        node_ports: NodePortAddresses::Only(BTreeSet::from([IpAddr::from([192, 0, 2, 1])])),
        ..any.clone()
    };
    let of_node_ports = |node: &NodeRules| -> Vec<Vec<NftMatch>> {
        let rules = counting(node).into_iter().map(|rule| rule.matches);
        let node_ports = NftMatch::InSet(original_node_port_key(), "nodeports".into(), Sense::Is);
        rules
            .filter(|matches| matches.contains(&node_ports))
            .collect()
    };
    let at_node = NftMatch::InSet(vec![Field::OriginalDaddr], "nodeport-ips".into(), Sense::Is);
    for (node, is_limited) in [(any, false), (only, true)] {
        let rules = of_node_ports(&node);
        assert_eq!(rules.len(), Protocol::ALL.len());
        for matches in rules {
            assert!(matches.contains(&NftMatch::CtStatusDnat), "{matches:?}");
            assert_eq!(matches.contains(&at_node), is_limited, "{matches:?}");
        }
    }
}
