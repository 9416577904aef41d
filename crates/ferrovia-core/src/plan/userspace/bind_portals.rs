//! Bind portals: a service port without packet filter rules, whose proxies listen on the service's own addresses.
//!
//! Cluster IPs and external addresses are put on an interface, which makes this machine the one that answers for them. What no proxy listens
//! for is refused by the kernel itself. Node ports are listened for at each address of the node: a socket for all addresses would exclude those
//! for single ones. A [`ClientFilter`] is checked after a connection is accepted, because only then is its source known.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::client_filter::{ClientFilter, ClientSources};
use super::context::UserspaceContext;
use super::proxy::{ProxyListen, ProxySpec};
use crate::desired::{Frontend, NodePortAddresses, ServicePort};
use crate::model::TrafficPolicy;

/// The proxies of a service port; that for policy Cluster comes first, because the other one may refer to it.
pub(super) fn proxies(port: &ServicePort, context: &UserspaceContext) -> Vec<ProxySpec> {
    let mut maker = BindPortals {
        port,
        context,
        made: BTreeMap::new(),
    };
    for frontend in &*port.frontends {
        maker.frontend(*frontend);
    }
    let made = maker.made.into_iter();
    made.filter_map(|(policy, client_filters)| {
        let listen = ProxyListen::At(client_filters.keys().copied().collect());
        let filtered = client_filters
            .into_iter()
            .filter(|(_, filter)| !filter.is_open());
        Some(ProxySpec {
            client_filters: filtered.collect(),
            ..ProxySpec::of(port, policy, listen)?
        })
    })
    .collect()
}

/// The addresses a service port needs on the interface, each once.
pub(super) fn addresses(port: &ServicePort) -> BTreeSet<IpAddr> {
    let all = port.frontends.iter();
    all.filter_map(|frontend| frontend.address().map(|at| at.ip()))
        .collect()
}

struct BindPortals<'a> {
    port: &'a ServicePort,
    context: &'a UserspaceContext,
    /// Where each proxy listens, and for whom. One that listens nowhere serves connections that another one accepts.
    made: BTreeMap<TrafficPolicy, BTreeMap<SocketAddr, ClientFilter>>,
}

impl BindPortals<'_> {
    fn frontend(&mut self, frontend: Frontend) {
        for at in self.places(frontend) {
            let (policy, filter) = self.way(frontend, at);
            if filter.inside.is_some() {
                self.made.entry(TrafficPolicy::Cluster).or_default();
            }
            self.made.entry(policy).or_default().insert(at, filter);
        }
    }

    /// Where clients call it.
    fn places(&self, frontend: Frontend) -> Vec<SocketAddr> {
        match frontend {
            Frontend::ClusterIp(at) | Frontend::ExternalIp(at) | Frontend::LoadBalancer(at) => {
                vec![at]
            }
            Frontend::NodePort(number) => {
                let all = node_port_addresses(self.context);
                let all = all.map(|ip| SocketAddr::new(ip, number));
                // The address and port that a Service lists are its own, though they are the node's too.
                let node_address_frontends = &self.context.node_address_frontends;
                all.filter(|at| !node_address_frontends.has(*at, self.port.protocol()))
                    .collect()
            }
        }
    }

    /// Whose endpoints clients of a frontend get, and which of them. Under policy Local, what comes from inside still goes to any endpoint: it
    /// would not have left the cluster at a load balancer that knows where endpoints are.
    fn way(&self, frontend: Frontend, at: SocketAddr) -> (TrafficPolicy, ClientFilter) {
        let mut filter = ClientFilter {
            allowed: self.allowed(frontend, at).into_iter().collect(),
            inside: None,
        };
        let policy = self.port.policy(frontend);
        if frontend.is_internal() || policy == TrafficPolicy::Cluster {
            return (policy, filter);
        }
        let inside = self.context.inside.clone();
        if self.port.local.is_empty() {
            filter.allowed.push(inside);
            return (TrafficPolicy::Cluster, filter);
        }
        filter.inside = Some(inside).filter(|_| !self.port.cluster.is_empty());
        (policy, filter)
    }

    /// Who may use a frontend; none for everyone. The node may if a range has it: its own packets come from the address they are for. That a
    /// range has the load balancer's address says nothing of the node.
    fn allowed(&self, frontend: Frontend, at: SocketAddr) -> Option<ClientSources> {
        let ranges = &self.port.source_ranges;
        let is_balanced = matches!(frontend, Frontend::LoadBalancer(_));
        (is_balanced && !ranges.is_empty()).then(|| ClientSources {
            nets: ranges.iter().copied().collect(),
            itself: (ranges.iter())
                .any(|net| *net == IpNet::from(at.ip()) || self.context.covers_node(net)),
        })
    }
}

/// Where node ports answer.
fn node_port_addresses(context: &UserspaceContext) -> impl Iterator<Item = IpAddr> {
    let addresses = match &context.node.node_ports {
        NodePortAddresses::Any => &context.node.addresses,
        NodePortAddresses::Only(addresses) => addresses,
    };
    let loopback = Some(context.family.localhost());
    let loopback = loopback.filter(|_| context.options.localhost_node_ports);
    addresses.iter().copied().chain(loopback)
}
