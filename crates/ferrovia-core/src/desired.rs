//! The desired state of this node, in terms that all modes share.
//!
//! [`Desired`] holds every service port of one address family with its frontends, its two endpoint lists and the options that shape
//! traffic. Which endpoints may be used is decided in `select.rs` and nowhere else; a planner only turns lists into kernel objects.

mod build;
mod claim_conflict;
mod claims;
mod explain;
mod health;
mod node;
mod port;
mod select;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;

pub use build::{Builder, Update};
pub use explain::{Explained, ExplainedEndpoint};
pub use health::{HealthCheck, HealthChecks, WithoutLocal};
pub use node::{LocalSetting, NodePortSetting, NodeSettings};
pub use select::{EndpointSelection, Topology};

use crate::family::Family;
use crate::model::{Algorithm, PortKey, Protocol, Scheduler, ServiceKey, TrafficPolicy};

/// The desired state of one family on this node.
#[derive(Clone, Debug)]
pub struct Desired {
    pub family: Family,
    /// The settings that all services share.
    pub node: Arc<NodeRules>,
    pub ports: BTreeMap<PortKey, Arc<ServicePort>>,
    /// The answers to load balancers' health checks.
    pub health_checks: Arc<HealthChecks>,
    /// How many ports lack the local endpoints that their traffic policy requires.
    pub without_local: WithoutLocal,
}

impl Desired {
    /// The same node with no services.
    #[must_use]
    pub fn without_services(&self) -> Self {
        Self {
            family: self.family,
            node: Arc::clone(&self.node),
            ports: BTreeMap::new(),
            health_checks: Arc::default(),
            without_local: WithoutLocal::default(),
        }
    }
}

/// What changed between two states of [`Desired`].
#[derive(Clone, Debug, Default)]
pub struct Delta {
    /// The node's own rules changed.
    pub node: bool,
    /// The service ports that changed, in key order.
    pub ports: Vec<PortChange>,
    /// The services whose health check got another port, or came or went.
    pub checks: Vec<ServiceKey>,
}

impl Delta {
    pub fn is_empty(&self) -> bool {
        !self.node && self.ports.is_empty() && self.checks.is_empty()
    }
}

/// One service port before and after; absent on one side if it appeared or went.
#[derive(Clone, Debug)]
pub struct PortChange {
    pub key: PortKey,
    pub old: Option<Arc<ServicePort>>,
    pub new: Option<Arc<ServicePort>>,
}

/// What holds for all services of a family on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRules {
    /// How traffic from this node's pods is detected.
    pub local: LocalDetector,
    /// Masquerade all traffic to cluster IPs.
    pub masquerade_all: bool,
    /// The packet mark that asks for masquerading: one bit.
    pub masquerade_mark: u32,
    /// How packets to a Service without endpoints are handled.
    pub no_endpoints: NoEndpoints,
    /// Masquerade what pods send to addresses outside of these ranges; none leaves pods' addresses alone.
    pub egress_except: Option<Vec<IpNet>>,
    /// The addresses of this node, but for loopback and IPv6 link-local ones.
    pub addresses: BTreeSet<IpAddr>,
    /// The local addresses node ports answer on.
    pub node_ports: NodePortAddresses,
    /// The local addresses health checks of services answer on: the same and loopback, if that is in the ranges too.
    pub health_checks: NodePortAddresses,
    /// Where cluster IPs come from; addresses inside that no Service has are dropped. Nested ranges are folded into the larger.
    pub service_cidrs: Vec<IpNet>,
}

impl NodeRules {
    /// Node ports answer at this address of the node.
    pub(crate) fn answers_node_ports(&self, ip: IpAddr) -> bool {
        match &self.node_ports {
            NodePortAddresses::Any => self.addresses.contains(&ip),
            NodePortAddresses::Only(only) => only.contains(&ip),
        }
    }

    /// The node's addresses where node ports answer.
    pub(crate) fn node_port_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let addresses = match &self.node_ports {
            NodePortAddresses::Any => &self.addresses,
            NodePortAddresses::Only(only) => only,
        };
        addresses.iter().copied()
    }
}

/// How packets to a Service without endpoints are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoEndpoints {
    /// They are refused at once.
    #[default]
    Reject,
    /// They are dropped, so that clients try again until they give up.
    Drop,
}

/// How packets from this node's pods are detected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalDetector {
    Off,
    /// By its source address.
    Source(IpNet),
    /// By the interface it arrives on.
    Interface(String),
    /// By the beginning of that interface's name.
    InterfacePrefix(String),
}

/// The addresses node ports answer on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodePortAddresses {
    /// Every local address but loopback.
    Any,
    /// These and no others; may be empty.
    Only(BTreeSet<IpAddr>),
}

/// One port of a Service on this node, for one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    pub key: PortKey,
    /// The addresses and ports clients use, sorted; without those that a Service with a stronger or older claim has.
    pub frontends: Box<[Frontend]>,
    /// Endpoints for traffic with policy Cluster, sorted by address and port, none with weight 0.
    pub cluster: Arc<[Endpoint]>,
    /// Endpoints for traffic with policy Local, sorted by address and port, none with weight 0.
    pub local: Arc<[Endpoint]>,
    /// Of a UDP port, every endpoint that can answer, regardless of policies, hints and weights (0 included), sorted by address and
    /// port: flows to these are kept. `None` for other protocols.
    pub answering: Option<Arc<[Endpoint]>>,
    /// There is a usable endpoint somewhere, though perhaps not for every policy.
    pub any_endpoints: bool,
    /// Policy for traffic to the cluster IP.
    pub internal_policy: TrafficPolicy,
    /// Policy for traffic to external addresses and node ports.
    pub external_policy: TrafficPolicy,
    /// Seconds a client sticks to its endpoint; none without session affinity.
    pub affinity: Option<u32>,
    /// How an endpoint is chosen.
    pub algorithm: Algorithm,
    /// The ipvs mode's scheduler for this Service alone.
    pub scheduler: Option<Scheduler>,
    /// The sources that may use the load balancer's addresses; empty allows all. No range contains another. Where one of the Service's ranges
    /// covers this node, the load balancer's own addresses are listed too, for packets the node sends to itself.
    pub source_ranges: Box<[IpNet]>,
}

/// An address and port that clients use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Frontend {
    ClusterIp(SocketAddr),
    ExternalIp(SocketAddr),
    /// An address of the load balancer.
    LoadBalancer(SocketAddr),
    /// A port on this node's addresses.
    NodePort(u16),
}

impl Frontend {
    /// The address, unless it is a node port.
    pub fn address(self) -> Option<SocketAddr> {
        match self {
            Self::ClusterIp(a) | Self::ExternalIp(a) | Self::LoadBalancer(a) => Some(a),
            Self::NodePort(_) => None,
        }
    }

    /// Traffic to it is internal (a cluster IP) rather than external.
    pub fn is_internal(self) -> bool {
        matches!(self, Self::ClusterIp(_))
    }
}

/// One endpoint of a service port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    pub ip: IpAddr,
    /// The port it listens on.
    pub port: u16,
    /// Its share of new connections relative to the others', 1 to 1000.
    pub weight: u16,
    /// It runs on this node.
    pub is_local: bool,
}

/// How packets are refused when a traffic policy has no endpoints for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalAction {
    /// Answered with ICMP port unreachable, or dropped if [`NodeRules::no_endpoints`] says so: there is no endpoint anywhere.
    Reject,
    /// Dropped: there are endpoints, but the policy allows none of them here.
    Drop,
}

impl ServicePort {
    pub fn protocol(&self) -> Protocol {
        self.key.protocol
    }

    /// The policy that holds for traffic to a frontend.
    pub fn policy(&self, frontend: Frontend) -> TrafficPolicy {
        if frontend.is_internal() {
            self.internal_policy
        } else {
            self.external_policy
        }
    }

    /// The endpoints a policy allows.
    pub fn endpoints(&self, policy: TrafficPolicy) -> &Arc<[Endpoint]> {
        match policy {
            TrafficPolicy::Cluster => &self.cluster,
            TrafficPolicy::Local => &self.local,
        }
    }

    /// What becomes of packets to a frontend that no endpoint can take; `None` if one can.
    pub fn refusal(&self, frontend: Frontend) -> Option<RefusalAction> {
        if !self.any_endpoints {
            Some(RefusalAction::Reject)
        } else if self.endpoints(self.policy(frontend)).is_empty() {
            Some(RefusalAction::Drop)
        } else {
            None
        }
    }

    /// Endpoints on this node that traffic may reach: those that need hairpin masquerading.
    pub fn local_endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        let cluster = self.cluster.iter().filter(|e| e.is_local);
        let others = self
            .local
            .iter()
            .filter(|e| self.cluster.binary_search(e).is_err());
        cluster.chain(others)
    }
}
