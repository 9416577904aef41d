//! The kinds of objects that are served: names, paths and differences.

use serde_json::{Value, json};

/// A kind of objects that the server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `v1` Node.
    Node,
    /// `v1` Service.
    Service,
    /// `discovery.k8s.io/v1` EndpointSlice.
    EndpointSlice,
    /// `networking.k8s.io/v1` ServiceCIDR.
    ServiceCidr,
}

impl Kind {
    pub const ALL: [Self; 4] = [
        Self::Node,
        Self::Service,
        Self::EndpointSlice,
        Self::ServiceCidr,
    ];

    /// The `kind` field of objects.
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::ServiceCidr => "ServiceCIDR",
        }
    }

    /// The resource in paths.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Node => "nodes",
            Self::Service => "services",
            Self::EndpointSlice => "endpointslices",
            Self::ServiceCidr => "servicecidrs",
        }
    }

    /// The `apiVersion` field of objects.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::Node | Self::Service => "v1",
            Self::EndpointSlice => "discovery.k8s.io/v1",
            Self::ServiceCidr => "networking.k8s.io/v1",
        }
    }

    /// The API group; empty for the core one.
    pub fn group(self) -> &'static str {
        self.api_version()
            .split_once('/')
            .map_or("", |(group, _)| group)
    }

    /// The path for lists and watches of all objects of this kind.
    pub fn path(self) -> String {
        format!("{}/{}", self.root(), self.resource())
    }

    /// Whether its objects are namespaced.
    pub fn namespaced(self) -> bool {
        matches!(self, Self::Service | Self::EndpointSlice)
    }

    /// The path of its group and version.
    pub(super) fn root(self) -> String {
        match self.group() {
            "" => format!("/api/{}", self.api_version()),
            _ => format!("/apis/{}", self.api_version()),
        }
    }

    /// The kind of an object, by its `kind` and `apiVersion`.
    pub(super) fn of(object: &Value) -> Option<Self> {
        let said = object.get("kind")?.as_str()?;
        Self::ALL.into_iter().find(|kind| kind.name() == said)
    }

    /// The fields, besides name and namespace, that field selectors support, and their paths.
    pub(super) fn selectable(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Service => &[
                ("spec.clusterIP", "/spec/clusterIP"),
                ("spec.type", "/spec/type"),
            ],
            Self::Node => &[("spec.unschedulable", "/spec/unschedulable")],
            Self::EndpointSlice | Self::ServiceCidr => &[],
        }
    }

    /// The fields of an empty object of this kind. Real servers encode a bookmark from such an
    /// object, so it has these fields besides its metadata, empty or null.
    pub(super) fn zero(self) -> Value {
        match self {
            Self::Service => json!({"spec": {}, "status": {"loadBalancer": {}}}),
            Self::EndpointSlice => json!({"addressType": "", "endpoints": null, "ports": null}),
            Self::ServiceCidr => json!({"spec": {}, "status": {}}),
            Self::Node => json!({
                "spec": {},
                "status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}},
            }),
        }
    }
}
