//! Which UDP flows the kernel must forget.
//!
//! The kernel decides once where a flow goes and remembers it for as long as packets come. TCP notices when its peer is gone; UDP does not,
//! and a client that never stops sending would talk to a dead endpoint for ever. So once new rules are in force, these flows must go:
//!
//! - to an address and port of a service, answered by an endpoint that cannot answer any more, or by nobody's translation at all (it began
//!   before the service had endpoints). A service *without* endpoints keeps its flows: an endpoint that fails its readiness check for a
//!   moment may well answer those that know it, and there is nowhere else to send them;
//! - to an address and port that was a service's and is nobody's any more, if it was translated. kube-proxy leaves these; but who closes a
//!   node port or deletes a Service wants its traffic to end, and a pod's address may soon be another pod's.
//!
//! A flow to an endpoint that can still answer stays, whatever traffic policies, topology hints or weights say about new flows. TCP and SCTP
//! are never touched.
//!
//! This holds for every mode that translates service addresses to those of endpoints in the kernel.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::desired::{Delta, Desired, Endpoint, Frontend, NodePortAddresses, ServicePort};
use crate::family::Family;

/// Where a flow was sent by its client, as far as services are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// An address and port of a service.
    Address(SocketAddr),
    /// A port on one of this node's addresses.
    NodePort(u16),
}

impl From<Frontend> for Target {
    fn from(frontend: Frontend) -> Self {
        match frontend {
            Frontend::ClusterIp(address)
            | Frontend::ExternalIp(address)
            | Frontend::LoadBalancer(address) => Self::Address(address),
            Frontend::NodePort(port) => Self::NodePort(port),
        }
    }
}

/// Why a flow must go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The endpoint it goes to does not answer for the service any more.
    EndpointGone,
    /// It began before the service had endpoints, so it goes to none.
    Untranslated,
    /// No service has the address any more that it was sent to.
    ServiceGone,
}

/// A flow that must go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What it was sent to.
    pub target: Target,
    /// Why it must go.
    pub reason: Reason,
}

/// What may answer flows to a target.
#[derive(Clone, Debug)]
enum Answers {
    /// These endpoints, sorted by address and port; there is at least one.
    From(Arc<[Endpoint]>),
    /// No service any more; only who really has the address.
    Nobody,
}

/// One family's changes for which flows have not been cleaned up yet.
///
/// Every change is noted when it becomes known and settled when the rules for it are in force. So what a failed sync leaves undone is done
/// after the next one that succeeds.
#[derive(Clone, Debug, Default)]
pub struct Owed {
    targets: HashMap<Target, Answers>,
}

impl Owed {
    /// Notes what changed.
    pub fn note(&mut self, delta: &Delta) {
        // What goes before what comes: an address may have moved from one service to another.
        for change in &delta.ports {
            let Some(old) = change.old.as_ref().filter(|old| old.answering.is_some()) else {
                continue;
            };
            let kept: HashSet<Target> = targets(change.new.as_deref()).collect();
            let gone = targets(Some(old)).filter(|target| !kept.contains(target));
            self.targets
                .extend(gone.map(|target| (target, Answers::Nobody)));
        }
        for change in &delta.ports {
            if let Some(new) = &change.new {
                self.note_port(new, change.old.as_deref());
            }
        }
    }

    /// Notes everything there is, for when somebody else may have changed the rules: flows that began meanwhile went past them.
    pub fn note_all(&mut self, desired: &Desired) {
        for port in desired.ports.values() {
            self.note_port(port, None);
        }
    }

    /// The rules of `desired` are in force: answers with what must be cleaned up now, and forgets it.
    pub fn settle(&mut self, desired: &Desired, local_addresses: &[IpAddr]) -> Option<Cleanup> {
        let targets = std::mem::take(&mut self.targets);
        if targets.is_empty() {
            return None;
        }
        let has_node_ports = targets.keys().any(|t| matches!(t, Target::NodePort(_)));
        let node_addresses = match &desired.node.node_ports {
            _ if !has_node_ports => HashSet::new(),
            NodePortAddresses::Only(addresses) => addresses.iter().copied().collect(),
            NodePortAddresses::Any => local_addresses.iter().copied().collect(),
        };
        Some(Cleanup {
            family: desired.family,
            targets,
            node_addresses,
        })
    }

    fn note_port(&mut self, port: &ServicePort, old: Option<&ServicePort>) {
        // Without endpoints nothing is stale that was not before, and what was already noted stays so.
        let Some(answering) = port.answering.as_ref().filter(|list| !list.is_empty()) else {
            return;
        };
        let before = old.filter(|old| is_same(old.answering.as_deref(), answering));
        let known: HashSet<Target> = targets(before).collect();
        let news = targets(Some(port)).filter(|target| !known.contains(target));
        let answers = Answers::From(Arc::clone(answering));
        self.targets
            .extend(news.map(|target| (target, answers.clone())));
    }
}

/// Where flows to a port are sent. In which role it has an address makes no difference.
fn targets(port: Option<&ServicePort>) -> impl Iterator<Item = Target> {
    let frontends = port.map_or(&[][..], |port| &port.frontends);
    frontends.iter().copied().map(Target::from)
}

/// The same endpoints, whatever their weights.
fn is_same(old: Option<&[Endpoint]>, new: &[Endpoint]) -> bool {
    let place = |endpoint: &Endpoint| (endpoint.ip, endpoint.port);
    old.is_some_and(|old| old.iter().map(place).eq(new.iter().map(place)))
}

/// What to look for among one family's UDP flows.
#[derive(Clone, Debug)]
pub struct Cleanup {
    family: Family,
    targets: HashMap<Target, Answers>,
    /// Where node ports answer. A flow to the same port of another machine is none of our business.
    node_addresses: HashSet<IpAddr>,
}

impl Cleanup {
    /// The family.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The targets whose flows must be looked at, in no order.
    pub fn targets(&self) -> impl ExactSizeIterator<Item = Target> {
        self.targets.keys().copied()
    }

    /// Flows to this target must be looked at.
    pub fn concerns(&self, target: Target) -> bool {
        self.targets.contains_key(&target)
    }

    /// Adds a later one of the same family; where both know a target, the later is right.
    pub fn absorb(&mut self, later: Self) {
        self.targets.extend(later.targets);
        // One without node ports brings no addresses, and needs none.
        if !later.node_addresses.is_empty() {
            self.node_addresses = later.node_addresses;
        }
    }

    /// Decides about a UDP flow by where its client sent it and where answers to it come from.
    pub fn judge(&self, sent_to: SocketAddr, answered_by: SocketAddr) -> Option<Verdict> {
        let (target, answers) = self.find(sent_to)?;
        let untranslated = sent_to == answered_by;
        let reason = match answers {
            Answers::From(endpoints) if is_among(endpoints, answered_by) => return None,
            Answers::Nobody if untranslated => return None,
            Answers::From(_) if untranslated => Reason::Untranslated,
            Answers::From(_) => Reason::EndpointGone,
            Answers::Nobody => Reason::ServiceGone,
        };
        Some(Verdict { target, reason })
    }

    /// A service's own address goes before a node port, as it does in the rules.
    fn find(&self, sent_to: SocketAddr) -> Option<(Target, &Answers)> {
        let address = Target::Address(sent_to);
        if let Some(answers) = self.targets.get(&address) {
            return Some((address, answers));
        }
        if !self.node_addresses.contains(&sent_to.ip()) {
            return None;
        }
        let port = Target::NodePort(sent_to.port());
        self.targets.get(&port).map(|answers| (port, answers))
    }
}

fn is_among(endpoints: &[Endpoint], place: SocketAddr) -> bool {
    endpoints
        .binary_search_by_key(&(place.ip(), place.port()), |e| (e.ip, e.port))
        .is_ok()
}

#[cfg(test)]
mod tests;
