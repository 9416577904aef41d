//! Services that would behave differently.

use std::collections::BTreeSet;

use ferrovia_core::desired::NodePortSetting;
use ferrovia_core::family::Family;
use ferrovia_core::model::{Service, TrafficPolicy};

use super::{Change, From, Node};
use crate::mode::IptablesSettings;

pub(super) fn changes(node: &Node<'_>) -> Vec<Change> {
    let of_both = [
        node_port_addresses(node),
        affinity_restarts(node),
        health_check_ports(node),
    ];
    let of_mode = match node.from {
        From::Iptables => vec![localhost_node_ports(node)],
        From::Ipvs => vec![
            local_fallback(node),
            affinity_per_address(node),
            held_addresses(node),
        ],
    };
    of_mode.into_iter().chain(of_both).flatten().collect()
}

/// A change for the Services that `concerned` says; none if there are none.
fn for_services(
    node: &Node<'_>,
    change: &'static str,
    concerned: impl Fn(&Service) -> bool,
    what: impl Into<String>,
    remedy: impl Into<String>,
) -> Option<Change> {
    let services = node.services.iter();
    let services: Vec<String> = services
        .filter(|service| concerned(service))
        .map(|service| service.key.to_string())
        .collect();
    (!services.is_empty()).then(|| Change {
        change,
        setting: None,
        services,
        what: what.into(),
        remedy: remedy.into(),
    })
}

fn has_node_port(service: &Service) -> bool {
    service.ports.iter().any(|port| port.node_port.is_some())
}

fn localhost_node_ports(node: &Node<'_>) -> Option<Change> {
    // A proxy listens on loopback where the settings say so, which is what rules did before.
    let answers = |config| IptablesSettings::of(config).localhost_node_ports;
    if !answers(node.old) || answers(node.new) {
        return None;
    }
    let use_seen = match node.evidence.localhost_packets {
        Some(0) => "The kernel has counted no such connection on this node.".to_owned(),
        Some(packets) => format!("They are in use: the kernel has counted {packets} connections on this node."),
        None => "Whether anybody uses that cannot be seen here; kubeproxy_iptables_localhost_nodeports_accepted_packets_total of the old proxy tells.".to_owned(),
    };
    let mut change = for_services(
        node,
        "localhost-node-ports",
        |service| has_node_port(service) && service.cluster_ips[Family::V4].is_some(),
        format!(
            "Their node ports do not answer on 127.0.0.1 any more, because nodePortAddresses does not cover it. {use_seen}"
        ),
        "Let those who call 127.0.0.1 call the node's own address, or the Service; or set nodePortAddresses: [\"0.0.0.0/0\", \"::/0\"], and Ferrovia listens there for them.",
    )?;
    change.setting = Some("nodePortAddresses");
    Some(change)
}

fn node_port_addresses(node: &Node<'_>) -> Option<Change> {
    let old_is_any = matches!(node.old.settings.node_ports, NodePortSetting::Any);
    let new_is_any = matches!(node.new.settings.node_ports, NodePortSetting::Any);
    if !old_is_any || new_is_any {
        return None;
    }
    let mut change = for_services(
        node,
        "node-port-addresses",
        has_node_port,
        "Their node ports answer on the node's own addresses (those of its Node object) only, and not on every address of every interface: nodePortAddresses is not set, which the nftables mode takes for primary.",
        "To keep it as it is, set nodePortAddresses: [\"0.0.0.0/0\", \"::/0\"].",
    )?;
    change.setting = Some("nodePortAddresses");
    Some(change)
}

fn affinity_restarts(node: &Node<'_>) -> Option<Change> {
    for_services(
        node,
        "affinity-restarts",
        |service| service.affinity.is_some(),
        "Clients may be sent to another endpoint once: who was sent where is not carried over. Open connections stay where they are.",
        "Switch at a quiet time if sessions matter, one node after the other.",
    )
}

fn health_check_ports(node: &Node<'_>) -> Option<Change> {
    let closed = match &node.evidence.input_refused {
        Some(chains) if chains.is_empty() => return None,
        Some(chains) => format!(
            "This node refuses what is not allowed ({}).",
            chains.join(", ")
        ),
        None => "Whether this node refuses what is not allowed cannot be seen here.".to_owned(),
    };
    for_services(
        node,
        "health-check-ports",
        |service| service.health_check_port.is_some(),
        format!(
            "The port that load balancers ask for health is not opened in the node's firewall any more. {closed}"
        ),
        "Open each healthCheckNodePort in the firewall.",
    )
}

/// kube-proxy's ipvs mode always falls back, ours only if it is told to. Which of the two runs now is not known, so the worse is told.
fn local_fallback(node: &Node<'_>) -> Option<Change> {
    let without_local: BTreeSet<String> = node
        .desired
        .iter()
        .flat_map(|desired| desired.ports.values())
        .filter(|port| {
            let policies = [port.internal_policy, port.external_policy];
            policies.contains(&TrafficPolicy::Local) && port.any_endpoints && port.local.is_empty()
        })
        .map(|port| port.key.service.to_string())
        .collect();
    let here = match without_local.len() {
        0 => "On this node each has a local endpoint at present.".to_owned(),
        _ => format!(
            "On this node that is now so for {}.",
            without_local.into_iter().collect::<Vec<_>>().join(", ")
        ),
    };
    for_services(
        node,
        "local-fallback",
        |service| {
            [service.internal_policy, service.external_policy].contains(&TrafficPolicy::Local)
        },
        format!(
            "Their policy is Local. Where a node has no endpoint of theirs, kube-proxy's ipvs mode used those of other nodes; now such packets are dropped. {here}"
        ),
        "Let load balancers ask healthCheckNodePort, run an endpoint on every node that is called, or set the policy to Cluster.",
    )
}

fn affinity_per_address(node: &Node<'_>) -> Option<Change> {
    let has_several =
        |service: &Service| has_node_port(service) || service.outside_ips().next().is_some();
    for_services(
        node,
        "affinity-per-address",
        |service| service.affinity.is_some() && has_several(service),
        "A client sticks to one endpoint whichever address of the Service it calls. ipvs kept that apart for the cluster IP, each external address and the node port.",
        "Nothing, unless a client is meant to get different endpoints by different addresses.",
    )
}

fn held_addresses(node: &Node<'_>) -> Option<Change> {
    for_services(
        node,
        "addresses-on-the-node",
        |service| service.outside_ips().next().is_some(),
        "The node does not hold their external and load balancers' addresses any more (ipvs has them on kube-ipvs0): it answers neither ping nor ARP for them. Connections to their ports are served as before.",
        "See that something else brings the packets here (a load balancer, MetalLB, routes), and that nobody takes an answered ping for health.",
    )
}
