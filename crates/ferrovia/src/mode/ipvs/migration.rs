//! What changes for a node that leaves the ipvs mode.

use std::collections::BTreeSet;

use ferrovia_core::model::{Service, TrafficPolicy};

use crate::inspect::migrate::services::{for_services, has_node_port};
use crate::inspect::migrate::settings::of_setting;
use crate::inspect::migrate::{Change, Migration, Node};

pub(super) const MIGRATION: Migration = Migration {
    services: &[local_fallback, affinity_per_address, held_addresses],
    settings: &[scheduler, strict_arp, exclude_cidrs, timeouts],
    removed: "It then removes the old mode's virtual servers, the device kube-ipvs0, sets and chains, as soon as no connection goes through them, and after an hour at the latest.",
};

/// kube-proxy's ipvs mode always falls back, ours only if configured. Which of the two runs now is not known, so the worse is assumed.
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
        "See that something else brings the packets here (a load balancer, MetalLB, routes), and that no health check relies on an answered ping.",
    )
}

fn scheduler(node: &Node<'_>) -> Option<Change> {
    let scheduler = node.old.modes.ipvs.scheduler.as_ref();
    let remedy = match scheduler {
        "rr" => return None,
        "sh" | "mh" | "dh" => {
            "Give Services whose clients have to stay with their endpoint sessionAffinity: ClientIP, or the annotation ferrovia.io/algorithm: source-hash."
        }
        _ => {
            "Where endpoints differ in what they can take, give them weights; there is no counting of open connections in this mode."
        }
    };
    Some(of_setting(
        "ipvs.scheduler",
        "scheduler",
        format!(
            "Endpoints are chosen at random, in equal shares, and not by ipvs' scheduler {scheduler}."
        ),
        remedy,
    ))
}

fn strict_arp(node: &Node<'_>) -> Option<Change> {
    node.old.modes.ipvs.strict_arp.then(|| {
        of_setting(
            "ipvs.strictARP",
            "strict-arp",
            "The setting has no effect and is not needed: no interface holds the Services' addresses. arp_ignore and arp_announce stay as the old mode set them.",
            "If nothing else needs them: sysctl -w net.ipv4.conf.all.arp_ignore=0 net.ipv4.conf.all.arp_announce=0",
        )
    })
}

fn exclude_cidrs(node: &Node<'_>) -> Option<Change> {
    (!node.old.modes.ipvs.exclude_cidrs.is_empty()).then(|| {
        of_setting(
            "ipvs.excludeCIDRs",
            "exclude-cidrs",
            "The setting has no effect: the nftables mode touches no virtual servers. But kube-proxy --cleanup removes all of them, these too.",
            "Do not use kube-proxy --cleanup on this node; remove its virtual servers one by one with ipvsadm -D.",
        )
    })
}

fn timeouts(node: &Node<'_>) -> Option<Change> {
    let ipvs = &node.old.modes.ipvs;
    let is_set = [ipvs.tcp_timeout, ipvs.tcp_fin_timeout, ipvs.udp_timeout]
        .iter()
        .any(Option::is_some);
    is_set.then(|| {
        of_setting(
            "ipvs.tcpTimeout, ipvs.tcpFinTimeout, ipvs.udpTimeout",
            "timeouts",
            "These have no effect: how long an idle connection is remembered is up to connection tracking.",
            "Set conntrack.tcpEstablishedTimeout, conntrack.tcpCloseWaitTimeout and conntrack.udpTimeout as you need them.",
        )
    })
}
