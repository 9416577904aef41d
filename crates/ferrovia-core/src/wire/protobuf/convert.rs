//! From messages to the structs that the rest of the program reads. Texts are moved, not copied.

use super::{
    EndpointConditionsMessage, EndpointHintsMessage, EndpointMessage, EndpointPortMessage,
    EndpointSliceMessage, IngressMessage, MetadataMessage, NamedMessage, NodeAddressMessage,
    NodeMessage, NodeSpecMessage, ObjectReferenceMessage, ServiceCidrMessage, ServiceMessage,
    ServicePortMessage, ServiceSpecMessage, ServiceStatusMessage, SessionAffinityConfigMessage,
    TaintMessage, TimeMessage,
};
use crate::pod_name_hash::PodNameHash;
use crate::wire::{
    ClientIpConfig, Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice,
    HintTarget, Ingress, LoadBalancerStatus, Metadata, Node, NodeAddress, NodeSpec, NodeStatus,
    Service, ServiceCidr, ServiceCidrSpec, ServicePort, ServiceSpec, ServiceStatus,
    SessionAffinityConfig, Taint,
};

/// A message that may not be there; then it is as good as an empty one.
fn or_default<M, T: From<M> + Default>(message: Option<M>) -> T {
    message.map(T::from).unwrap_or_default()
}

fn each<M, T: From<M>>(messages: Vec<M>) -> Vec<T> {
    messages.into_iter().map(T::from).collect()
}

impl From<MetadataMessage> for Metadata {
    fn from(message: MetadataMessage) -> Self {
        let text = |time: Option<TimeMessage>| time.and_then(TimeMessage::to_text);
        Self {
            name: message.name,
            namespace: message.namespace,
            labels: message.labels,
            annotations: message.annotations,
            creation_timestamp: text(message.creation_timestamp),
            deletion_timestamp: text(message.deletion_timestamp),
            resource_version: Some(message.resource_version).filter(|version| !version.is_empty()),
        }
    }
}

impl From<ServiceMessage> for Service {
    fn from(message: ServiceMessage) -> Self {
        Self {
            metadata: or_default(message.metadata),
            spec: or_default(message.spec),
            status: or_default(message.status),
        }
    }
}

impl From<ServiceSpecMessage> for ServiceSpec {
    fn from(message: ServiceSpecMessage) -> Self {
        Self {
            kind: message.kind,
            cluster_ip: message.cluster_ip,
            cluster_ips: message.cluster_ips,
            ip_families: message.ip_families,
            ports: each(message.ports),
            external_ips: message.external_ips,
            load_balancer_source_ranges: message.load_balancer_source_ranges,
            external_traffic_policy: message.external_traffic_policy,
            internal_traffic_policy: message.internal_traffic_policy,
            session_affinity: message.session_affinity,
            session_affinity_config: message
                .session_affinity_config
                .map(SessionAffinityConfig::from),
            health_check_node_port: message.health_check_node_port.into(),
        }
    }
}

impl From<ServicePortMessage> for ServicePort {
    fn from(message: ServicePortMessage) -> Self {
        Self {
            name: message.name,
            protocol: message.protocol,
            port: message.port.into(),
            node_port: message.node_port.into(),
        }
    }
}

impl From<SessionAffinityConfigMessage> for SessionAffinityConfig {
    fn from(message: SessionAffinityConfigMessage) -> Self {
        Self {
            client_ip: message.client_ip.map(|client_ip| ClientIpConfig {
                timeout_seconds: client_ip.timeout_seconds.map(i64::from),
            }),
        }
    }
}

impl From<ServiceStatusMessage> for ServiceStatus {
    fn from(message: ServiceStatusMessage) -> Self {
        let ingress = message.load_balancer.unwrap_or_default().ingress;
        Self {
            load_balancer: LoadBalancerStatus {
                ingress: each(ingress),
            },
        }
    }
}

impl From<IngressMessage> for Ingress {
    fn from(message: IngressMessage) -> Self {
        Self {
            ip: message.ip,
            ip_mode: message.ip_mode,
        }
    }
}

impl From<EndpointSliceMessage> for EndpointSlice {
    fn from(message: EndpointSliceMessage) -> Self {
        Self {
            metadata: or_default(message.metadata),
            address_type: message.address_type,
            endpoints: each(message.endpoints),
            ports: each(message.ports),
        }
    }
}

impl From<EndpointMessage> for Endpoint {
    fn from(message: EndpointMessage) -> Self {
        Self {
            addresses: message.addresses,
            conditions: or_default(message.conditions),
            node_name: message.node_name,
            zone: message.zone,
            hints: or_default(message.hints),
            pod: message.target_ref.as_ref().and_then(pod),
        }
    }
}

fn pod(target: &ObjectReferenceMessage) -> Option<PodNameHash> {
    let is_pod = target.kind == "Pod" && !target.name.is_empty();
    is_pod.then(|| PodNameHash::of(&target.name))
}

impl From<EndpointConditionsMessage> for EndpointConditions {
    fn from(message: EndpointConditionsMessage) -> Self {
        Self {
            ready: message.ready,
            serving: message.serving,
            terminating: message.terminating,
        }
    }
}

impl From<EndpointHintsMessage> for EndpointHints {
    fn from(message: EndpointHintsMessage) -> Self {
        Self {
            for_zones: each(message.for_zones),
            for_nodes: each(message.for_nodes),
        }
    }
}

impl From<NamedMessage> for HintTarget {
    fn from(message: NamedMessage) -> Self {
        Self { name: message.name }
    }
}

impl From<EndpointPortMessage> for EndpointPort {
    fn from(message: EndpointPortMessage) -> Self {
        Self {
            name: message.name,
            protocol: message.protocol,
            port: message.port.map(i64::from),
        }
    }
}

impl From<NodeMessage> for Node {
    fn from(message: NodeMessage) -> Self {
        let addresses = message.status.unwrap_or_default().addresses;
        Self {
            metadata: or_default(message.metadata),
            spec: or_default(message.spec),
            status: NodeStatus {
                addresses: each(addresses),
            },
        }
    }
}

impl From<NodeSpecMessage> for NodeSpec {
    fn from(message: NodeSpecMessage) -> Self {
        Self {
            pod_cidrs: message.pod_cidrs,
            pod_cidr: message.pod_cidr,
            taints: each(message.taints),
        }
    }
}

impl From<TaintMessage> for Taint {
    fn from(message: TaintMessage) -> Self {
        Self { key: message.key }
    }
}

impl From<NodeAddressMessage> for NodeAddress {
    fn from(message: NodeAddressMessage) -> Self {
        Self {
            kind: message.kind,
            address: message.address,
        }
    }
}

impl From<ServiceCidrMessage> for ServiceCidr {
    fn from(message: ServiceCidrMessage) -> Self {
        Self {
            metadata: or_default(message.metadata),
            spec: ServiceCidrSpec {
                cidrs: message.spec.unwrap_or_default().cidrs,
            },
        }
    }
}
