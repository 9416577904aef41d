//! The API's objects as protobuf messages: the fields of [`wire`](super) with the numbers the API gives them.
//!
//! The numbers are part of the Kubernetes API and never change; fields that are not named here are skipped while decoding. The API server
//! writes fields without a value as empty ones, so an empty text and an absent one mean the same, unless the field is an `Option` here.
//! The messages can also be made of JSON, which the test server uses to answer in protobuf.

mod convert;
mod time;

use std::collections::BTreeMap;

use prost::Message;
use serde::Deserialize;

pub use self::time::TimeMessage;

/// What an object of the API begins with in protobuf, before the [envelope](EnvelopeMessage).
pub const MAGIC: [u8; 4] = *b"k8s\0";

/// `runtime.Unknown`: what an object is wrapped into.
#[derive(Clone, PartialEq, Message)]
pub struct EnvelopeMessage {
    #[prost(message, optional, tag = "1")]
    pub type_meta: Option<TypeMessage>,
    #[prost(bytes = "vec", tag = "2")]
    pub raw: Vec<u8>,
}

/// `runtime.TypeMeta`.
#[derive(Clone, PartialEq, Message)]
pub struct TypeMessage {
    #[prost(string, tag = "1")]
    pub api_version: String,
    #[prost(string, tag = "2")]
    pub kind: String,
}

/// `metav1.WatchEvent`: one frame of a watch.
#[derive(Clone, PartialEq, Message)]
pub struct WatchEventMessage {
    #[prost(string, tag = "1")]
    pub kind: String,
    #[prost(message, optional, tag = "2")]
    pub object: Option<RawMessage>,
}

/// `runtime.RawExtension`.
#[derive(Clone, PartialEq, Message)]
pub struct RawMessage {
    #[prost(bytes = "vec", tag = "1")]
    pub raw: Vec<u8>,
}

/// `metav1.ObjectMeta`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetadataMessage {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub namespace: String,
    #[prost(string, tag = "6")]
    pub resource_version: String,
    #[prost(message, optional, tag = "8")]
    pub creation_timestamp: Option<TimeMessage>,
    #[prost(message, optional, tag = "9")]
    pub deletion_timestamp: Option<TimeMessage>,
    #[prost(btree_map = "string, string", tag = "11")]
    pub labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    pub annotations: BTreeMap<String, String>,
}

/// `metav1.ListMeta`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListMetadataMessage {
    #[prost(string, tag = "2")]
    pub resource_version: String,
    /// `continue`.
    #[prost(string, tag = "3")]
    #[serde(rename = "continue")]
    pub next: String,
}

/// `metav1.Status`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct StatusMessage {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ListMetadataMessage>,
    #[prost(string, tag = "2")]
    pub status: String,
    #[prost(string, tag = "3")]
    pub message: String,
    #[prost(string, tag = "4")]
    pub reason: String,
    #[prost(message, optional, tag = "5")]
    pub details: Option<StatusDetailsMessage>,
    #[prost(int32, tag = "6")]
    pub code: i32,
}

/// `metav1.StatusDetails`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusDetailsMessage {
    #[prost(int32, tag = "5")]
    pub retry_after_seconds: i32,
}

/// Any object, as far as all kinds are alike.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct ObjectMessage {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<MetadataMessage>,
}

/// `v1` Service.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct ServiceMessage {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<MetadataMessage>,
    #[prost(message, optional, tag = "2")]
    pub spec: Option<ServiceSpecMessage>,
    #[prost(message, optional, tag = "3")]
    pub status: Option<ServiceStatusMessage>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpecMessage {
    #[prost(message, repeated, tag = "1")]
    pub ports: Vec<ServicePortMessage>,
    #[prost(string, tag = "3")]
    #[serde(rename = "clusterIP")]
    pub cluster_ip: String,
    /// `type`.
    #[prost(string, tag = "4")]
    #[serde(rename = "type")]
    pub kind: String,
    #[prost(string, repeated, tag = "5")]
    #[serde(rename = "externalIPs")]
    pub external_ips: Vec<String>,
    #[prost(string, tag = "7")]
    pub session_affinity: String,
    #[prost(string, repeated, tag = "9")]
    pub load_balancer_source_ranges: Vec<String>,
    #[prost(string, tag = "11")]
    pub external_traffic_policy: String,
    #[prost(int32, tag = "12")]
    pub health_check_node_port: i32,
    #[prost(message, optional, tag = "14")]
    pub session_affinity_config: Option<SessionAffinityConfigMessage>,
    #[prost(string, repeated, tag = "18")]
    #[serde(rename = "clusterIPs")]
    pub cluster_ips: Vec<String>,
    #[prost(string, repeated, tag = "19")]
    pub ip_families: Vec<String>,
    #[prost(string, tag = "22")]
    pub internal_traffic_policy: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePortMessage {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub protocol: String,
    #[prost(int32, tag = "3")]
    pub port: i32,
    #[prost(int32, tag = "5")]
    pub node_port: i32,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct SessionAffinityConfigMessage {
    #[prost(message, optional, tag = "1")]
    #[serde(rename = "clientIP")]
    pub client_ip: Option<ClientIpConfigMessage>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientIpConfigMessage {
    #[prost(int32, optional, tag = "1")]
    pub timeout_seconds: Option<i32>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceStatusMessage {
    #[prost(message, optional, tag = "1")]
    pub load_balancer: Option<LoadBalancerStatusMessage>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct LoadBalancerStatusMessage {
    #[prost(message, repeated, tag = "1")]
    pub ingress: Vec<IngressMessage>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressMessage {
    #[prost(string, tag = "1")]
    pub ip: String,
    #[prost(string, optional, tag = "3")]
    pub ip_mode: Option<String>,
}

/// `discovery.k8s.io/v1` EndpointSlice.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSliceMessage {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<MetadataMessage>,
    #[prost(message, repeated, tag = "2")]
    pub endpoints: Vec<EndpointMessage>,
    #[prost(message, repeated, tag = "3")]
    pub ports: Vec<EndpointPortMessage>,
    #[prost(string, tag = "4")]
    pub address_type: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointMessage {
    #[prost(string, repeated, tag = "1")]
    pub addresses: Vec<String>,
    #[prost(message, optional, tag = "2")]
    pub conditions: Option<EndpointConditionsMessage>,
    #[prost(message, optional, tag = "4")]
    pub target_ref: Option<ObjectReferenceMessage>,
    #[prost(string, optional, tag = "6")]
    pub node_name: Option<String>,
    #[prost(string, optional, tag = "7")]
    pub zone: Option<String>,
    #[prost(message, optional, tag = "8")]
    pub hints: Option<EndpointHintsMessage>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct EndpointConditionsMessage {
    #[prost(bool, optional, tag = "1")]
    pub ready: Option<bool>,
    #[prost(bool, optional, tag = "2")]
    pub serving: Option<bool>,
    #[prost(bool, optional, tag = "3")]
    pub terminating: Option<bool>,
}

/// `v1` ObjectReference.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct ObjectReferenceMessage {
    #[prost(string, tag = "1")]
    pub kind: String,
    #[prost(string, tag = "3")]
    pub name: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointHintsMessage {
    #[prost(message, repeated, tag = "1")]
    pub for_zones: Vec<NamedMessage>,
    #[prost(message, repeated, tag = "2")]
    pub for_nodes: Vec<NamedMessage>,
}

/// `ForZone` and `ForNode`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct NamedMessage {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct EndpointPortMessage {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(string, tag = "2")]
    pub protocol: String,
    #[prost(int32, optional, tag = "3")]
    pub port: Option<i32>,
}

/// `v1` Node.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct NodeMessage {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<MetadataMessage>,
    #[prost(message, optional, tag = "2")]
    pub spec: Option<NodeSpecMessage>,
    #[prost(message, optional, tag = "3")]
    pub status: Option<NodeStatusMessage>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct NodeSpecMessage {
    #[prost(string, tag = "1")]
    #[serde(rename = "podCIDR")]
    pub pod_cidr: String,
    #[prost(message, repeated, tag = "5")]
    pub taints: Vec<TaintMessage>,
    #[prost(string, repeated, tag = "7")]
    #[serde(rename = "podCIDRs")]
    pub pod_cidrs: Vec<String>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct TaintMessage {
    #[prost(string, tag = "1")]
    pub key: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct NodeStatusMessage {
    #[prost(message, repeated, tag = "5")]
    pub addresses: Vec<NodeAddressMessage>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct NodeAddressMessage {
    /// `type`.
    #[prost(string, tag = "1")]
    #[serde(rename = "type")]
    pub kind: String,
    #[prost(string, tag = "2")]
    pub address: String,
}

/// `networking.k8s.io/v1` ServiceCIDR.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct ServiceCidrMessage {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<MetadataMessage>,
    #[prost(message, optional, tag = "2")]
    pub spec: Option<ServiceCidrSpecMessage>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct ServiceCidrSpecMessage {
    #[prost(string, repeated, tag = "1")]
    pub cidrs: Vec<String>,
}

#[cfg(test)]
mod tests;
