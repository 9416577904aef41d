//! Tests of the node's own rules.

use serde_json::{Value, json};

use super::*;
use crate::testing::{NODE, applied, settings};

fn store(node: Value) -> Store {
    let mut store = Store::new(NODE);
    let mut object = json!({"kind": "Node", "metadata": {"name": NODE}});
    crate::testing::merge(&mut object, node);
    store.handle(applied(object));
    store
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn with_ips(ips: &[&str]) -> Store {
    let addresses: Vec<Value> = ips
        .iter()
        .map(|ip| json!({"type": "InternalIP", "address": ip}))
        .collect();
    store(json!({"status": {"addresses": addresses}}))
}

const LOCAL: [&str; 6] = [
    "127.0.0.1",
    "10.20.30.5",
    "192.168.0.7",
    "::1",
    "fd00::5",
    "2001:db8::9",
];

/// The node port addresses of both families: `*` for any.
fn answers_on(
    setting: NodePortSetting,
    store: &Store,
    node_ips: PerFamily<Option<IpAddr>>,
) -> [String; 2] {
    let local: Vec<IpAddr> = LOCAL.iter().map(|ip| ip.parse().unwrap()).collect();
    let settings = NodeSettings {
        node_ports: setting,
        node_ips,
        ..settings()
    };
    Family::ALL.map(
        |family| match rules(&settings, store, &local, family).node_ports {
            NodePortAddresses::Any => "*".into(),
            NodePortAddresses::Only(ips) => ips
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" "),
        },
    )
}

#[test]
fn node_ports_by_range() {
    let cases: [(&[&str], [&str; 2]); 8] = [
        (&["10.20.30.0/24"], ["10.20.30.5", "*"]),
        (&["1.2.3.0/24", "0.0.0.0/0"], ["*", "*"]),
        (&["1.2.3.0/24"], ["", "*"]),
        (&[], ["*", "*"]),
        (
            &["::/0", "10.0.0.0/8", "192.168.0.0/16"],
            ["10.20.30.5 192.168.0.7", "*"],
        ),
        (&["fd00::/8"], ["*", "fd00::5"]),
        // Loopback is never served, however it is asked for.
        (&["127.0.0.0/8", "::1/128"], ["", ""]),
        (&["64.0.0.0/2", "10.20.30.5/8"], ["10.20.30.5", "*"]),
    ];
    for (ranges, expected) in cases {
        let setting = NodePortSetting::Cidrs(nets(ranges));
        assert_eq!(
            answers_on(setting, &with_ips(&[]), PerFamily::default()),
            expected,
            "{ranges:?}"
        );
    }
    assert_eq!(
        answers_on(NodePortSetting::Any, &with_ips(&[]), PerFamily::default()),
        ["*", "*"]
    );
}

#[test]
fn node_ports_on_the_primary_address() {
    let none = PerFamily::default();
    let by_hand = |ip: &str| PerFamily {
        v4: Some(ip.parse().unwrap()),
        v6: None,
    };
    let cases = [
        (
            with_ips(&["10.20.30.5", "fd00::5"]),
            none,
            ["10.20.30.5", "fd00::5"],
            [false, false],
        ),
        // A family whose address is not known stays open.
        (
            with_ips(&["10.20.30.5"]),
            none,
            ["10.20.30.5", "*"],
            [false, true],
        ),
        (with_ips(&[]), none, ["*", "*"], [true, true]),
        (Store::new(NODE), none, ["*", "*"], [true, true]),
        (
            with_ips(&["10.20.30.5", "fd00::5"]),
            by_hand("127.0.0.1"),
            ["*", "fd00::5"],
            [true, false],
        ),
        (
            with_ips(&["10.20.30.5"]),
            by_hand("192.168.0.7"),
            ["192.168.0.7", "*"],
            [false, true],
        ),
        // An address of some other host is not ours to answer on.
        (with_ips(&["10.20.30.99"]), none, ["", "*"], [false, true]),
    ];
    for (store, node_ips, expected, open) in cases {
        assert_eq!(
            answers_on(NodePortSetting::Primary, &store, node_ips),
            expected
        );
        let settings = NodeSettings {
            node_ports: NodePortSetting::Primary,
            node_ips,
            ..settings()
        };
        assert_eq!(
            Family::ALL.map(|family| primary_is_open(&settings, store.node(), family)),
            open
        );
    }
}

#[test]
fn local_traffic_detector_follows_the_setting() {
    let node = store(json!({"spec": {"podCIDRs": ["10.1.0.0/24", "10.2.0.0/24"]}}));
    let source = |net: &str| LocalDetector::Source(net.parse().unwrap());
    let detect = |setting: LocalSetting, store: &Store| {
        Family::ALL.map(|family| local_detector(&setting, store.node(), family))
    };
    let cluster = |texts: &[&str]| LocalSetting::ClusterCidr(nets(texts));
    assert_eq!(
        detect(cluster(&[]), &node),
        [LocalDetector::Off, LocalDetector::Off]
    );
    assert_eq!(
        detect(cluster(&["10.0.0.9/14", "10.4.0.0/14"]), &node),
        [source("10.0.0.0/14"), LocalDetector::Off]
    );
    assert_eq!(
        detect(cluster(&["fd00::/64", "10.0.0.0/14"]), &node),
        [source("10.0.0.0/14"), source("fd00::/64")]
    );
    assert_eq!(
        detect(LocalSetting::NodeCidr, &node),
        [source("10.1.0.0/24"), LocalDetector::Off]
    );
    assert_eq!(
        detect(LocalSetting::NodeCidr, &Store::new(NODE)),
        [LocalDetector::Off, LocalDetector::Off]
    );
    let bridge = LocalDetector::Interface("cbr0".into());
    assert_eq!(
        detect(LocalSetting::Interface("cbr0".into()), &node),
        [bridge.clone(), bridge]
    );
    let prefix = LocalDetector::InterfacePrefix("veth".into());
    assert_eq!(
        detect(LocalSetting::InterfacePrefix("veth".into()), &node),
        [prefix.clone(), prefix]
    );
}

#[test]
fn marks_and_service_ranges() {
    let mut store = Store::new(NODE);
    store.handle(applied(
        json!({"kind": "ServiceCIDR", "metadata": {"name": "a"},
        "spec": {"cidrs": ["10.96.0.0/12", "fd00:1::/108", "10.97.0.0/16"]}}),
    ));
    let of = |family| rules(&settings(), &store, &[], family);
    assert_eq!(of(Family::V4).service_cidrs, nets(&["10.96.0.0/12"]));
    assert_eq!(of(Family::V6).service_cidrs, nets(&["fd00:1::/108"]));
    assert_eq!(of(Family::V4).masquerade_mark, 0x4000);
}

#[test]
fn pods_that_leave_the_cluster_are_masqueraded_where_its_ranges_are_known() {
    let except = |given: Option<&[&str]>| {
        let settings = NodeSettings {
            egress_except: given.map(nets),
            ..settings()
        };
        Family::ALL.map(|family| egress_except(&settings, family))
    };
    assert_eq!(except(None), [None, None]);
    assert_eq!(
        except(Some(&["10.244.0.0/16", "10.244.7.0/24"])),
        [Some(nets(&["10.244.0.0/16", "169.254.0.0/16"])), None]
    );
    assert_eq!(
        except(Some(&["fd00:10::/48"])),
        [None, Some(nets(&["fd00:10::/48", "fe80::/10"]))]
    );
}

#[test]
fn the_nodes_addresses_are_those_others_can_reach() {
    let local: Vec<IpAddr> = ["127.0.0.1", "192.0.2.1", "::1", "fe80::1", "fd00::1"]
        .iter()
        .map(|ip| ip.parse().unwrap())
        .collect();
    let store = Store::new(NODE);
    for (family, ip) in [(Family::V4, "192.0.2.1"), (Family::V6, "fd00::1")] {
        let found = rules(&settings(), &store, &local, family).addresses;
        assert_eq!(found, BTreeSet::from([ip.parse().unwrap()]));
    }
}

#[test]
fn loopback_is_covered_as_kube_proxy_has_it() {
    let covers =
        |cidrs: &[&str], family| NodePortSetting::Cidrs(nets(cidrs)).cover_loopback(family);
    assert!(NodePortSetting::Any.cover_loopback(Family::V4));
    assert!(!NodePortSetting::Primary.cover_loopback(Family::V4));
    for inside in ["0.0.0.0/0", "127.0.2.0/28", "64.0.0.0/2"] {
        assert!(covers(&[inside], Family::V4), "{inside}");
    }
    assert!(!covers(&["128.0.2.0/28"], Family::V4));
    // Ranges of the other family alone leave this one unrestricted.
    assert!(covers(&["2001:db8::/32"], Family::V4));
    assert!(!covers(&["2001:db8::/32", "10.0.0.0/8"], Family::V4));
    let mixed = ["::/0", "10.0.0.0/8"];
    assert!(covers(&mixed, Family::V6) && !covers(&mixed, Family::V4));
}
