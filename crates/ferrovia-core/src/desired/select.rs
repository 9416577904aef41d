//! Endpoint selection: readiness, fallback to terminating endpoints, topology hints, traffic policies.
//!
//! Pure, and the only place where this is decided. [`SelectionRules`] says of each endpoint whether a list has it and why; [`select`] makes the lists
//! from what it says, so an explanation cannot differ from what is done.

use serde::Serialize;

use super::Endpoint;
use crate::model::{Hints, TrafficPolicy};

/// An endpoint that could be used.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndpointCandidate<'a> {
    /// What would be used.
    pub(super) endpoint: Endpoint,
    /// The `ready` condition.
    pub(super) ready: bool,
    /// The `serving` condition.
    pub(super) serving: bool,
    /// The `terminating` condition.
    pub(super) terminating: bool,
    pub(super) hints: Option<&'a Hints>,
    /// The node it runs on.
    pub(super) node: Option<&'a str>,
}

/// Which lists a service port needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequiredLists {
    /// Some of its traffic may go to any endpoint in the cluster.
    pub(super) cluster: bool,
    /// Some of its traffic must stay on this node.
    pub(super) local: bool,
}

/// The location of this node.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeLocation<'a> {
    pub(super) node: &'a str,
    pub(super) zone: Option<&'a str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selection {
    /// For traffic with policy Cluster, in the candidates' order.
    pub(super) cluster: Vec<Endpoint>,
    /// For traffic with policy Local, in the candidates' order.
    pub(super) local: Vec<Endpoint>,
    /// There is a usable endpoint somewhere, though perhaps not for every policy.
    pub(super) any: bool,
}

/// Whether hints narrowed the cluster list, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
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

impl RequiredLists {
    /// The lists needed under two policies. Traffic from outside counts only where there is a way in.
    pub(super) fn new(
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

/// Whether a list has an endpoint, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndpointSelection {
    /// Selected: it is ready.
    Ready,
    /// Selected: no endpoint is ready, and it is terminating but still serving.
    Draining,
    /// Not selected: it is not ready.
    NotReady,
    /// Not selected: it is terminating, and others are ready.
    Terminating,
    /// Not selected: it is terminating and not serving.
    Gone,
    /// Not selected: its node hints exclude this node.
    OtherNode,
    /// Not selected: its zone hints exclude this zone.
    OtherZone,
    /// Not selected: it is not on this node.
    NotLocal,
    /// Not selected: its weight is 0.
    NoWeight,
    /// Not selected: no traffic of the service port uses this list.
    ListUnused,
}

impl EndpointSelection {
    /// It is in the list.
    pub fn is_selected(self) -> bool {
        matches!(self, Self::Ready | Self::Draining)
    }
}

/// How one list is made.
#[derive(Clone, Copy, Debug)]
struct ListRule<'a> {
    here: NodeLocation<'a>,
    /// Only endpoints on this node.
    local_only: bool,
    /// No endpoint can be used as ready, so those on their way out are.
    draining: bool,
    topology: Topology,
}

impl ListRule<'_> {
    /// If no endpoint is ready, falls back to terminating ones that still serve.
    fn falling_back(mut self, candidates: &[EndpointCandidate<'_>]) -> Self {
        self.draining = !candidates.iter().any(|c| self.selection(c).is_selected());
        self
    }

    fn selection(&self, candidate: &EndpointCandidate<'_>) -> EndpointSelection {
        if self.local_only && !candidate.endpoint.is_local {
            return EndpointSelection::NotLocal;
        }
        match (self.draining, draining(candidate)) {
            (true, true) => return EndpointSelection::Draining,
            (false, _) if candidate.ready => {}
            (false, true) => return EndpointSelection::Terminating,
            (_, false) if candidate.terminating => return EndpointSelection::Gone,
            _ => return EndpointSelection::NotReady,
        }
        match self.topology {
            Topology::SameNode if !for_node(candidate, self.here.node) => {
                EndpointSelection::OtherNode
            }
            Topology::SameZone if !self.for_this_zone(candidate) => EndpointSelection::OtherZone,
            _ => EndpointSelection::Ready,
        }
    }

    fn for_this_zone(&self, candidate: &EndpointCandidate<'_>) -> bool {
        self.here.zone.is_some_and(|zone| for_zone(candidate, zone))
    }

    fn chosen(&self, candidates: &[EndpointCandidate<'_>]) -> Vec<Endpoint> {
        // Usually all of them.
        let mut chosen = Vec::with_capacity(candidates.len());
        let kept = candidates
            .iter()
            .filter(|c| self.selection(c).is_selected());
        chosen.extend(kept.map(|candidate| candidate.endpoint));
        chosen
    }
}

/// How both lists of a service port are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct SelectionRules<'a> {
    cluster: Option<ListRule<'a>>,
    local: Option<ListRule<'a>>,
    /// What becomes of topology hints.
    pub(super) topology: Topology,
}

impl<'a> SelectionRules<'a> {
    /// Decides how to choose among candidates, of which no two have the same address and port.
    pub(super) fn new(
        candidates: &[EndpointCandidate<'_>],
        need: RequiredLists,
        here: NodeLocation<'a>,
    ) -> Self {
        let topology = if need.cluster {
            topology(candidates, here)
        } else {
            Topology::NothingToNarrow
        };
        let rule = |local_only, topology| {
            let rule = ListRule {
                here,
                local_only,
                draining: false,
                topology,
            };
            rule.falling_back(candidates)
        };
        Self {
            cluster: need.cluster.then(|| rule(false, topology)),
            // Hints say which of the cluster's endpoints to use; here there is no choice.
            local: need.local.then(|| rule(true, Topology::NothingToNarrow)),
            topology,
        }
    }

    /// What a candidate is to the list for a policy.
    pub(super) fn selection(
        &self,
        candidate: &EndpointCandidate<'_>,
        policy: TrafficPolicy,
    ) -> EndpointSelection {
        let rule = match policy {
            TrafficPolicy::Cluster => &self.cluster,
            TrafficPolicy::Local => &self.local,
        };
        rule.map_or(EndpointSelection::ListUnused, |rule| {
            rule.selection(candidate)
        })
    }
}

/// Chooses among candidates, of which no two have the same address and port.
pub(super) fn select(
    candidates: &[EndpointCandidate<'_>],
    need: RequiredLists,
    here: NodeLocation<'_>,
) -> Selection {
    let choice = SelectionRules::new(candidates, need, here);
    let list =
        |rule: Option<ListRule<'_>>| rule.map_or_else(Vec::new, |rule| rule.chosen(candidates));
    Selection {
        cluster: list(choice.cluster),
        local: list(choice.local),
        // Endpoints that the policy keeps out of reach here still make the difference between dropping and rejecting.
        any: candidates.iter().any(|c| c.ready || draining(c)),
    }
}

/// Terminating but still serving: the fallback without ready endpoints.
fn draining(candidate: &EndpointCandidate<'_>) -> bool {
    candidate.serving && candidate.terminating
}

/// Node hints go before zone hints. Either kind counts only if every ready endpoint has one and one of them is meant for us;
/// otherwise following them could overload or empty a zone.
fn topology(candidates: &[EndpointCandidate<'_>], here: NodeLocation<'_>) -> Topology {
    let ready = || candidates.iter().filter(|candidate| candidate.ready);
    if ready().next().is_none() {
        return Topology::NothingToNarrow;
    }
    let has_nodes =
        |c: &EndpointCandidate<'_>| c.hints.is_some_and(|hints| !hints.nodes.is_empty());
    let has_zones =
        |c: &EndpointCandidate<'_>| c.hints.is_some_and(|hints| !hints.zones.is_empty());
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

fn for_node(candidate: &EndpointCandidate<'_>, node: &str) -> bool {
    candidate
        .hints
        .is_some_and(|hints| hints.nodes.iter().any(|name| **name == *node))
}

fn for_zone(candidate: &EndpointCandidate<'_>, zone: &str) -> bool {
    candidate
        .hints
        .is_some_and(|hints| hints.zones.iter().any(|name| **name == *zone))
}

#[cfg(test)]
mod tests;
