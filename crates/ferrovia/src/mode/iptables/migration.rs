//! What changes for a node that leaves the iptables mode.

use ferrovia_core::family::Family;

use super::IptablesMode;
use crate::inspect::migrate::services::{for_services, has_node_port};
use crate::inspect::migrate::settings::of_setting;
use crate::inspect::migrate::{Change, Migration, Node};

pub(super) const MIGRATION: Migration = Migration {
    services: &[localhost_node_ports],
    settings: &[invalid_packets],
    removed: "It then removes kube-proxy's iptables chains, in both of the kernel's rulesets.",
};

fn localhost_node_ports(node: &Node<'_>) -> Option<Change> {
    // In the new mode a proxy listens on loopback if the settings say so, in place of rules.
    let answers = |config| IptablesMode::of(config).localhost_node_ports;
    if !answers(node.old) || answers(node.new) {
        return None;
    }
    let use_seen = match node.evidence.localhost_packets {
        Some(0) => "The kernel has counted no such connection on this node.".to_owned(),
        Some(packets) => format!("They are in use: the kernel has counted {packets} connections on this node."),
        None => "Whether they are used cannot be seen here; see kubeproxy_iptables_localhost_nodeports_accepted_packets_total of the old proxy.".to_owned(),
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

fn invalid_packets(node: &Node<'_>) -> Option<Change> {
    let dropped = match node.evidence.invalid_packets {
        Some(0) => return None,
        Some(packets) => format!("The kernel has counted {packets} on this node."),
        None => "How many there are cannot be seen here; see kubeproxy_iptables_ct_state_invalid_dropped_packets_total of the old proxy.".to_owned(),
    };
    (!node.old.conntrack.be_liberal).then(|| {
        of_setting(
            "conntrack.tcpBeLiberal",
            "invalid-packets",
            format!("Forwarded packets that fit into no connection are not dropped any more; one that reaches a client makes it reset the connection. {dropped}"),
            "If clients then see \"connection reset by peer\", set conntrack.tcpBeLiberal: true.",
        )
    })
}
