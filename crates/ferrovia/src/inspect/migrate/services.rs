//! Services that would behave differently.

use ferrovia_core::desired::NodePortSetting;
use ferrovia_core::model::Service;

use super::{Change, Node};

pub(super) fn changes(node: &Node<'_>) -> Vec<Change> {
    let of_mode = node.from.migration.services.iter();
    let of_all = [node_port_addresses, affinity_restarts, health_check_ports];
    let changes = of_mode.copied().chain(of_all);
    changes.filter_map(|change| change(node)).collect()
}

/// A change for the Services that are `concerned`; none if there are none.
pub(crate) fn for_services(
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

pub(crate) fn has_node_port(service: &Service) -> bool {
    service.ports.iter().any(|port| port.node_port.is_some())
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
