//! One service port: which lists it needs and which elements make it work.

use std::net::IpAddr;

use super::endpoint_lists::{Exhausted, ListRegistry, PortLists};
use super::layout::{BY_SOURCE, MASQUERADE, NftSetId};
use crate::desired::{Endpoint, Frontend, RefusalAction, ServicePort};
use crate::dialect::nft::{Element, ElementKey, KeyBuilder};
use crate::model::{Protocol, TrafficPolicy};

impl PortLists {
    /// The lists the port needs now, changed as little as possible from what they were.
    pub(super) fn update(
        self,
        port: &ServicePort,
        registry: &mut ListRegistry,
    ) -> Result<Self, Exhausted> {
        let cluster = wanted(port, TrafficPolicy::Cluster);
        let local = wanted(port, TrafficPolicy::Local);
        registry.update(&self, port, cluster, local)
    }

    /// The elements that make the port work.
    pub(super) fn all_elements(&self, port: &ServicePort) -> Vec<(NftSetId, Element)> {
        let mut out = Vec::new();
        self.elements(port.protocol(), &mut out);
        self.external_local(port, &mut out);
        let name = port.key.to_string();
        for frontend in &port.frontends {
            self.frontend(port, *frontend, &name, &mut out);
        }
        hairpin(port, &mut out);
        out
    }

    /// For external traffic under policy Local, which list to use depends on the source.
    fn external_local(&self, port: &ServicePort, out: &mut Vec<(NftSetId, Element)>) {
        let Some(key) = self
            .id(TrafficPolicy::Cluster)
            .filter(|_| depends_on_source(port))
        else {
            return;
        };
        let choices = [
            (NftSetId::ExternalInside, TrafficPolicy::Cluster),
            (NftSetId::ExternalOutside, TrafficPolicy::Local),
        ];
        out.extend(choices.into_iter().filter_map(|(set, policy)| {
            Some((
                set,
                Element::value(number(key), number(self.pick_id(policy)?)),
            ))
        }));
    }

    fn frontend(
        &self,
        port: &ServicePort,
        frontend: Frontend,
        name: &str,
        out: &mut Vec<(NftSetId, Element)>,
    ) {
        let by_address = frontend.address().is_some();
        let key = frontend_key(port, frontend);
        let named = |element: Element| element.with_comment(name);
        if let Some(id) = self.frontend_id(port, frontend) {
            let set = if by_address {
                NftSetId::Services
            } else {
                NftSetId::NodePorts
            };
            out.push((set, named(Element::value(key.clone(), number(id)))));
        }
        if let Some(refusal) = port.refusal(frontend) {
            let set = match (refusal, by_address) {
                (RefusalAction::Reject, true) => NftSetId::RejectedServices,
                (RefusalAction::Drop, true) => NftSetId::DroppedServices,
                (RefusalAction::Reject, false) => NftSetId::RejectedNodePorts,
                (RefusalAction::Drop, false) => NftSetId::DroppedNodePorts,
            };
            out.push((set, named(Element::member(key.clone()))));
        }
        match frontend {
            Frontend::ClusterIp(at) => {
                out.push((
                    NftSetId::ClusterIps,
                    Element::member(KeyBuilder::new().ip(at.ip()).build()),
                ));
            }
            Frontend::LoadBalancer(_) if !port.source_ranges.is_empty() => {
                restrict(port, frontend, key, out);
            }
            _ => {}
        }
    }

    /// What the frontend's packets are to do; `None` if there is no endpoint for them.
    fn frontend_id(&self, port: &ServicePort, frontend: Frontend) -> Option<u32> {
        match (frontend.is_internal(), port.policy(frontend)) {
            (true, policy) => self.pick_id(policy),
            (false, TrafficPolicy::Cluster) => {
                Some(self.pick_id(TrafficPolicy::Cluster)? | MASQUERADE)
            }
            (false, TrafficPolicy::Local) => Some(self.id(TrafficPolicy::Cluster)? | BY_SOURCE),
        }
    }
}

/// The endpoints of a policy, if any frontend can lead to them.
fn wanted(port: &ServicePort, policy: TrafficPolicy) -> &[Endpoint] {
    let used = port.frontends.iter().any(|&frontend| {
        // Pods and this node use the cluster's endpoints by external addresses whatever the policy.
        port.policy(frontend) == policy
            || (policy == TrafficPolicy::Cluster && !frontend.is_internal())
    });
    if used { port.endpoints(policy) } else { &[] }
}

fn depends_on_source(port: &ServicePort) -> bool {
    port.external_policy == TrafficPolicy::Local && port.frontends.iter().any(|f| !f.is_internal())
}

/// What packets to a frontend are found by.
pub(super) fn frontend_key(port: &ServicePort, frontend: Frontend) -> ElementKey {
    let (address, number) = match frontend {
        Frontend::NodePort(number) => (None, number),
        Frontend::ClusterIp(at) | Frontend::ExternalIp(at) | Frontend::LoadBalancer(at) => {
            (Some(at.ip()), at.port())
        }
    };
    destination_key(address, port.protocol(), number)
}

/// What packets to an address and port are found by; no address means a node port.
pub(super) fn destination_key(
    address: Option<IpAddr>,
    protocol: Protocol,
    port: u16,
) -> ElementKey {
    let key = KeyBuilder::new();
    let key = match address {
        Some(ip) => key.ip(ip),
        None => key,
    };
    key.proto(protocol).port(port).build()
}

fn restrict(
    port: &ServicePort,
    frontend: Frontend,
    key: ElementKey,
    out: &mut Vec<(NftSetId, Element)>,
) {
    out.push((NftSetId::Restricted, Element::member(key)));
    let Some(at) = frontend.address() else { return };
    out.extend(port.source_ranges.iter().map(|net| {
        let service = KeyBuilder::new()
            .ip(at.ip())
            .proto(port.protocol())
            .port(at.port());
        (NftSetId::AllowedSources, Element::range(service, *net))
    }));
}

/// An endpoint that reaches itself must see this node's address as source, or its answer would never leave it.
fn hairpin(port: &ServicePort, out: &mut Vec<(NftSetId, Element)>) {
    out.extend(port.local_endpoints().map(|e| {
        let key = KeyBuilder::new()
            .ip(e.ip)
            .ip(e.ip)
            .proto(port.protocol())
            .port(e.port)
            .build();
        (NftSetId::Hairpin, Element::member(key))
    }));
}

/// A number as a key or a value.
pub(super) fn number(number: u32) -> ElementKey {
    KeyBuilder::new().number(number).build()
}
