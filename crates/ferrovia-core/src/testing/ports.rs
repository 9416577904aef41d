//! Service ports and node settings as planners get them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::desired::{
    Delta, Desired, Endpoint, Frontend, LocalDetector, NoEndpoints, NodePortAddresses, NodeRules,
    PortChange, ServicePort,
};
use crate::family::Family;
use crate::model::{Algorithm, PortKey, Protocol, ServiceKey, TrafficPolicy};

/// A node whose pods are in 10.244.1.0/24 and whose node ports answer on all addresses.
pub(crate) fn node() -> NodeRules {
    NodeRules {
        local: LocalDetector::Source("10.244.1.0/24".parse().unwrap()),
        masquerade_all: false,
        masquerade_mark: 0x4000,
        no_endpoints: NoEndpoints::Reject,
        egress_except: None,
        addresses: BTreeSet::new(),
        node_ports: NodePortAddresses::Any,
        health_checks: NodePortAddresses::Any,
        service_cidrs: vec!["10.96.0.0/16".parse().unwrap()],
    }
}

/// A cluster without services.
pub(crate) fn nothing(family: Family, node: NodeRules) -> Desired {
    Desired {
        family,
        node: Arc::new(node),
        ports: BTreeMap::new(),
        health_checks: Arc::default(),
        without_local: Default::default(),
    }
}

/// An endpoint; those with even numbers are on this node.
pub(crate) fn endpoint(n: u8, weight: u16) -> Endpoint {
    let node = 1 + n % 2;
    Endpoint {
        ip: [10, 244, node, n].into(),
        port: 8080,
        weight,
        is_local: node == 1,
    }
}

/// A service port with all kinds of frontends, under policy Cluster.
pub(crate) fn port(n: u8, endpoints: &[Endpoint]) -> ServicePort {
    let at = |text: String| -> SocketAddr { text.parse().unwrap() };
    let mut cluster = endpoints.to_vec();
    cluster.sort_unstable();
    ServicePort {
        key: PortKey {
            service: ServiceKey::from_checked_names("demo", &format!("s{n}")),
            name: "http".into(),
            protocol: Protocol::Tcp,
        },
        frontends: Box::new([
            Frontend::ClusterIp(at(format!("10.96.0.{n}:80"))),
            Frontend::LoadBalancer(at(format!("203.0.113.{n}:80"))),
            Frontend::NodePort(30000 + u16::from(n)),
        ]),
        answering: None,
        any_endpoints: !cluster.is_empty(),
        cluster: cluster.into(),
        local: Arc::default(),
        internal_policy: TrafficPolicy::Cluster,
        external_policy: TrafficPolicy::Cluster,
        affinity: None,
        algorithm: Algorithm::Random,
        scheduler: None,
        source_ranges: Box::new([]),
    }
}

/// Replaces the desired state and returns the delta.
pub(crate) fn change(
    desired: &mut Desired,
    changes: Vec<(PortKey, Option<ServicePort>)>,
    node: Option<NodeRules>,
) -> Delta {
    let ports = changes.into_iter().map(|(key, new)| {
        let new = new.map(Arc::new);
        let old = match &new {
            Some(port) => desired.ports.insert(key.clone(), Arc::clone(port)),
            None => desired.ports.remove(&key),
        };
        PortChange { key, old, new }
    });
    let delta = Delta {
        node: node.is_some(),
        ports: ports.collect(),
        checks: Vec::new(),
    };
    if let Some(node) = node {
        desired.node = Arc::new(node);
    }
    delta
}
