//! Where a packet goes and why: the answer to "why not where I expect?", from what is desired.
//!
//! [`trace`] follows the order of the rules in the kernel: which frontend is addressed (`frontend.rs`), who may use it, which list of
//! endpoints applies and what becomes of a packet that no endpoint takes (`verdict.rs`), what source address the endpoint sees
//! (`masquerade.rs`), and the endpoints with their chances (`endpoints.rs`). Packets that match no service port are for `unmatched.rs`, with
//! hints (`hints.rs`). Modes differ only in the fields of [`TraceProfile`]. [`Trace`] (`answer.rs`) prints as text for people (`text.rs`) and
//! serialises: field names and the words in kebab case stay as they are, fields may be added.

mod answer;
mod endpoints;
mod frontend;
mod hints;
pub mod in_kernel;
mod masquerade;
mod packet;
mod profile;
#[cfg(test)]
mod tests;
mod text;
mod unmatched;
mod verdict;

use std::net::{IpAddr, SocketAddr};

pub use self::answer::{Cause, Outcome, ServiceMatch, Trace};
pub use self::endpoints::{EndpointFate, in_words, topology_in_words};
pub use self::frontend::FrontendKind;
pub use self::masquerade::Masquerade;
pub use self::packet::{Packet, Place};
pub use self::profile::*;

use self::frontend::{Found, find};
use crate::desired::{Builder, Desired};
use crate::family::Family;
use crate::model::TrafficPolicy;
use crate::store::Store;

/// The state that a packet is traced through. Only read.
#[derive(Clone, Copy, Debug)]
pub struct TraceContext<'a> {
    /// Has what is desired.
    pub builder: &'a Builder,
    /// The objects it was made from, as of its last update.
    pub store: &'a Store,
    /// The addresses on this node's interfaces.
    pub addresses: &'a [IpAddr],
    /// How the mode that programs the kernel treats packets.
    pub profile: TraceProfile,
}

/// Follows a packet.
pub fn trace(context: &TraceContext<'_>, packet: &Packet) -> Trace {
    let desired = context.builder.desired(Family::of(packet.destination));
    let tracer = Tracer {
        context,
        desired,
        packet,
    };
    match find(&tracer) {
        Some(found) => tracer.service(&found),
        None => tracer.unmatched(),
    }
}

/// The parts of an answer that are the same all along.
struct Tracer<'a> {
    context: &'a TraceContext<'a>,
    desired: &'a Desired,
    packet: &'a Packet,
}

impl Tracer<'_> {
    fn answer(&self, outcome: Outcome, cause: Cause, because: impl Into<String>) -> Trace {
        Trace {
            packet: self.packet.clone(),
            profile: self.context.profile,
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
        ip.is_loopback() || self.context.addresses.contains(&ip)
    }

    fn is_from_node(&self) -> bool {
        self.packet.place == Place::Node
    }

    /// The packet is for a service port.
    fn service(&self, found: &Found<'_>) -> Trace {
        let (policy, policy_because) = self.policy(found);
        let explained =
            self.context
                .builder
                .explain(self.context.store, &found.port.key, self.desired.family);
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
