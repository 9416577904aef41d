//! Which endpoints of a service port may be used: readiness, fall-back to terminating ones, topology hints, traffic policies.
//!
//! Pure, and the only place where this is decided.

use super::Endpoint;
use crate::model::{Hints, TrafficPolicy};

/// An endpoint that could be used.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// What would be used.
    pub endpoint: Endpoint,
    /// It wants traffic.
    pub ready: bool,
    /// It can answer.
    pub serving: bool,
    /// It is on its way out.
    pub terminating: bool,
    /// Who should use it.
    pub hints: Option<&'a Hints>,
}

/// Which lists a service port needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Some of its traffic may go to any endpoint in the cluster.
    pub cluster: bool,
    /// Some of its traffic must stay on this node.
    pub local: bool,
}

/// Where we are.
#[derive(Clone, Copy, Debug)]
pub struct Here<'a> {
    /// This node's name.
    pub node: &'a str,
    /// This node's zone.
    pub zone: Option<&'a str>,
}

/// The endpoints chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// For traffic with policy Cluster, in the candidates' order.
    pub cluster: Vec<Endpoint>,
    /// For traffic with policy Local, in the candidates' order.
    pub local: Vec<Endpoint>,
    /// There is a usable endpoint somewhere, though perhaps not for every policy.
    pub any: bool,
    /// What became of topology hints.
    pub topology: Topology,
}

/// Whether hints narrowed the cluster list, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Only endpoints meant for this node are used.
    SameNode,
    /// Only endpoints meant for this zone are used.
    SameZone,
    /// There is nothing to narrow: no ready endpoint, or no traffic with policy Cluster.
    NothingToNarrow,
    /// No ready endpoint has a hint.
    NoHints,
    /// Some ready endpoints have hints and some have none, so hints are not trusted.
    SomeWithoutHint,
    /// All have zone hints, but this node's zone is unknown.
    ZoneUnknown,
    /// All have hints, but none is meant for this node or its zone.
    NoneForHere,
}

impl Need {
    /// The lists needed under two policies. Traffic from outside counts only where there is a way in.
    pub fn new(
        internal: TrafficPolicy,
        external: TrafficPolicy,
        externally_accessible: bool,
    ) -> Self {
        let internal_local = internal == TrafficPolicy::Local;
        let external_local = external == TrafficPolicy::Local;
        Self {
            // Even with external policy Local, pods and the node itself reach external addresses over the cluster list.
            cluster: !internal_local || externally_accessible,
            local: internal_local || (external_local && externally_accessible),
        }
    }
}

/// Chooses among candidates, of which no two have the same address and port.
pub fn select(candidates: &[Candidate<'_>], need: Need, here: Here<'_>) -> Selection {
    let topology = if need.cluster {
        topology(candidates, here)
    } else {
        Topology::NothingToNarrow
    };
    let mut cluster = Vec::new();
    if need.cluster {
        cluster = chosen(candidates, |c| c.ready && allowed(c, topology, here));
        if cluster.is_empty() {
            cluster = chosen(candidates, draining);
        }
    }
    let mut local = Vec::new();
    if need.local {
        local = chosen(candidates, |c| c.endpoint.is_local && c.ready);
        if local.is_empty() {
            local = chosen(candidates, |c| c.endpoint.is_local && draining(c));
        }
    }
    Selection {
        cluster,
        local,
        // Endpoints that the policy keeps out of reach here still make the difference between dropping and rejecting.
        any: candidates.iter().any(|c| c.ready || draining(c)),
        topology,
    }
}

fn chosen(candidates: &[Candidate<'_>], keep: impl Fn(&Candidate<'_>) -> bool) -> Vec<Endpoint> {
    // Mostly all are.
    let mut chosen = Vec::with_capacity(candidates.len());
    let kept = candidates.iter().filter(|candidate| keep(candidate));
    chosen.extend(kept.map(|candidate| candidate.endpoint));
    chosen
}

/// On its way out but still answering: better than nothing.
fn draining(candidate: &Candidate<'_>) -> bool {
    candidate.serving && candidate.terminating
}

fn allowed(candidate: &Candidate<'_>, topology: Topology, here: Here<'_>) -> bool {
    match topology {
        Topology::SameNode => for_node(candidate, here.node),
        Topology::SameZone => here.zone.is_some_and(|zone| for_zone(candidate, zone)),
        _ => true,
    }
}

/// Node hints go before zone hints. Either kind counts only if every ready endpoint has one and one of them is meant for us;
/// otherwise following them could overload or empty a zone.
fn topology(candidates: &[Candidate<'_>], here: Here<'_>) -> Topology {
    let ready = || candidates.iter().filter(|candidate| candidate.ready);
    if ready().next().is_none() {
        return Topology::NothingToNarrow;
    }
    let has_nodes = |c: &Candidate<'_>| c.hints.is_some_and(|hints| !hints.nodes.is_empty());
    let has_zones = |c: &Candidate<'_>| c.hints.is_some_and(|hints| !hints.zones.is_empty());
    let all_nodes = ready().all(has_nodes);
    if all_nodes && ready().any(|c| for_node(c, here.node)) {
        return Topology::SameNode;
    }
    if ready().all(has_zones) {
        return match here.zone {
            None => Topology::ZoneUnknown,
            Some(zone) if ready().any(|c| for_zone(c, zone)) => Topology::SameZone,
            Some(_) => Topology::NoneForHere,
        };
    }
    if ready().all(|c| c.hints.is_none()) {
        Topology::NoHints
    } else if all_nodes && !ready().any(has_zones) {
        Topology::NoneForHere
    } else {
        Topology::SomeWithoutHint
    }
}

fn for_node(candidate: &Candidate<'_>, node: &str) -> bool {
    candidate
        .hints
        .is_some_and(|hints| hints.nodes.iter().any(|name| **name == *node))
}

fn for_zone(candidate: &Candidate<'_>, zone: &str) -> bool {
    candidate
        .hints
        .is_some_and(|hints| hints.zones.iter().any(|name| **name == *zone))
}

#[cfg(test)]
mod tests;
