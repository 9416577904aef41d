//! Why a service port's lists are as they are, for people. Made on demand by [`Builder::explain`](super::Builder::explain); nothing of it is
//! kept.

use std::sync::Arc;

use super::{Endpoint, EndpointSelection, Topology};
use crate::model::TrafficPolicy;

/// Every endpoint of a service port, used or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// What became of topology hints.
    pub topology: Topology,
    /// How many endpoints are ready, wherever they are.
    pub ready: usize,
    /// How many of these have no hint at all.
    pub unhinted: usize,
    /// All of them, in order of address and port.
    pub endpoints: Vec<ExplainedEndpoint>,
}

/// One endpoint and what it is to the two lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedEndpoint {
    /// What would be used. Its weight may be 0.
    pub endpoint: Endpoint,
    /// The node it runs on, if that is known.
    pub node: Option<Arc<str>>,
    /// The zones it is meant for.
    pub zones: Vec<Arc<str>>,
    /// What it is to the list for policy Cluster.
    pub cluster: EndpointSelection,
    /// What it is to the list for policy Local.
    pub local: EndpointSelection,
}

impl ExplainedEndpoint {
    /// What it is to the list for a policy.
    pub fn selection(&self, policy: TrafficPolicy) -> EndpointSelection {
        match policy {
            TrafficPolicy::Cluster => self.cluster,
            TrafficPolicy::Local => self.local,
        }
    }
}
