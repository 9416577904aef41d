//! A service port without a packet filter: its proxies listen where clients call.
//!
//! Cluster IPs and external addresses are put on an interface, which makes this machine the one that answers for them. What no proxy listens
//! for is refused by the kernel itself. Who a client is cannot be told before its connection is there, so a load balancer's address that is
//! not for everyone is left closed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::context::Context;
use super::proxy::{Listen, Proxy};
use crate::desired::{Frontend, NodePortAddresses, ServicePort};
use crate::family::Family;
use crate::model::TrafficPolicy;

/// The proxies of a service port.
pub(super) fn proxies(port: &ServicePort, context: &Context) -> Vec<Proxy> {
    let mut listeners: BTreeMap<TrafficPolicy, BTreeSet<SocketAddr>> = BTreeMap::new();
    for frontend in &*port.frontends {
        let at = match *frontend {
            Frontend::LoadBalancer(_) if is_restricted(port) => continue,
            Frontend::NodePort(number) => node_addresses(context)
                .into_iter()
                .map(|ip| SocketAddr::new(ip, number))
                .collect(),
            Frontend::ClusterIp(at) | Frontend::ExternalIp(at) | Frontend::LoadBalancer(at) => {
                vec![at]
            }
        };
        let policy = port.policy(*frontend);
        listeners.entry(policy).or_default().extend(at);
    }
    let listeners = listeners.into_iter().filter(|(_, at)| !at.is_empty());
    listeners
        .filter_map(|(policy, at)| Proxy::of(port, policy, Listen::At(at.into_iter().collect())))
        .collect()
}

/// The addresses a service port wants on the interface, each once.
pub(super) fn addresses(port: &ServicePort) -> BTreeSet<IpAddr> {
    let all = port.frontends.iter();
    all.filter_map(|frontend| frontend.address().map(|at| at.ip()))
        .collect()
}

/// What of a service port cannot be done.
pub(super) fn note(port: &ServicePort) -> Option<String> {
    is_restricted(port).then(|| {
        format!(
            "{}: portals that are bound cannot tell who may use the load balancer's address, so it is left closed; use another mode, or no loadBalancerSourceRanges",
            port.key
        )
    })
}

fn is_restricted(port: &ServicePort) -> bool {
    let is_balanced = |frontend: &Frontend| matches!(frontend, Frontend::LoadBalancer(_));
    !port.source_ranges.is_empty() && port.frontends.iter().any(is_balanced)
}

fn node_addresses(context: &Context) -> Vec<IpAddr> {
    let loopback = context
        .options
        .localhost_node_ports
        .then(|| match context.family {
            Family::V4 => IpAddr::from(Ipv4Addr::LOCALHOST),
            Family::V6 => IpAddr::from(Ipv6Addr::LOCALHOST),
        });
    match &context.node.node_ports {
        NodePortAddresses::Any => vec![context.listen()],
        NodePortAddresses::Only(addresses) => addresses.iter().copied().chain(loopback).collect(),
    }
}
