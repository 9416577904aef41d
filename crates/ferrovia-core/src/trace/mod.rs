//! Where a packet goes and why: the answer to "why not where I expect?", from what is desired.
//!
//! [`trace`] follows the order of the rules in the kernel: which frontend is addressed (`frontend.rs`), who may use it, which list of
//! endpoints applies and what becomes of a packet that no endpoint takes (here), what source address the endpoint sees (`masquerade.rs`), and
//! the endpoints with their chances (`endpoints.rs`). What nobody serves gets hints (`hints.rs`). Where modes treat packets differently,
//! [`TraceMode`] says so and nothing else. [`Trace`] prints as text for people (`text.rs`) and serialises: field names and the words in
//! kebab case stay as they are, fields may be added.

mod endpoints;
mod frontend;
mod hints;
pub mod in_kernel;
mod masquerade;
mod mode;
mod packet;
#[cfg(test)]
mod tests;
mod text;

use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

pub use self::endpoints::{EndpointFate, in_words, topology_in_words};
pub use self::frontend::FrontendKind;
pub use self::masquerade::Masquerade;
pub use self::mode::TraceMode;
pub use self::packet::{Packet, Place};

use self::frontend::{Found, find};
use crate::desired::select::Standing;
use crate::desired::{Builder, Desired, Explained, NoEndpoints, Refusal, ServicePort};
use crate::family::Family;
use crate::model::{Algorithm, TrafficPolicy};
use crate::store::Store;

/// What an answer is drawn from. Nothing of it is changed, and nothing is kept.
#[derive(Clone, Copy, Debug)]
pub struct Ground<'a> {
    /// Has what is desired.
    pub builder: &'a Builder,
    /// The objects it was made from, as of its last update.
    pub store: &'a Store,
    /// The addresses on this node's interfaces.
    pub addresses: &'a [IpAddr],
    /// The mode that programs the kernel.
    pub mode: TraceMode,
}

/// What becomes of a packet, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trace {
    /// The packet.
    pub packet: Packet,
    /// The mode the answer holds for.
    pub mode: TraceMode,
    /// What becomes of it.
    pub outcome: Outcome,
    /// Why, as a word that stays the same.
    pub cause: Cause,
    /// Why, as a sentence.
    pub because: String,
    /// The service port it is for, if any.
    pub service: Option<ServiceMatch>,
    /// Every endpoint of that port, in order of address, used or not.
    pub endpoints: Vec<EndpointFate>,
    /// The source address that whoever gets the packet sees, where that does not depend on the endpoint.
    pub masquerade: Masquerade,
    /// What else is worth knowing, as sentences.
    pub hints: Vec<String>,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// One of the endpoints gets it.
    Delivered,
    /// The sender is told that nobody takes it.
    Refused,
    /// It vanishes.
    Dropped,
    /// No rule of ours is about it: it goes where routing sends it.
    NotAService,
}

/// Why a packet meets its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The service port has endpoints for it.
    EndpointsReady,
    /// All endpoints are on their way out, but answer.
    EndpointsTerminating,
    /// The service port has no usable endpoint anywhere.
    NoEndpoints,
    /// It has some, but the policy allows none of them here.
    NoLocalEndpoints,
    /// The sender is outside of the load balancer's source ranges.
    SourceRanges,
    /// It is a cluster IP, but no Service has that port there.
    NoSuchPort,
    /// It is in the range of cluster IPs, but no Service has it.
    NoSuchClusterIp,
    /// Nothing is known of the destination.
    Unknown,
    /// A Service is known, but the mode has no rule for this packet.
    NotCovered,
    /// The mode cannot carry the protocol.
    NotCarried,
}

/// The service port a packet is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServiceMatch {
    /// The Service's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The name of its port, empty for an unnamed one.
    pub port: String,
    /// What kind of address the packet was sent to.
    pub frontend: FrontendKind,
    /// The policy that decides which endpoints are used: `Cluster` or `Local`.
    pub policy: &'static str,
    /// Why that one, as a sentence.
    pub policy_because: String,
    /// Seconds a client stays with its endpoint; none without session affinity.
    pub affinity_seconds: Option<u32>,
    /// How an endpoint is chosen: `random` or `source-hash`.
    pub algorithm: &'static str,
    /// What became of topology hints, as a sentence; none where there were none to follow.
    pub topology: Option<String>,
}

/// Follows a packet.
pub fn trace(ground: &Ground<'_>, packet: &Packet) -> Trace {
    let desired = ground.builder.desired(Family::of(packet.destination));
    let tracer = Tracer {
        ground,
        desired,
        packet,
    };
    match find(&tracer) {
        Some(found) => tracer.service(&found),
        None => tracer.nobody(),
    }
}

/// The parts of an answer that are the same all along.
struct Tracer<'a> {
    ground: &'a Ground<'a>,
    desired: &'a Desired,
    packet: &'a Packet,
}

impl Tracer<'_> {
    fn answer(&self, outcome: Outcome, cause: Cause, because: impl Into<String>) -> Trace {
        Trace {
            packet: self.packet.clone(),
            mode: self.ground.mode,
            outcome,
            cause,
            because: because.into(),
            service: None,
            endpoints: Vec::new(),
            masquerade: Masquerade::None,
            hints: Vec::new(),
        }
    }

    /// The destination is one of this node's addresses, loopback included.
    fn is_local(&self) -> bool {
        let ip = self.packet.destination;
        ip.is_loopback() || self.ground.addresses.contains(&ip)
    }

    fn is_from_node(&self) -> bool {
        self.packet.place == Place::Node
    }

    /// The packet is for a service port.
    fn service(&self, found: &Found<'_>) -> Trace {
        let (policy, policy_because) = self.policy(found);
        let explained =
            self.ground
                .builder
                .explain(self.ground.store, &found.port.key, self.desired.family);
        let mut trace = match self.shut_out(found) {
            Some(trace) => trace,
            None => self.verdict(found, policy, explained.as_ref()),
        };
        let is_delivered = trace.outcome == Outcome::Delivered;
        if is_delivered {
            trace.masquerade = masquerade::of_connection(self, found, policy);
        }
        if let Some(explained) = &explained {
            let list = is_delivered.then(|| found.port.endpoints(policy));
            trace.endpoints = endpoints::fates(self, explained, list, policy, trace.masquerade);
        }
        trace.hints = hints::of_service(self, found, &trace);
        trace.service = Some(ServiceMatch {
            namespace: found.port.key.service.namespace().to_owned(),
            name: found.port.key.service.name().to_owned(),
            port: found.port.key.name.to_string(),
            frontend: found.frontend.into(),
            policy: policy_name(policy),
            policy_because,
            affinity_seconds: found.port.affinity,
            algorithm: self.algorithm(found.port),
            topology: (policy == TrafficPolicy::Cluster)
                .then(|| explained.as_ref().and_then(topology_in_words))
                .flatten(),
        });
        trace
    }

    /// The policy that holds for this packet: external traffic under policy Local may come from inside.
    fn policy(&self, found: &Found<'_>) -> (TrafficPolicy, String) {
        let stated = found.port.policy(found.frontend);
        if found.frontend.is_internal() {
            return (
                stated,
                format!("internalTrafficPolicy is {}", policy_name(stated)),
            );
        }
        let inside = match self.packet.place {
            Place::Node => "this node itself",
            _ if self.is_from_pod() => "a pod",
            _ => {
                let because = format!("externalTrafficPolicy is {}", policy_name(stated));
                return (stated, because);
            }
        };
        if stated == TrafficPolicy::Local
            && self.ground.mode.has_one_list_for_all()
            && !found.port.local.is_empty()
        {
            let because = format!(
                "externalTrafficPolicy is Local, which in {} mode holds for {inside} too",
                self.ground.mode.name()
            );
            return (stated, because);
        }
        let because = match stated {
            TrafficPolicy::Cluster => "externalTrafficPolicy is Cluster".to_owned(),
            TrafficPolicy::Local => {
                format!("externalTrafficPolicy is Local, but {inside} may use any endpoint")
            }
        };
        (TrafficPolicy::Cluster, because)
    }

    /// Source ranges keep the sender out.
    fn shut_out(&self, found: &Found<'_>) -> Option<Trace> {
        let ranges = &found.port.source_ranges;
        let checked = found.is_load_balancer()
            && !ranges.is_empty()
            && self.ground.mode.carries(found.port.protocol())
            && (found.port.any_endpoints || self.ground.mode.checks_ranges_first());
        let allowed = ranges.iter().any(|net| net.contains(&self.packet.source));
        (checked && !allowed).then(|| {
            let listed: Vec<String> = ranges.iter().map(ToString::to_string).collect();
            let because = format!(
                "{} is not in loadBalancerSourceRanges ({})",
                self.packet.source,
                listed.join(", ")
            );
            self.answer(Outcome::Dropped, Cause::SourceRanges, because)
        })
    }

    fn verdict(
        &self,
        found: &Found<'_>,
        policy: TrafficPolicy,
        explained: Option<&Explained>,
    ) -> Trace {
        let port = found.port;
        let key = &port.key;
        let refusal = port.refusal(found.frontend);
        if refusal.is_none() && !self.ground.mode.carries(port.protocol()) {
            let because = format!(
                "{} mode cannot carry {}",
                self.ground.mode.name(),
                port.protocol()
            );
            return self.answer(Outcome::Refused, Cause::NotCarried, because);
        }
        if !found.refused_only && !port.endpoints(policy).is_empty() {
            return self.delivered(port, policy, explained);
        }
        match refusal {
            Some(_) if !self.is_refusal_covered(found) => self.answer(
                Outcome::NotAService,
                Cause::NotCovered,
                format!(
                    "{key} has no endpoint for this packet, but {} mode refuses nothing that the node itself sends to external addresses: it leaves by the routes",
                    self.ground.mode.name()
                ),
            ),
            Some(Refusal::Reject) => {
                let outcome = match self.desired.node.no_endpoints {
                    NoEndpoints::Reject => Outcome::Refused,
                    NoEndpoints::Drop => Outcome::Dropped,
                };
                let because = format!("{key} has no usable endpoint anywhere");
                self.answer(outcome, Cause::NoEndpoints, because)
            }
            Some(Refusal::Drop) => {
                let because = format!("{key} has endpoints, but policy Local allows none of them on this node");
                self.answer(Outcome::Dropped, Cause::NoLocalEndpoints, because)
            }
            None => self.answer(
                Outcome::NotAService,
                Cause::NotCovered,
                format!("{key} has no endpoint for this packet"),
            ),
        }
    }

    fn delivered(
        &self,
        port: &ServicePort,
        policy: TrafficPolicy,
        explained: Option<&Explained>,
    ) -> Trace {
        let count = port.endpoints(policy).len();
        let plural = if count == 1 { "endpoint" } else { "endpoints" };
        // A list holds either ready endpoints or, for want of those, draining ones.
        let draining = explained.is_some_and(|explained| {
            let mut standings = explained.endpoints.iter().map(|e| e.standing(policy));
            standings.any(|standing| standing == Standing::Draining)
        });
        if draining {
            let because = format!(
                "{} has no ready endpoint; {count} {plural} on the way out still answer",
                port.key
            );
            self.answer(Outcome::Delivered, Cause::EndpointsTerminating, because)
        } else {
            let because = format!("{} has {count} {plural} for it", port.key);
            self.answer(Outcome::Delivered, Cause::EndpointsReady, because)
        }
    }

    /// What the node itself sends to external addresses passes some modes' refusals by, unless it comes back in by loopback.
    fn is_refusal_covered(&self, found: &Found<'_>) -> bool {
        let dropped_early = self.desired.node.no_endpoints == NoEndpoints::Drop
            && found.port.refusal(found.frontend) == Some(Refusal::Reject);
        found.frontend.is_internal()
            || self.is_local()
            || !self.is_from_node()
            || dropped_early
            || self.ground.mode.refuses_on_the_way_out()
    }

    fn algorithm(&self, port: &ServicePort) -> &'static str {
        match port.algorithm {
            Algorithm::SourceHash
                if self.ground.mode.hashes_sources() && port.affinity.is_none() =>
            {
                "source-hash"
            }
            _ => "random",
        }
    }

    /// No service port is addressed.
    fn nobody(&self) -> Trace {
        let to = self.packet.destination;
        let checked =
            self.ground.mode.checks_cluster_ips() && (self.is_from_node() || !self.is_local());
        let mut trace = if checked && self.is_cluster_ip() {
            let because = format!(
                "{to} is a cluster IP, but no Service has port {} there",
                self.packet.port_and_protocol()
            );
            self.answer(Outcome::Refused, Cause::NoSuchPort, because)
        } else if let Some(cidr) = self
            .desired
            .node
            .service_cidrs
            .iter()
            .find(|cidr| checked && cidr.contains(&to))
        {
            let because =
                format!("{to} is in the range of cluster IPs ({cidr}), but no Service has it");
            self.answer(Outcome::Dropped, Cause::NoSuchClusterIp, because)
        } else {
            let because = format!(
                "no Service is known at {}; the packet goes where routing sends it",
                self.packet.target()
            );
            self.answer(Outcome::NotAService, Cause::Unknown, because)
        };
        if trace.outcome == Outcome::NotAService {
            trace.masquerade = masquerade::of_passing(self);
        }
        trace.hints = hints::of_nobody(self);
        trace
    }

    fn is_cluster_ip(&self) -> bool {
        let ip = self.packet.destination;
        let mut frontends = self
            .desired
            .ports
            .values()
            .flat_map(|port| &*port.frontends);
        frontends.any(|f| f.is_internal() && f.address().map(|at| at.ip()) == Some(ip))
    }
}

fn policy_name(policy: TrafficPolicy) -> &'static str {
    match policy {
        TrafficPolicy::Cluster => "Cluster",
        TrafficPolicy::Local => "Local",
    }
}

/// An address with a port, as people write it.
fn at(ip: IpAddr, port: u16) -> String {
    SocketAddr::new(ip, port).to_string()
}
