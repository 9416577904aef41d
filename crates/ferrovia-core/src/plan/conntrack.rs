//! Which UDP flows are stale and must be deleted from conntrack.
//!
//! The kernel translates a flow once and keeps the conntrack entry for as long as packets arrive. TCP notices when its peer is gone; UDP does not,
//! and a client that never stops sending would talk to a dead endpoint indefinitely. So once new rules are applied, these flows are deleted:
//!
//! - to an address and port of a service, answered by an endpoint that cannot answer any more, or not translated at all (it began
//!   before the service had endpoints). A service *without* endpoints keeps its flows: an endpoint that fails its readiness check for a
//!   moment may well answer those that know it, and there is nowhere else to send them;
//! - to an address and port that no service has any more, if it was translated. kube-proxy leaves these; but closing a
//!   node port or deleting a Service should end its traffic, and a pod's address may soon be another pod's.
//!
//! A flow to an endpoint that can still answer stays, whatever traffic policies, topology hints or weights say about new flows. TCP and SCTP
//! are never touched.
//!
//! Walking the conntrack table costs milliseconds even if it is nearly empty, so changes that cannot leave a stale flow behind ask
//! for no walk: above all endpoints that join a service which has some already.
//!
//! This holds for every mode that translates service addresses to those of endpoints in the kernel.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::desired::{Delta, Desired, Endpoint, Frontend, NodePortAddresses, ServicePort};
use crate::family::Family;

/// Where a flow was sent by its client, as far as services are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlowTarget {
    /// An address and port of a service.
    Address(SocketAddr),
    /// A port on one of this node's addresses.
    NodePort(u16),
}

impl From<Frontend> for FlowTarget {
    fn from(frontend: Frontend) -> Self {
        match frontend {
            Frontend::ClusterIp(address)
            | Frontend::ExternalIp(address)
            | Frontend::LoadBalancer(address) => Self::Address(address),
            Frontend::NodePort(port) => Self::NodePort(port),
        }
    }
}

/// Why a flow is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StaleReason {
    /// The endpoint it goes to does not answer for the service any more.
    EndpointGone,
    /// It began before the service had endpoints, so it goes to none.
    Untranslated,
    /// No service has the address any more that it was sent to.
    ServiceGone,
}

/// A flow that must be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleFlow {
    /// The service address that the client used.
    pub target: FlowTarget,
    /// Why it is stale.
    pub reason: StaleReason,
}

/// The endpoints that may answer flows to a target.
#[derive(Clone, Debug)]
enum Responders {
    /// These endpoints, sorted by address and port; there is at least one.
    From(Arc<[Endpoint]>),
    /// No service has the address any more.
    None,
}

/// A target whose responders changed.
#[derive(Clone, Debug)]
struct TargetChange {
    answers: Responders,
    /// False if endpoints only joined: that makes no flow stale. The change is passed on nevertheless, because a cleanup that is still
    /// pending would remove flows to endpoints that it does not know.
    may_have_stale_flows: bool,
}

type TargetChanges = HashMap<FlowTarget, TargetChange>;

/// Records a change; the answers of a later change replace earlier ones, and stale flows stay to be looked for.
fn record_change(changes: &mut TargetChanges, target: FlowTarget, mut change: TargetChange) {
    let earlier = changes.get(&target);
    change.may_have_stale_flows |= earlier.is_some_and(|it| it.may_have_stale_flows);
    changes.insert(target, change);
}

/// One family's changes for which flows have not been cleaned up yet.
///
/// Every change is recorded when it becomes known and taken when its rules are applied. So what a failed sync leaves undone is done
/// after the next one that succeeds.
#[derive(Clone, Debug, Default)]
pub struct PendingCleanup {
    changes: TargetChanges,
}

impl PendingCleanup {
    pub fn record(&mut self, delta: &Delta) {
        // What goes before what comes: an address may have moved from one service to another.
        for change in &delta.ports {
            let Some(old) = change.old.as_ref().filter(|old| old.answering.is_some()) else {
                continue;
            };
            let kept: HashSet<FlowTarget> = targets(change.new.as_deref()).collect();
            for target in targets(Some(old)).filter(|target| !kept.contains(target)) {
                let gone = TargetChange {
                    answers: Responders::None,
                    may_have_stale_flows: true,
                };
                record_change(&mut self.changes, target, gone);
            }
        }
        for change in &delta.ports {
            if let Some(new) = &change.new {
                self.record_port(new, change.old.as_deref());
            }
        }
    }

    /// Records every port, for when another process may have changed the rules: flows that began meanwhile bypassed them.
    pub fn record_all(&mut self, desired: &Desired) {
        for port in desired.ports.values() {
            self.record_port(port, None);
        }
    }

    /// Takes the recorded changes, once the rules of `desired` are applied; `None` if there are none.
    pub fn take_cleanup(
        &mut self,
        desired: &Desired,
        local_addresses: &[IpAddr],
    ) -> Option<Cleanup> {
        let changes = std::mem::take(&mut self.changes);
        if changes.is_empty() {
            return None;
        }
        let has_node_ports = changes.keys().any(|t| matches!(t, FlowTarget::NodePort(_)));
        let node_addresses = match &desired.node.node_ports {
            _ if !has_node_ports => HashSet::new(),
            NodePortAddresses::Only(addresses) => addresses.iter().copied().collect(),
            NodePortAddresses::Any => local_addresses.iter().copied().collect(),
        };
        Some(Cleanup {
            family: desired.family,
            changes,
            node_addresses,
        })
    }

    fn record_port(&mut self, port: &ServicePort, old: Option<&ServicePort>) {
        // Without endpoints nothing is stale that was not before, and what was already noted stays so.
        let Some(answering) = port.answering.as_ref().filter(|list| !list.is_empty()) else {
            return;
        };
        let effect = Effect::of(old.and_then(|old| old.answering.as_deref()), answering);
        let known: HashSet<FlowTarget> = targets(old).collect();
        for target in targets(Some(port)) {
            // To an address that was none of the service's before, flows may go anywhere.
            let is_known = known.contains(&target);
            if is_known && effect == Effect::None {
                continue;
            }
            let change = TargetChange {
                answers: Responders::From(Arc::clone(answering)),
                may_have_stale_flows: !is_known || effect == Effect::MayBeStale,
            };
            record_change(&mut self.changes, target, change);
        }
    }
}

/// What another list of endpoints means for flows that exist.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// The same endpoints, whatever their weights.
    None,
    /// Endpoints joined, and none left.
    Joined,
    /// Some endpoint left, or there was none: then flows may have begun untranslated, or were kept when the last endpoint left.
    MayBeStale,
}

impl Effect {
    fn of(old: Option<&[Endpoint]>, new: &[Endpoint]) -> Self {
        let old = old.unwrap_or_default();
        let all_stay = old
            .iter()
            .all(|endpoint| is_among(new, SocketAddr::new(endpoint.ip, endpoint.port)));
        match old.len() {
            0 => Self::MayBeStale,
            _ if !all_stay => Self::MayBeStale,
            len if len == new.len() => Self::None,
            _ => Self::Joined,
        }
    }
}

/// Where flows to a port are sent. In which role it has an address makes no difference.
fn targets(port: Option<&ServicePort>) -> impl Iterator<Item = FlowTarget> {
    let frontends = port.map_or(&[][..], |port| &port.frontends);
    frontends.iter().copied().map(FlowTarget::from)
}

/// What to look for among one family's UDP flows.
#[derive(Clone, Debug)]
pub struct Cleanup {
    family: Family,
    changes: TargetChanges,
    /// Where node ports answer. Flows to the same port of another machine are not ours.
    node_addresses: HashSet<IpAddr>,
}

impl Cleanup {
    pub fn family(&self) -> Family {
        self.family
    }

    /// The targets whose flows must be looked at, in no order.
    pub fn targets(&self) -> impl Iterator<Item = FlowTarget> {
        let stale = |(target, change): (&FlowTarget, &TargetChange)| {
            let is_stale = change.may_have_stale_flows;
            is_stale.then_some(*target)
        };
        self.changes.iter().filter_map(stale)
    }

    /// Some flow may be stale. Otherwise this only updates a cleanup that is still pending.
    pub fn may_have_stale_flows(&self) -> bool {
        self.targets().next().is_some()
    }

    /// Merges a later cleanup of the same family, which takes precedence where both know a target.
    pub fn absorb(&mut self, later: Self) {
        for (target, change) in later.changes {
            record_change(&mut self.changes, target, change);
        }
        // One without node ports brings no addresses, and needs none.
        if !later.node_addresses.is_empty() {
            self.node_addresses = later.node_addresses;
        }
    }

    /// A flow that an earlier cleanup takes to be stale is not: it goes to an endpoint that answers again, or answers since.
    pub fn overrules(&self, sent_to: SocketAddr, answered_by: SocketAddr) -> bool {
        self.find(sent_to).is_some() && self.check_flow(sent_to, answered_by).is_none()
    }

    /// Whether a UDP flow is stale, given its original destination and the source of its replies.
    pub fn check_flow(&self, sent_to: SocketAddr, answered_by: SocketAddr) -> Option<StaleFlow> {
        let (target, answers) = self.find(sent_to)?;
        let untranslated = sent_to == answered_by;
        let reason = match answers {
            Responders::From(endpoints) if is_among(endpoints, answered_by) => return None,
            Responders::None if untranslated => return None,
            Responders::From(_) if untranslated => StaleReason::Untranslated,
            Responders::From(_) => StaleReason::EndpointGone,
            Responders::None => StaleReason::ServiceGone,
        };
        Some(StaleFlow { target, reason })
    }

    /// A service's own address goes before a node port, as it does in the rules.
    fn find(&self, sent_to: SocketAddr) -> Option<(FlowTarget, &Responders)> {
        let address = FlowTarget::Address(sent_to);
        if let Some(change) = self.changes.get(&address) {
            return Some((address, &change.answers));
        }
        if !self.node_addresses.contains(&sent_to.ip()) {
            return None;
        }
        let port = FlowTarget::NodePort(sent_to.port());
        let change = self.changes.get(&port)?;
        Some((port, &change.answers))
    }
}

fn is_among(endpoints: &[Endpoint], place: SocketAddr) -> bool {
    endpoints
        .binary_search_by_key(&(place.ip(), place.port()), |e| (e.ip, e.port))
        .is_ok()
}

#[cfg(test)]
mod tests;
