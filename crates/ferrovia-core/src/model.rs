//! API objects after validation: parsed once, and correct by construction.
//!
//! An object that cannot be used yields a reason ([`Unusable`]); one that is used in part yields [`Warning`]s that name the dropped field.

mod address;
mod name;
mod policy;
mod scheduler;
mod service;
mod service_cidr;
mod slice;
mod warnings;

pub mod node;

use std::fmt;
use std::sync::Arc;

pub(crate) use address::fold_nested;
pub use address::{parse_cidr, parse_ip};
pub use name::valid_name;
pub(crate) use name::{NamePool, excerpt, namespace_or_default, shown_name};
pub(crate) use policy::MOST_PORTS;
pub use policy::{ExternalIpPolicy, ServiceLimits, ServicePolicy};
pub use scheduler::Scheduler;
pub use service::{CreationTime, ExternalAccess, Service, ServicePortSpec};
pub(crate) use service::{DEFAULT_AFFINITY, MAX_AFFINITY};
pub(crate) use service_cidr::service_cidrs;
pub(crate) use slice::mirror;
pub use slice::{EndpointSlice, Hints, SliceEndpoint, SliceKey, SlicePort};
pub(crate) use warnings::Warnings;

use crate::wire;

/// `namespace/name` of a Service. Cheap to clone; both halves are checked to be valid API names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey(Arc<str>);

impl ServiceKey {
    /// The key of a Service, or `None` unless both texts are valid API names (see [`valid_name`]).
    pub fn new(namespace: &str, name: &str) -> Option<Self> {
        let is_valid = valid_name(namespace) && valid_name(name);
        is_valid.then(|| Self::from_checked_names(namespace, name))
    }

    /// Joins two names that the caller has checked, or that are only used to look up a key.
    pub(crate) fn from_checked_names(namespace: &str, name: &str) -> Self {
        Self([namespace, "/", name].concat().into())
    }

    /// Reads and checks the names of a Service.
    pub(crate) fn of(metadata: &wire::Metadata) -> Result<Self, Unusable> {
        let (namespace, name) = name::checked_names(metadata)?;
        Ok(Self::from_checked_names(namespace, name))
    }

    pub fn namespace(&self) -> &str {
        self.0
            .split_once('/')
            .map_or("", |(namespace, _)| namespace)
    }

    /// The name without its namespace.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, name)| name)
    }

    /// `namespace/name`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Identity of one port of a Service: what endpoints are matched to and what a planner works on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortKey {
    pub service: ServiceKey,
    /// The port's name, empty for an unnamed one.
    pub name: Arc<str>,
    pub protocol: Protocol,
}

impl fmt::Display for PortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() {
            write!(f, "{}", self.service)
        } else {
            write!(f, "{}:{}", self.service, self.name)
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    /// Reads the API's spelling; empty means TCP.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "TCP" => Some(Self::Tcp),
            "UDP" => Some(Self::Udp),
            "SCTP" => Some(Self::Sctp),
            _ => None,
        }
    }

    /// The IP protocol number.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    /// The protocol of an IP protocol number.
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            6 => Some(Self::Tcp),
            17 => Some(Self::Udp),
            132 => Some(Self::Sctp),
            _ => None,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        })
    }
}

/// `Cluster` or `Local`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrafficPolicy {
    /// Any endpoint in the cluster.
    #[default]
    Cluster,
    /// Only endpoints on this node.
    Local,
}

/// How an endpoint is selected for a new connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// At random, in proportion to weights.
    #[default]
    Random,
    /// By a hash of the client's address, in proportion to weights; few clients move when endpoints change.
    SourceHash,
}

/// Why an object is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// The object is valid but not for this proxy (headless, ExternalName, another service proxy).
    NotOurs(&'static str),
    /// The object is invalid.
    Broken {
        /// The invalid field, as a path in the manifest.
        field: String,
        problem: String,
    },
}

/// A problem with an object, for its author. The proxy continues without the invalid part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Warning {
    /// The object, as `Kind namespace/name`.
    pub object: String,
    /// The invalid field, as a path in the manifest.
    pub field: String,
    /// The problem and its effect.
    pub problem: String,
    /// A detail for operators of the node only, such as the name of another tenant's Service. It is for the log and the admin API and
    /// must not reach the object's author.
    pub operator_detail: Option<String>,
}

impl Warning {
    /// The problem with the detail for operators.
    pub fn problem_in_full(&self) -> String {
        match &self.operator_detail {
            Some(detail) => format!("{} ({detail})", self.problem),
            None => self.problem.clone(),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem = self.problem_in_full();
        write!(f, "{}: {}: {problem}", self.object, self.field)
    }
}
