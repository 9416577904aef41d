use ferrovia_core::wire;

use super::*;

fn settings(local: LocalSetting, node_ports: NodePortSetting) -> NodeSettings {
    NodeSettings {
        local,
        node_ports,
        ..NodeSettings::of_node("n1")
    }
}

fn nets(list: &[&str]) -> Vec<IpNet> {
    list.iter().map(|net| net.parse().unwrap()).collect()
}

fn node(addresses: &[&str], pod_cidrs: &[&str]) -> Node {
    let mut object = wire::Node::default();
    object.metadata.name = "n1".into();
    object.spec.pod_cidrs = pod_cidrs.iter().map(|net| (*net).into()).collect();
    object.status.addresses = addresses
        .iter()
        .map(|address| wire::NodeAddress {
            kind: "InternalIP".into(),
            address: (*address).into(),
        })
        .collect();
    Node::parse(&object).unwrap().0
}

const BOTH: PerFamily<bool> = PerFamily { v4: true, v6: true };
const ONLY_V4: PerFamily<bool> = PerFamily {
    v4: true,
    v6: false,
};

fn check<'a>(
    supported: PerFamily<bool>,
    settings: &'a NodeSettings,
    node: Option<&'a Node>,
) -> Check<'a> {
    Check {
        supported,
        settings,
        node,
        exclude_cidrs: &[],
        health: None,
        metrics: None,
    }
}

fn by_cluster(cidrs: &[&str]) -> NodeSettings {
    settings(
        LocalSetting::ClusterCidr(nets(cidrs)),
        NodePortSetting::Primary,
    )
}

#[test]
fn the_primary_family_is_that_of_the_address_by_hand_or_the_nodes_first() {
    let mut settings = by_cluster(&[]);
    assert_eq!(check(BOTH, &settings, None).primary(), Family::V4);
    let node = node(&["fd00::1", "10.0.0.1"], &[]);
    assert_eq!(check(BOTH, &settings, Some(&node)).primary(), Family::V6);
    settings.node_ips.v4 = Some("192.0.2.1".parse().unwrap());
    assert_eq!(check(BOTH, &settings, Some(&node)).primary(), Family::V4);
}

#[test]
fn a_primary_family_the_machine_does_not_have_is_fatal() {
    let (settings, node) = (by_cluster(&[]), node(&["fd00::1"], &[]));
    let why = check(ONLY_V4, &settings, Some(&node)).run().unwrap_err();
    assert!(
        why.contains("IPv6") && why.contains("--bind-address"),
        "{why}"
    );
    assert_eq!(check(BOTH, &settings, Some(&node)).run(), Ok(vec![]));
}

#[test]
fn a_cluster_range_of_the_other_family_is_fatal_only_on_a_single_stack_machine() {
    let settings = by_cluster(&["fd00::/64"]);
    assert!(check(ONLY_V4, &settings, None).run().is_err());
    let oddities = check(BOTH, &settings, None).run().unwrap();
    assert_eq!(
        oddities,
        ["clusterCIDR has no range of this node's primary family, IPv4"]
    );
    assert_eq!(
        check(ONLY_V4, &by_cluster(&["fd00::/64", "10.0.0.0/8"]), None).run(),
        Ok(vec![])
    );
}

#[test]
fn pod_ranges_of_the_other_family_are_fatal_where_they_are_used() {
    let node = node(&["10.0.0.1"], &["fd00::/64"]);
    let used = settings(LocalSetting::NodeCidr, NodePortSetting::Primary);
    assert!(check(BOTH, &used, Some(&node)).run().is_err());
    let oddities = check(BOTH, &by_cluster(&[]), Some(&node)).run().unwrap();
    assert_eq!(oddities.len(), 1, "{oddities:?}");
}

#[test]
fn addresses_of_servers_matter_only_on_a_single_stack_machine() {
    let settings = by_cluster(&[]);
    let with_health = |supported, health: &str| {
        let check = Check {
            health: Some(health.parse().unwrap()),
            ..check(supported, &settings, None)
        };
        check.run().unwrap().len()
    };
    assert_eq!(with_health(ONLY_V4, "[fd00::1]:10256"), 1);
    assert_eq!(with_health(ONLY_V4, "[::]:10256"), 0);
    assert_eq!(with_health(BOTH, "[fd00::1]:10256"), 0);
}

#[test]
fn node_port_ranges_that_leave_a_family_open_are_told() {
    let local = || LocalSetting::ClusterCidr(nets(&["10.0.0.0/8", "fd00::/64"]));
    let oddities = |node_ports| {
        let settings = settings(local(), node_ports);
        check(BOTH, &settings, None).run().unwrap()
    };
    assert!(oddities(NodePortSetting::Any)[0].contains("primary"));
    assert!(oddities(NodePortSetting::Primary).is_empty());
    let only_v4 = oddities(NodePortSetting::Cidrs(nets(&["192.0.2.0/24"])));
    assert!(only_v4[0].contains("no IPv6 range"), "{only_v4:?}");
    let only_v6 = oddities(NodePortSetting::Cidrs(nets(&["fd00::/64"])));
    assert_eq!(only_v6.len(), 2, "{only_v6:?}");
    assert!(oddities(NodePortSetting::Cidrs(nets(&["192.0.2.0/24", "fd00::/64"]))).is_empty());
}
