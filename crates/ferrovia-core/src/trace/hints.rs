//! Hints: near misses, and what rules cannot show.

use std::collections::BTreeSet;

use super::frontend::{Found, FrontendKind, node_ports_answer};
use super::{Cause, Outcome, Trace, Tracer};
use crate::desired::{Frontend, ServicePort};
use crate::model::Algorithm;

/// The most near misses that are listed.
const MOST: usize = 5;

/// About a packet that no service port takes.
pub(super) fn of_unmatched(tracer: &Tracer<'_>) -> Vec<String> {
    let packet = tracer.packet;
    let ports = || tracer.desired.ports.values();
    let mut near = BTreeSet::new();
    for port in ports() {
        near.extend(
            port.frontends
                .iter()
                .filter_map(|f| near_miss(tracer, port, *f)),
        );
        let mut endpoints = port.cluster.iter().chain(&*port.local);
        if endpoints.any(|e| e.ip == packet.destination) {
            near.insert(format!(
                "{} is an endpoint of {}: packets go to it directly, past all Services",
                packet.destination, port.key
            ));
        }
    }
    let left = near.len().saturating_sub(MOST);
    let mut hints: Vec<String> = near.into_iter().take(MOST).collect();
    if left > 0 {
        hints.push(format!("and {left} more like these"));
    }
    hints
}

/// A frontend that differs in one respect.
fn near_miss(tracer: &Tracer<'_>, port: &ServicePort, frontend: Frontend) -> Option<String> {
    let packet = tracer.packet;
    let kind = FrontendKind::from(frontend).in_words();
    match frontend.address() {
        Some(at) if at.ip() == packet.destination => Some(format!(
            "{} has this {kind} with port {}/{}",
            port.key,
            at.port(),
            port.protocol()
        )),
        Some(_) => None,
        None if frontend != Frontend::NodePort(packet.port) => None,
        None if port.protocol() != packet.protocol => Some(format!(
            "{} has node port {} for {}, not for {}",
            port.key,
            packet.port,
            port.protocol(),
            packet.protocol
        )),
        None if !tracer.is_local() => Some(format!(
            "{} has node port {}, but {} is not an address of this node",
            port.key, packet.port, packet.destination
        )),
        None if !node_ports_answer(tracer) => Some(format!(
            "{} has node port {}, but node ports do not answer on {} (nodePortAddresses)",
            port.key, packet.port, packet.destination
        )),
        None => None,
    }
}

/// About a packet for a service port.
pub(super) fn of_service(tracer: &Tracer<'_>, found: &Found<'_>, trace: &Trace) -> Vec<String> {
    let mut hints = Vec::new();
    let port = found.port;
    if trace.outcome == Outcome::Delivered
        && let Some(seconds) = port.affinity
    {
        let others = if tracer.context.profile.affinity_hashes_new_clients {
            ", another one the endpoint that its address hashes to"
        } else {
            ""
        };
        hints.push(format!(
            "a client that was here in the last {seconds} s gets the endpoint it had{others}"
        ));
    }
    if port.algorithm == Algorithm::SourceHash {
        hints.push(if !tracer.context.profile.supports_source_hash {
            format!(
                "{} mode does not know source-hash: the choice is random",
                tracer.context.profile.mode
            )
        } else if port.affinity.is_some() {
            "session affinity goes before source-hash".to_owned()
        } else {
            "the same client always gets the same endpoint; the chances are over all clients"
                .to_owned()
        });
    }
    if trace.endpoints.is_empty() && trace.cause == Cause::NoEndpoints {
        hints.push(without_endpoints(tracer, port));
    }
    if found.refused_only {
        hints.push(format!(
            "with endpoints, node port {} would not answer on {} (nodePortAddresses)",
            tracer.packet.port, tracer.packet.destination
        ));
    }
    hints
}

/// The reason is in the slices: there are none, or they are of another port.
fn without_endpoints(tracer: &Tracer<'_>, port: &ServicePort) -> String {
    let family = tracer.desired.family;
    let slices = tracer.context.store.slices(&port.key.service);
    let named: BTreeSet<String> = slices
        .filter(|slice| slice.family == family && !slice.endpoints.is_empty())
        .flat_map(|slice| &*slice.ports)
        .map(|port| format!("{:?}/{}", &*port.name, port.protocol))
        .collect();
    if named.is_empty() {
        format!(
            "no EndpointSlice of {} has an {family} endpoint: does its selector match any pod?",
            port.key.service
        )
    } else {
        let named: Vec<String> = named.into_iter().take(MOST).collect();
        format!(
            "EndpointSlices of {} have ports {}, and none is {:?}/{}",
            port.key.service,
            named.join(", "),
            &*port.key.name,
            port.protocol()
        )
    }
}
