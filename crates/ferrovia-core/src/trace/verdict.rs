//! What becomes of a packet that is for a service port: who may use it, which endpoints, and what if there are none.

use ipnet::IpNet;

use super::frontend::Found;
use super::{Cause, Outcome, Place, Trace, Tracer, policy_name};
use crate::desired::{EndpointSelection, Explained, NoEndpoints, RefusalAction, ServicePort};
use crate::model::{Algorithm, Protocol, TrafficPolicy};

impl Tracer<'_> {
    /// The policy that holds for this packet: external traffic under policy Local may come from inside.
    pub(super) fn policy(&self, found: &Found<'_>) -> (TrafficPolicy, String) {
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
        let has_local = !found.port.local.is_empty();
        let applies = has_local && self.context.profile.local_policy_applies_to_insiders;
        if stated == TrafficPolicy::Local && applies {
            let because = format!(
                "externalTrafficPolicy is Local, which in {} mode holds for {inside} too",
                self.context.profile.mode
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
    pub(super) fn shut_out(&self, found: &Found<'_>) -> Option<Trace> {
        let ranges = &found.port.source_ranges;
        let is_restricted = found.is_load_balancer() && !ranges.is_empty();
        let checked = is_restricted
            && self.carries(found)
            && (found.port.any_endpoints
                || self.context.profile.checks_source_ranges_without_endpoints);
        (checked && !self.is_in(ranges)).then(|| {
            let listed: Vec<String> = ranges.iter().map(ToString::to_string).collect();
            let because = format!(
                "{} is not in loadBalancerSourceRanges ({})",
                self.packet.source,
                listed.join(", ")
            );
            self.answer(self.turned_away(), Cause::SourceRanges, because)
        })
    }

    /// The sender is in one of a load balancer's ranges.
    fn is_in(&self, ranges: &[IpNet]) -> bool {
        if self.is_from_node() && self.context.profile.node_sends_from_service_address {
            let to = IpNet::from(self.packet.destination);
            let mut own = self.desired.node.addresses.iter();
            ranges.contains(&to) || own.any(|ip| ranges.iter().any(|net| net.contains(ip)))
        } else {
            ranges.iter().any(|net| net.contains(&self.packet.source))
        }
    }

    /// The outcome for a packet to a service port that its sender may not use.
    fn turned_away(&self) -> Outcome {
        let is_stream = self.packet.protocol == Protocol::Tcp;
        if is_stream && self.context.profile.checks_clients_after_accepting {
            Outcome::Refused
        } else {
            Outcome::Dropped
        }
    }

    pub(super) fn verdict(
        &self,
        found: &Found<'_>,
        policy: TrafficPolicy,
        explained: Option<&Explained>,
    ) -> Trace {
        let port = found.port;
        let key = &port.key;
        let refusal = port.refusal(found.frontend);
        if port.any_endpoints && !self.carries(found) {
            let because = format!(
                "in {} mode a proxy takes what comes to {}, and it cannot carry {}",
                self.context.profile.mode,
                self.packet.destination,
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
                    self.context.profile.mode
                ),
            ),
            Some(RefusalAction::Reject) => {
                let outcome = match self.desired.node.no_endpoints {
                    NoEndpoints::Drop if !self.only_listens() => Outcome::Dropped,
                    NoEndpoints::Drop | NoEndpoints::Reject => Outcome::Refused,
                };
                let because = format!("{key} has no usable endpoint anywhere");
                self.answer(outcome, Cause::NoEndpoints, because)
            }
            Some(RefusalAction::Drop) => {
                // A proxy listens there for clients inside the cluster.
                let is_gated = self.context.profile.checks_clients_after_accepting
                    && !found.frontend.is_internal()
                    && !found.refused_only
                    && self.carries(found);
                let outcome = if self.only_listens() && !is_gated {
                    Outcome::Refused
                } else {
                    self.turned_away()
                };
                let because = format!("{key} has endpoints, but policy Local allows none of them on this node");
                self.answer(outcome, Cause::NoLocalEndpoints, because)
            }
            None => self.answer(
                Outcome::NotAService,
                Cause::NotCovered,
                format!("{key} has no endpoint for this packet"),
            ),
        }
    }

    /// The kernel itself refuses packets to ports on which no proxy listens.
    fn only_listens(&self) -> bool {
        self.context.profile.only_listens(self.packet.destination)
    }

    pub(super) fn carries(&self, found: &Found<'_>) -> bool {
        let to = self.packet.destination;
        self.context.profile.supports(found.port.protocol(), to)
    }

    fn delivered(
        &self,
        port: &ServicePort,
        policy: TrafficPolicy,
        explained: Option<&Explained>,
    ) -> Trace {
        let count = port.endpoints(policy).len();
        let plural = if count == 1 { "endpoint" } else { "endpoints" };
        // A list has either ready endpoints or, if there are none, draining ones.
        let draining = explained.is_some_and(|explained| {
            let mut standings = explained.endpoints.iter().map(|e| e.selection(policy));
            standings.any(|standing| standing == EndpointSelection::Draining)
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

    /// In some modes packets of the node itself to external addresses are not rejected, unless they come back in through loopback.
    fn is_refusal_covered(&self, found: &Found<'_>) -> bool {
        let dropped_early = self.desired.node.no_endpoints == NoEndpoints::Drop
            && found.port.refusal(found.frontend) == Some(RefusalAction::Reject);
        found.frontend.is_internal()
            || self.is_local()
            || !self.is_from_node()
            || dropped_early
            || self.context.profile.rejects_node_to_external
    }

    pub(super) fn algorithm(&self, port: &ServicePort) -> &'static str {
        let profile = &self.context.profile;
        let is_hashed = match port.affinity {
            Some(_) => profile.affinity_hashes_new_clients,
            None => port.algorithm == Algorithm::SourceHash && profile.supports_source_hash,
        };
        if is_hashed { "source-hash" } else { "random" }
    }
}
