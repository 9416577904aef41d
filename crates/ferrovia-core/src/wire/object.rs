//! An object of any kind, and the kinds there are.

use super::{EndpointSlice, Endpoints, Metadata, Node, Service, ServiceCidr};

/// Any object the proxy cares about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Object {
    Service(Service),
    EndpointSlice(EndpointSlice),
    /// A legacy Endpoints object.
    Endpoints(Endpoints),
    Node(Node),
    ServiceCidr(ServiceCidr),
}

impl Object {
    pub fn kind(&self) -> Kind {
        match self {
            Self::Service(_) => Kind::Service,
            Self::EndpointSlice(_) => Kind::EndpointSlice,
            Self::Endpoints(_) => Kind::Endpoints,
            Self::Node(_) => Kind::Node,
            Self::ServiceCidr(_) => Kind::ServiceCidr,
        }
    }

    pub fn metadata(&self) -> &Metadata {
        match self {
            Self::Service(o) => &o.metadata,
            Self::EndpointSlice(o) => &o.metadata,
            Self::Endpoints(o) => &o.metadata,
            Self::Node(o) => &o.metadata,
            Self::ServiceCidr(o) => &o.metadata,
        }
    }
}

/// The kinds of [`Object`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Service,
    EndpointSlice,
    /// A legacy Endpoints object.
    Endpoints,
    Node,
    ServiceCidr,
}

impl Kind {
    pub const ALL: [Self; 5] = [
        Self::Service,
        Self::EndpointSlice,
        Self::Endpoints,
        Self::Node,
        Self::ServiceCidr,
    ];

    /// The kind's name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::Endpoints => "Endpoints",
            Self::Node => "Node",
            Self::ServiceCidr => "ServiceCIDR",
        }
    }
}
