//! The source address that the receiver sees.

use std::net::IpAddr;

use serde::Serialize;

use super::Tracer;
use super::frontend::{Found, node_ports_answer};
use crate::desired::{Endpoint, Frontend, LocalDetector, ServicePort};
use crate::model::{Protocol, TrafficPolicy};

/// Whether a connection gets this node's address as source, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Masquerade {
    /// It does not: the receiver sees the sender.
    None,
    /// All traffic to cluster IPs does (`masqueradeAll`).
    All,
    /// It goes to a cluster IP and does not come from a pod.
    NotFromPod,
    /// It goes to an external address under policy Cluster, so any node may have to see the answer.
    ExternalPolicyCluster,
    /// The node itself sends it to an external address.
    FromNode,
    /// Its port has the number of a node port, and the mode does not look at its address.
    NodePortNumber,
    /// The endpoint reaches itself.
    Hairpin,
    /// A pod sends it out of the cluster.
    Egress,
    /// A process of this node makes the connection to the endpoint.
    Proxy,
}

impl Masquerade {
    /// For people.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::None => "no: the receiver sees the sender's address",
            Self::All => "yes: masqueradeAll is set, for all traffic to cluster IPs",
            Self::NotFromPod => {
                "yes: it does not come from a pod, so that the answer must come back by this node"
            }
            Self::ExternalPolicyCluster => {
                "yes: externalTrafficPolicy is Cluster, so the endpoint may be on another node"
            }
            Self::FromNode => "yes: this node itself sends it to an external address",
            Self::NodePortNumber => {
                "yes: its port has the number of a node port, whose traffic is masqueraded on every address"
            }
            Self::Hairpin => "yes: the endpoint is the sender itself",
            Self::Egress => "yes: it leaves the cluster, and egress masquerade is on",
            Self::Proxy => "yes: the proxy on this node makes the connection to the endpoint",
        }
    }

    /// It does.
    pub fn is_on(self) -> bool {
        self != Self::None
    }
}

/// What holds for a connection whichever endpoint takes it.
pub(super) fn of_connection(
    tracer: &Tracer<'_>,
    found: &Found<'_>,
    policy: TrafficPolicy,
) -> Masquerade {
    let masquerade = of_frontend(tracer, found, policy);
    if masquerade.is_on() || !has_number_of_node_port(tracer, found) {
        masquerade
    } else {
        Masquerade::NodePortNumber
    }
}

fn of_frontend(tracer: &Tracer<'_>, found: &Found<'_>, policy: TrafficPolicy) -> Masquerade {
    if tracer.context.profile.is_proxied(tracer.packet.destination) {
        return Masquerade::Proxy;
    }
    let node = &tracer.desired.node;
    let to_cluster_ip = found.frontend.is_internal()
        || tracer.context.profile.masquerades_by_address && tracer.is_cluster_ip();
    if to_cluster_ip && node.masquerade_all {
        return Masquerade::All;
    }
    // If pods cannot be detected, only the node's own packets are masqueraded, and only in some modes.
    let is_detected = node.local != LocalDetector::Off
        || tracer.is_from_node() && tracer.context.profile.masquerades_node_to_cluster_ip;
    if to_cluster_ip && is_detected && !tracer.is_from_pod() {
        return Masquerade::NotFromPod;
    }
    if found.frontend.is_internal() {
        return Masquerade::None;
    }
    match (found.port.external_policy, policy) {
        (TrafficPolicy::Cluster, _) => Masquerade::ExternalPolicyCluster,
        (TrafficPolicy::Local, TrafficPolicy::Cluster) if !tracer.is_from_pod() => {
            Masquerade::FromNode
        }
        (TrafficPolicy::Local, _) => Masquerade::None,
    }
}

/// The mode takes the packet for one to a node port too. It is asked after external IPs; of SCTP it knows the addresses.
fn has_number_of_node_port(tracer: &Tracer<'_>, found: &Found<'_>) -> bool {
    let packet = tracer.packet;
    let is_asked = tracer.context.profile.masquerades_node_port_numbers
        && matches!(
            found.frontend,
            Frontend::ClusterIp(_) | Frontend::LoadBalancer(_)
        )
        && (packet.protocol != Protocol::Sctp || tracer.is_local() && node_ports_answer(tracer));
    let is_masqueraded = |port: &ServicePort| {
        port.protocol() == packet.protocol
            && port.external_policy == TrafficPolicy::Cluster
            && port.frontends.contains(&Frontend::NodePort(packet.port))
    };
    is_asked && (tracer.desired.ports.values()).any(|port| is_masqueraded(port))
}

/// What holds for one endpoint.
pub(super) fn of_endpoint(
    tracer: &Tracer<'_>,
    endpoint: &Endpoint,
    connection: Masquerade,
) -> Masquerade {
    let itself = tracer.packet.source == endpoint.ip
        && (endpoint.is_local || tracer.context.profile.masquerades_remote_hairpins);
    if stays_here(tracer, endpoint.ip) && connection != Masquerade::Proxy {
        Masquerade::None
    } else if connection.is_on() {
        connection
    } else if itself {
        Masquerade::Hairpin
    } else if leaves(tracer, endpoint.ip) {
        Masquerade::Egress
    } else {
        Masquerade::None
    }
}

/// What holds for a packet that is for no service.
pub(super) fn of_passing(tracer: &Tracer<'_>) -> Masquerade {
    if leaves(tracer, tracer.packet.destination) {
        Masquerade::Egress
    } else {
        Masquerade::None
    }
}

/// It comes in and is for this machine, so it never passes where packets that leave are masqueraded.
fn stays_here(tracer: &Tracer<'_>, to: IpAddr) -> bool {
    !tracer.is_from_node() && tracer.desired.node.addresses.contains(&to)
}

/// A pod sends it to an address outside of the cluster, and that is to be hidden.
fn leaves(tracer: &Tracer<'_>, to: IpAddr) -> bool {
    let node = &tracer.desired.node;
    match (&node.local, &node.egress_except) {
        (LocalDetector::Source(pods), Some(except))
            if tracer.context.profile.masquerades_egress =>
        {
            pods.contains(&tracer.packet.source)
                && !except.iter().any(|net| net.contains(&to))
                && !stays_here(tracer, to)
        }
        _ => false,
    }
}
