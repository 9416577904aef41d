//! Which frontend a packet is addressed to.

use serde::Serialize;

use super::Tracer;
use super::profile::NodePortFallThrough;
use crate::desired::{Frontend, NoEndpoints, NodePortAddresses, RefusalAction, ServicePort};

/// What kind of address clients use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FrontendKind {
    /// A cluster IP.
    ClusterIp,
    /// An external IP.
    ExternalIp,
    /// An address of the load balancer.
    LoadBalancer,
    /// A port on the node's addresses.
    NodePort,
}

impl FrontendKind {
    /// For people.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::ClusterIp => "cluster IP",
            Self::ExternalIp => "external IP",
            Self::LoadBalancer => "load balancer address",
            Self::NodePort => "node port",
        }
    }
}

impl From<Frontend> for FrontendKind {
    fn from(frontend: Frontend) -> Self {
        match frontend {
            Frontend::ClusterIp(_) => Self::ClusterIp,
            Frontend::ExternalIp(_) => Self::ExternalIp,
            Frontend::LoadBalancer(_) => Self::LoadBalancer,
            Frontend::NodePort(_) => Self::NodePort,
        }
    }
}

/// A service port and the frontend it was found by.
pub(super) struct Found<'a> {
    pub(super) port: &'a ServicePort,
    pub(super) frontend: Frontend,
    /// The rules only refuse here; endpoints are out of reach.
    pub(super) refused_only: bool,
}

impl Found<'_> {
    pub(super) fn is_load_balancer(&self) -> bool {
        matches!(self.frontend, Frontend::LoadBalancer(_))
    }
}

/// Addresses go before node ports, as in the rules. All frontends are looked at: that takes less time than printing the answer.
pub(super) fn find<'a>(tracer: &Tracer<'a>) -> Option<Found<'a>> {
    let Some(found) = by_address(tracer) else {
        return by_node_port(tracer);
    };
    if tracer.is_left_to_node_ports(&found)
        && let Some(other) = by_node_port(tracer)
        && tracer.takes(&other)
    {
        return Some(other);
    }
    Some(found)
}

impl Tracer<'_> {
    /// The Service that has the address does nothing with the packet before node ports are looked at.
    fn is_left_to_node_ports(&self, found: &Found<'_>) -> bool {
        let profile = &self.context.profile;
        let has_none = !found.port.any_endpoints;
        let is_dropped_early = has_none
            && profile.marks_before_dropping
            && self.desired.node.no_endpoints == NoEndpoints::Drop;
        let is_shut_out = || self.shut_out(found).is_some();
        match profile.falls_through_to_node_ports {
            _ if is_dropped_early => false,
            NodePortFallThrough::Never => false,
            NodePortFallThrough::WithoutEndpoints => has_none && !is_shut_out(),
            NodePortFallThrough::WithoutUsableEndpoints => !self.takes(found) || is_shut_out(),
        }
    }

    /// There is an endpoint for the packet.
    fn takes(&self, found: &Found<'_>) -> bool {
        let (policy, _) = self.policy(found);
        !found.refused_only && self.carries(found) && !found.port.endpoints(policy).is_empty()
    }
}

fn by_address<'a>(tracer: &Tracer<'a>) -> Option<Found<'a>> {
    let packet = tracer.packet;
    let destination = std::net::SocketAddr::new(packet.destination, packet.port);
    service_ports(tracer).find_map(|port| {
        let mut frontends = port.frontends.iter();
        let frontend = frontends.find(|frontend| frontend.address() == Some(destination))?;
        Some(Found {
            port,
            frontend: *frontend,
            refused_only: false,
        })
    })
}

fn by_node_port<'a>(tracer: &Tracer<'a>) -> Option<Found<'a>> {
    if !tracer.is_local() {
        return None;
    }
    let node_port = Frontend::NodePort(tracer.packet.port);
    let port = service_ports(tracer).find(|port| port.frontends.contains(&node_port))?;
    let answers = node_ports_answer(tracer);
    let refused = port.refusal(node_port).is_some_and(|refusal| {
        let profile = &tracer.context.profile;
        let by_mark = profile.marks_before_dropping
            && refusal == RefusalAction::Reject
            && tracer.desired.node.no_endpoints == NoEndpoints::Drop;
        profile.rejects_node_ports_on_all_addresses && !by_mark
    });
    (answers || refused).then_some(Found {
        port,
        frontend: node_port,
        refused_only: !answers,
    })
}

/// Node ports answer on the packet's destination, which is one of this node's addresses.
pub(super) fn node_ports_answer(tracer: &Tracer<'_>) -> bool {
    let ip = tracer.packet.destination;
    let node = &tracer.desired.node;
    let is_in = |addresses: &NodePortAddresses| match addresses {
        NodePortAddresses::Any => true,
        NodePortAddresses::Only(only) => only.contains(&ip),
    };
    if ip.is_loopback() {
        // The addresses of node ports are without loopback. Those of health checks are the same, and with it.
        let is_listed = is_in(&node.health_checks);
        return tracer.context.profile.answers_on_loopback(ip, is_listed);
    }
    is_in(&node.node_ports)
}

fn service_ports<'a>(tracer: &Tracer<'a>) -> impl Iterator<Item = &'a ServicePort> {
    let protocol = tracer.packet.protocol;
    let ports = tracer.desired.ports.values();
    ports
        .map(|port| &**port)
        .filter(move |port| port.protocol() == protocol)
}
