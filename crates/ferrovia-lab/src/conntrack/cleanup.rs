//! Service ports, and the conntrack clean-up that a change of them requires.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ferrovia_core::desired::{
    Delta, Desired, Endpoint, Frontend, LocalDetector, NoEndpoints, NodePortAddresses, NodeRules,
    PortChange, ServicePort,
};
use ferrovia_core::family::Family;
use ferrovia_core::model::{Algorithm, PortKey, Protocol, ServiceKey, TrafficPolicy};
use ferrovia_core::plan::conntrack::{Cleanup, PendingCleanup};

/// Parses an address and port.
pub fn at(text: &str) -> SocketAddr {
    text.parse()
        .unwrap_or_else(|_| panic!("invalid address {text:?}"))
}

/// A UDP port with these frontends and endpoints.
pub fn port(name: &str, frontends: &[Frontend], endpoints: &[SocketAddr]) -> ServicePort {
    let endpoint = |address: &SocketAddr| Endpoint {
        ip: address.ip(),
        port: address.port(),
        weight: 1,
        is_local: false,
    };
    let mut endpoints: Vec<_> = endpoints.iter().map(endpoint).collect();
    endpoints.sort_unstable();
    let endpoints: Arc<[Endpoint]> = endpoints.into();
    ServicePort {
        key: PortKey {
            service: ServiceKey::new("test", name).expect("a valid name"),
            name: "".into(),
            protocol: Protocol::Udp,
        },
        frontends: frontends.into(),
        any_endpoints: !endpoints.is_empty(),
        answering: Some(Arc::clone(&endpoints)),
        cluster: endpoints,
        local: Arc::new([]),
        internal_policy: TrafficPolicy::Cluster,
        external_policy: TrafficPolicy::Cluster,
        affinity: None,
        algorithm: Algorithm::Random,
        scheduler: None,
        source_ranges: Box::new([]),
    }
}

/// The clean-up after ports changed from `old` to `new` on a node with these addresses.
pub fn cleanup(
    family: Family,
    old: Vec<ServicePort>,
    new: Vec<ServicePort>,
    local_addresses: &[IpAddr],
) -> Cleanup {
    let mut changes = BTreeMap::new();
    let change = |key: &PortKey| PortChange {
        key: key.clone(),
        old: None,
        new: None,
    };
    for port in old {
        let key = port.key.clone();
        let change = changes.entry(key.clone()).or_insert_with(|| change(&key));
        change.old = Some(Arc::new(port));
    }
    for port in new {
        let key = port.key.clone();
        let change = changes.entry(key.clone()).or_insert_with(|| change(&key));
        change.new = Some(Arc::new(port));
    }
    let mut owed = PendingCleanup::default();
    owed.record(&Delta {
        node: false,
        ports: changes.into_values().collect(),
        checks: Vec::new(),
    });
    owed.take_cleanup(&desired(family), local_addresses)
        .expect("the change makes flows stale")
}

fn desired(family: Family) -> Desired {
    let node = NodeRules {
        local: LocalDetector::Off,
        masquerade_all: false,
        masquerade_mark: 0x4000,
        no_endpoints: NoEndpoints::Reject,
        egress_except: None,
        addresses: BTreeSet::new(),
        node_ports: NodePortAddresses::Any,
        health_checks: NodePortAddresses::Any,
        service_cidrs: Vec::new(),
    };
    Desired {
        family,
        node: Arc::new(node),
        ports: BTreeMap::new(),
        health_checks: Arc::default(),
        without_local: Default::default(),
    }
}
