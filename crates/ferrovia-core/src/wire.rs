//! The fields we read of the API's objects, as they come over the wire or out of a file.
//!
//! These are our own slim structs: what is not named here is skipped while parsing and never kept. Values are as the author wrote them,
//! so nothing here can be trusted; [`model`](crate::model) turns them into objects that are right by construction.

mod object;
pub mod protobuf;

use std::collections::BTreeMap;

use serde::Deserialize;

pub use self::object::{Kind, Object};
use crate::pod_name_hash::PodNameHash;

/// `metadata` of any object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    #[serde(deserialize_with = "null_default")]
    pub name: String,
    /// Namespace; empty for cluster-scoped objects, and for manifests that leave it out (then `default` is meant).
    #[serde(deserialize_with = "null_default")]
    pub namespace: String,
    #[serde(deserialize_with = "null_default")]
    pub labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_default")]
    pub annotations: BTreeMap<String, String>,
    /// RFC 3339, in UTC.
    pub creation_timestamp: Option<String>,
    /// Set while the object is being deleted.
    pub deletion_timestamp: Option<String>,
    /// Changes with every write; opaque.
    pub resource_version: Option<String>,
}

/// A `v1` Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Service {
    #[serde(deserialize_with = "null_default")]
    pub metadata: Metadata,
    #[serde(deserialize_with = "null_default")]
    pub spec: ServiceSpec,
    /// The state reported by the load balancer's controller.
    #[serde(deserialize_with = "null_default")]
    pub status: ServiceStatus,
}

/// `spec` of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`; empty means `ClusterIP`.
    #[serde(rename = "type", deserialize_with = "null_default")]
    pub kind: String,
    /// The primary cluster IP, or `None` for a headless Service.
    #[serde(rename = "clusterIP", deserialize_with = "null_default")]
    pub cluster_ip: String,
    /// All cluster IPs, in the order of `ip_families`.
    #[serde(rename = "clusterIPs", deserialize_with = "null_default")]
    pub cluster_ips: Vec<String>,
    /// `IPv4` and `IPv6`, in order of preference.
    #[serde(deserialize_with = "null_default")]
    pub ip_families: Vec<String>,
    #[serde(deserialize_with = "null_default")]
    pub ports: Vec<ServicePort>,
    /// Addresses outside the cluster that this Service answers on.
    #[serde(rename = "externalIPs", deserialize_with = "null_default")]
    pub external_ips: Vec<String>,
    /// Who may reach the load balancer's addresses.
    #[serde(deserialize_with = "null_default")]
    pub load_balancer_source_ranges: Vec<String>,
    /// `Cluster` or `Local`.
    #[serde(deserialize_with = "null_default")]
    pub external_traffic_policy: String,
    /// `Cluster` or `Local`.
    #[serde(deserialize_with = "null_default")]
    pub internal_traffic_policy: String,
    /// `None` or `ClientIP`.
    #[serde(deserialize_with = "null_default")]
    pub session_affinity: String,
    /// The time-out of `ClientIP` affinity.
    pub session_affinity_config: Option<SessionAffinityConfig>,
    /// Port of the health check for `externalTrafficPolicy: Local`.
    #[serde(deserialize_with = "null_default")]
    pub health_check_node_port: i64,
}

/// One entry of a Service's `ports`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    /// Port name; empty when the Service has only one.
    #[serde(deserialize_with = "null_default")]
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`; empty means `TCP`.
    #[serde(deserialize_with = "null_default")]
    pub protocol: String,
    /// The port clients use.
    #[serde(deserialize_with = "null_default")]
    pub port: i64,
    /// The port on every node, 0 for none.
    #[serde(deserialize_with = "null_default")]
    pub node_port: i64,
}

/// `sessionAffinityConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionAffinityConfig {
    /// The only kind there is.
    #[serde(rename = "clientIP")]
    pub client_ip: Option<ClientIpConfig>,
}

/// `sessionAffinityConfig.clientIP`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientIpConfig {
    /// Seconds a client sticks to its endpoint after its last new connection.
    pub timeout_seconds: Option<i64>,
}

/// `status` of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceStatus {
    /// The load balancer's addresses.
    #[serde(deserialize_with = "null_default")]
    pub load_balancer: LoadBalancerStatus,
}

/// `status.loadBalancer`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerStatus {
    /// One entry an ingress point.
    #[serde(deserialize_with = "null_default")]
    pub ingress: Vec<Ingress>,
}

/// One ingress point of a load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ingress {
    /// Its address; empty when it has only a host name.
    #[serde(deserialize_with = "null_default")]
    pub ip: String,
    /// `VIP` (packets arrive with this destination) or `Proxy`; absent means `VIP`.
    pub ip_mode: Option<String>,
}

/// A `discovery.k8s.io/v1` EndpointSlice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSlice {
    #[serde(deserialize_with = "null_default")]
    pub metadata: Metadata,
    /// `IPv4`, `IPv6` or `FQDN`.
    #[serde(deserialize_with = "null_default")]
    pub address_type: String,
    #[serde(deserialize_with = "null_default")]
    pub endpoints: Vec<Endpoint>,
    /// The ports every one of them listens on.
    #[serde(deserialize_with = "null_default")]
    pub ports: Vec<EndpointPort>,
}

/// One endpoint of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoint {
    /// Only the first address counts.
    #[serde(deserialize_with = "null_default")]
    pub addresses: Vec<String>,
    #[serde(deserialize_with = "null_default")]
    pub conditions: EndpointConditions,
    /// The node it runs on.
    pub node_name: Option<String>,
    pub zone: Option<String>,
    /// Who should use it.
    #[serde(deserialize_with = "null_default")]
    pub hints: EndpointHints,
    /// The pod it is, if it is one.
    #[serde(rename = "targetRef", deserialize_with = "PodNameHash::of_target")]
    pub pod: Option<PodNameHash>,
}

/// `conditions` of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointConditions {
    pub ready: Option<bool>,
    pub serving: Option<bool>,
    /// Absent means not terminating.
    pub terminating: Option<bool>,
}

/// `hints` of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointHints {
    /// Zones that should use it.
    #[serde(deserialize_with = "null_default")]
    pub for_zones: Vec<HintTarget>,
    /// Nodes that should use it.
    #[serde(deserialize_with = "null_default")]
    pub for_nodes: Vec<HintTarget>,
}

/// A thing that has only a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct HintTarget {
    #[serde(deserialize_with = "null_default")]
    pub name: String,
}

/// One entry of a slice's `ports`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointPort {
    /// Name of the Service port it serves. The API server turns an absent name into an empty one.
    pub name: Option<String>,
    /// `TCP`, `UDP` or `SCTP`; empty means `TCP`.
    #[serde(deserialize_with = "null_default")]
    pub protocol: String,
    /// Absent means "all ports", which no proxy can serve.
    pub port: Option<i64>,
}

/// A `v1` Endpoints object, the older form of [`EndpointSlice`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoints {
    /// Object metadata; the name is the Service's.
    #[serde(deserialize_with = "null_default")]
    pub metadata: Metadata,
    /// Groups of addresses that share ports.
    #[serde(deserialize_with = "null_default")]
    pub subsets: Vec<EndpointSubset>,
}

/// One group of addresses in an [`Endpoints`] object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSubset {
    #[serde(deserialize_with = "null_default")]
    pub addresses: Vec<EndpointAddress>,
    /// Addresses that are not ready.
    #[serde(deserialize_with = "null_default")]
    pub not_ready_addresses: Vec<EndpointAddress>,
    #[serde(deserialize_with = "null_default")]
    pub ports: Vec<EndpointPort>,
}

/// One address in an [`Endpoints`] object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointAddress {
    #[serde(deserialize_with = "null_default")]
    pub ip: String,
    /// The node it is on.
    pub node_name: Option<String>,
    /// The pod it is, if it is one.
    #[serde(rename = "targetRef", deserialize_with = "PodNameHash::of_target")]
    pub pod: Option<PodNameHash>,
}

/// A `v1` Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Node {
    #[serde(deserialize_with = "null_default")]
    pub metadata: Metadata,
    #[serde(deserialize_with = "null_default")]
    pub spec: NodeSpec,
    /// What the kubelet reported.
    #[serde(deserialize_with = "null_default")]
    pub status: NodeStatus,
}

/// `spec` of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    /// The pod ranges given to this node.
    #[serde(rename = "podCIDRs", deserialize_with = "null_default")]
    pub pod_cidrs: Vec<String>,
    /// The first of them, as older objects have it.
    #[serde(rename = "podCIDR", deserialize_with = "null_default")]
    pub pod_cidr: String,
    /// Taints, of which we look at the keys.
    #[serde(deserialize_with = "null_default")]
    pub taints: Vec<Taint>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Taint {
    #[serde(deserialize_with = "null_default")]
    pub key: String,
}

/// `status` of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    #[serde(deserialize_with = "null_default")]
    pub addresses: Vec<NodeAddress>,
}

/// One address of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct NodeAddress {
    /// `InternalIP`, `ExternalIP`, `Hostname`, …
    #[serde(rename = "type", deserialize_with = "null_default")]
    pub kind: String,
    #[serde(deserialize_with = "null_default")]
    pub address: String,
}

/// A `networking.k8s.io/v1` ServiceCIDR.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceCidr {
    #[serde(deserialize_with = "null_default")]
    pub metadata: Metadata,
    #[serde(deserialize_with = "null_default")]
    pub spec: ServiceCidrSpec,
}

/// `spec` of a ServiceCIDR.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceCidrSpec {
    /// The ranges cluster IPs are taken from.
    #[serde(deserialize_with = "null_default")]
    pub cidrs: Vec<String>,
}

/// `null` means the same as "not there", as it does for the API server.
fn null_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Templates write `null` for empty values.
    #[test]
    fn null_equals_an_absent_field() {
        let nothing = json!({"metadata": null, "spec": null, "status": null});
        let service: Service = serde_json::from_value(nothing).unwrap();
        assert_eq!(service, Service::default());
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": null, "labels": null, "creationTimestamp": null},
            "spec": {"type": null, "clusterIP": null, "ports": [{"name": null, "port": 80, "nodePort": null}]},
        }))
        .unwrap();
        assert_eq!(service.metadata.namespace, "");
        assert_eq!(service.spec.ports[0].port, 80);
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n1"},
            "spec": {"podCIDR": null, "taints": [{"key": null}]},
            "status": {"addresses": [{"type": null, "address": null}]},
        }))
        .unwrap();
        assert_eq!(node.status.addresses, [NodeAddress::default()]);
    }
}
