//! From a Service and its slices to one [`ServicePort`] on this node.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;

use super::claims::{FrontendClaim, Rank, Stake};
use super::explain::{Explained, ExplainedEndpoint};
use super::select::{
    EndpointCandidate, EndpointSelection, NodeLocation, RequiredLists, SelectionRules, select,
};
use super::{Endpoint, Frontend, ServicePort};
use crate::family::Family;
use crate::model::{
    EndpointSlice, PortKey, Protocol, Service, ServicePortSpec, TrafficPolicy, fold_nested,
};

/// As many units of weight as the endpoints of all ports of a Service have, unless they have one each. Up to 16 ports this leaves each as many as its list can use.
const MOST_WEIGHTS: usize = 1 << 16;

/// What a service port's making depends on besides its objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct PortContext<'a> {
    /// The family it is made for.
    pub(super) family: Family,
    pub(super) here: NodeLocation<'a>,
    /// This node's address of the family.
    pub(super) node_ip: Option<IpAddr>,
}

/// The identity of one port of a Service.
pub(super) fn port_key(service: &Service, port: &ServicePortSpec) -> PortKey {
    PortKey {
        service: service.key.clone(),
        name: Arc::clone(&port.name),
        protocol: port.protocol,
    }
}

/// All frontends that a port claims, sorted. Empty if the Service has no cluster IP of the family.
pub(super) fn frontends(
    service: &Service,
    port: &ServicePortSpec,
    family: Family,
) -> Vec<Frontend> {
    let Some(cluster_ip) = service.cluster_ips[family] else {
        return Vec::new();
    };
    let at = |ip: IpAddr| SocketAddr::new(ip, port.port);
    let mut found = vec![Frontend::ClusterIp(at(cluster_ip))];
    found.extend(port.node_port.map(Frontend::NodePort));
    // An address can be listed in two roles but served in one. As a load balancer's it is subject to source ranges, as an
    // external IP it is not, so the former role is kept.
    let vips: BTreeSet<IpAddr> = service
        .load_balancer_ips(family)
        .filter(|ip| *ip != cluster_ip)
        .collect();
    let others = service
        .external_ips(family)
        .filter(|ip| *ip != cluster_ip && !vips.contains(ip));
    found.extend(others.map(|ip| Frontend::ExternalIp(at(ip))));
    found.extend(vips.into_iter().map(|ip| Frontend::LoadBalancer(at(ip))));
    found.sort_unstable();
    found.dedup();
    found
}

/// Everything a Service claims, in both families, sorted.
pub(super) fn claims(service: &Service) -> Vec<Stake> {
    let mut found = Vec::new();
    for family in Family::ALL {
        for port in &service.ports {
            let frontends = frontends(service, port, family);
            let key = port_key(service, port);
            found.extend(frontends.into_iter().map(|it| stake(it, family, &key)));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// What a frontend needs to itself, and for which port.
pub(super) fn stake(frontend: Frontend, family: Family, port: &PortKey) -> Stake {
    Stake {
        claim: FrontendClaim::of(frontend, family, port.protocol),
        port: port.clone(),
        rank: Rank::of(frontend),
    }
}

/// Makes a port, with the frontends it has won.
pub(super) fn service_port<'a>(
    service: &Service,
    port: &ServicePortSpec,
    frontends: Box<[Frontend]>,
    slices: impl Iterator<Item = &'a EndpointSlice>,
    context: PortContext<'_>,
) -> ServicePort {
    let mut copies = copies(port, slices, context);
    limit_weights(&mut copies, service.ports.len());
    let selection = select(
        &candidates(&copies),
        need(service, port, context.family),
        context.here,
    );
    let cluster = shared(selection.cluster);
    // Often all endpoints are local or none is asked for; one list then does for both.
    let local = if *cluster == *selection.local {
        Arc::clone(&cluster)
    } else {
        shared(selection.local)
    };
    ServicePort {
        key: port_key(service, port),
        frontends,
        answering: (port.protocol == Protocol::Udp).then(|| answering(&copies, &cluster)),
        cluster,
        local,
        any_endpoints: selection.any,
        internal_policy: service.internal_policy,
        external_policy: service.external_policy,
        affinity: service.affinity,
        algorithm: service.algorithm,
        scheduler: service.scheduler,
        source_ranges: source_ranges(service, context),
    }
}

/// A list of endpoints. Most ports have an empty one, and all empty ones are the same, which takes no memory.
fn shared(endpoints: Vec<Endpoint>) -> Arc<[Endpoint]> {
    if endpoints.is_empty() {
        return Arc::default();
    }
    endpoints.into()
}

/// Says of every endpoint of a port whether its lists have it and why; made as the port itself is.
pub(super) fn explain<'a>(
    service: &Service,
    port: &ServicePortSpec,
    slices: impl Iterator<Item = &'a EndpointSlice>,
    context: PortContext<'_>,
) -> Explained {
    let mut copies = copies(port, slices, context);
    limit_weights(&mut copies, service.ports.len());
    let candidates = candidates(&copies);
    let need = need(service, port, context.family);
    let choice = SelectionRules::new(&candidates, need, context.here);
    // Of several copies the one that counts is a candidate, if any is.
    copies.sort_by_key(|c| (c.endpoint.ip, c.endpoint.port, c.endpoint.weight == 0));
    copies.dedup_by_key(|c| (c.endpoint.ip, c.endpoint.port));
    let selection = |copy: &EndpointCandidate<'_>, policy| match copy.endpoint.weight {
        0 => EndpointSelection::NoWeight,
        _ => choice.selection(copy, policy),
    };
    let endpoints = copies.iter().map(|copy| ExplainedEndpoint {
        endpoint: copy.endpoint,
        node: copy.node.map(Into::into),
        zones: copy
            .hints
            .map_or_else(Vec::new, |hints| hints.zones.to_vec()),
        cluster: selection(copy, TrafficPolicy::Cluster),
        local: selection(copy, TrafficPolicy::Local),
    });
    let ready = candidates.iter().filter(|candidate| candidate.ready);
    let unhinted = ready.clone().filter(|candidate| candidate.hints.is_none());
    Explained {
        topology: choice.topology,
        ready: ready.count(),
        unhinted: unhinted.count(),
        endpoints: endpoints.collect(),
    }
}

/// What is listed counts, even if another service has won it or external IPs are not allowed: the choice of endpoints must not
/// depend on other services.
fn need(service: &Service, port: &ServicePortSpec, family: Family) -> RequiredLists {
    let accessible = port.node_port.is_some()
        || service.load_balancer_ips(family).next().is_some()
        || service.lists_external_ips(family);
    RequiredLists::new(service.internal_policy, service.external_policy, accessible)
}

/// Every mention of an endpoint that serves a port, in order of address and port. An endpoint on the move between slices is in both for a
/// while; the more useful copy sorts first, and as the sort is stable, among equals it is that of the slice whose name sorts first.
fn copies<'a>(
    port: &ServicePortSpec,
    slices: impl Iterator<Item = &'a EndpointSlice>,
    context: PortContext<'_>,
) -> Vec<EndpointCandidate<'a>> {
    let mut found = Vec::new();
    for slice in slices.filter(|slice| slice.family == context.family) {
        let serving = slice
            .ports
            .iter()
            .filter(|p| p.name == port.name && p.protocol == port.protocol);
        for slice_port in serving {
            found.extend(slice.endpoints.iter().map(|endpoint| EndpointCandidate {
                endpoint: Endpoint {
                    ip: endpoint.ip,
                    port: slice_port.port,
                    weight: slice.weight,
                    is_local: endpoint.node.as_deref() == Some(context.here.node),
                },
                ready: endpoint.ready,
                serving: endpoint.serving,
                terminating: endpoint.terminating,
                hints: endpoint.hints.as_deref(),
                node: endpoint.node.as_deref(),
            }));
        }
    }
    found.sort_by_key(|c| (c.endpoint.ip, c.endpoint.port, c.terminating, !c.ready));
    found
}

/// Scales weights down where a Service has so many ports that their lists, which have a slot for each unit of weight, would take too much memory. An endpoint
/// that has any weight keeps some.
fn limit_weights(copies: &mut [EndpointCandidate<'_>], ports: usize) {
    let most = (MOST_WEIGHTS / ports.max(1)) as u64;
    let total: u64 = copies
        .iter()
        .map(|copy| u64::from(copy.endpoint.weight))
        .sum();
    let weighty = copies
        .iter()
        .filter(|copy| copy.endpoint.weight > 0)
        .count() as u64;
    if total <= most || total == weighty {
        return;
    }
    for copy in copies {
        let weight = u64::from(copy.endpoint.weight);
        if weight > 0 {
            let scaled = (weight * most / total).clamp(1, weight);
            copy.endpoint.weight = u16::try_from(scaled).unwrap_or(copy.endpoint.weight);
        }
    }
}

/// The endpoints that new connections may go to, each once. Weight 0 takes one out as if it were not there.
fn candidates<'a>(copies: &[EndpointCandidate<'a>]) -> Vec<EndpointCandidate<'a>> {
    let weighty = copies.iter().filter(|copy| copy.endpoint.weight > 0);
    let mut found: Vec<_> = weighty.copied().collect();
    found.dedup_by_key(|c| (c.endpoint.ip, c.endpoint.port));
    found
}

/// The endpoints that can answer, each once. One that is ready counts even if it is said not to serve, as with
/// `publishNotReadyAddresses`: it gets new flows, so those it has must stay. Often it is the list that new flows may go to.
fn answering(copies: &[EndpointCandidate<'_>], cluster: &Arc<[Endpoint]>) -> Arc<[Endpoint]> {
    let able = copies.iter().filter(|copy| copy.serving || copy.ready);
    let mut found: Vec<_> = able.map(|copy| copy.endpoint).collect();
    found.dedup_by_key(|endpoint| (endpoint.ip, endpoint.port));
    if **cluster == *found {
        Arc::clone(cluster)
    } else {
        shared(found)
    }
}

/// The ranges of the family, without those inside others. One that is everything makes the rest pointless.
fn source_ranges(service: &Service, context: PortContext<'_>) -> Box<[IpNet]> {
    let family = context.family;
    let mut ranges: Vec<IpNet> = service.source_ranges(family).collect();
    if ranges.iter().any(|net| net.prefix_len() == 0) {
        return Box::default();
    }
    // A packet from the node to the load balancer's address may loop back to it with that address as its source.
    if context
        .node_ip
        .is_some_and(|ip| ranges.iter().any(|net| net.contains(&ip)))
    {
        ranges.extend(service.load_balancer_ips(family).map(IpNet::from));
    }
    fold_nested(ranges).into()
}
