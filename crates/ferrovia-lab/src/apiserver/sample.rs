//! Objects with the size and fields of a real cluster, including managed fields.
//!
//! The number of an object determines its name, addresses and ports.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

/// The namespace of all samples.
pub const NAMESPACE: &str = "shop";

/// The name of the service with this number.
pub fn service_name(number: u32) -> String {
    format!("web-{number:05}")
}

/// The cluster IP of the service with this number.
pub fn cluster_ip(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a60_0000 + 10 + number)
}

/// The address of an endpoint of the service with this number.
pub fn endpoint_ip(number: u32, endpoint: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a80_0000 + number * 64 + 1 + endpoint)
}

/// A Service with a cluster IP and two ports.
pub fn service(number: u32) -> Value {
    let name = service_name(number);
    let ip = cluster_ip(number);
    json!({
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {
                "app.kubernetes.io/name": name,
                "app.kubernetes.io/instance": format!("{name}-production"),
                "app.kubernetes.io/managed-by": "Helm",
                "helm.sh/chart": "web-1.14.2",
            },
            "annotations": {
                "meta.helm.sh/release-name": name,
                "meta.helm.sh/release-namespace": NAMESPACE,
            },
            "managedFields": [managed("helm", "Update", &json!({
                "f:metadata": {
                    "f:annotations": {
                        ".": {},
                        "f:meta.helm.sh/release-name": {},
                        "f:meta.helm.sh/release-namespace": {},
                    },
                    "f:labels": {
                        ".": {},
                        "f:app.kubernetes.io/instance": {},
                        "f:app.kubernetes.io/managed-by": {},
                        "f:app.kubernetes.io/name": {},
                        "f:helm.sh/chart": {},
                    },
                },
                "f:spec": {
                    "f:internalTrafficPolicy": {},
                    "f:ports": {
                        ".": {},
                        "k:{\"port\":80,\"protocol\":\"TCP\"}": port_fields(),
                        "k:{\"port\":9090,\"protocol\":\"TCP\"}": port_fields(),
                    },
                    "f:selector": {},
                    "f:sessionAffinity": {},
                    "f:type": {},
                },
            }))],
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": ip,
            "clusterIPs": [ip],
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster",
            "sessionAffinity": "None",
            "selector": {"app.kubernetes.io/name": name},
            "ports": [
                {"name": "http", "protocol": "TCP", "port": 80, "targetPort": "http"},
                {"name": "metrics", "protocol": "TCP", "port": 9090, "targetPort": 9090},
            ],
        },
        "status": {"loadBalancer": {}},
    })
}

/// An EndpointSlice of the service with this number; at most 63 endpoints have addresses of their
/// own.
pub fn slice(number: u32, endpoints: u32) -> Value {
    let service = service_name(number);
    let endpoints: Vec<_> = (0..endpoints)
        .map(|endpoint| one_endpoint(&service, number, endpoint))
        .collect();
    json!({
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": {
            "name": format!("{service}-x7k2p"),
            "generateName": format!("{service}-"),
            "namespace": NAMESPACE,
            "generation": 3,
            "labels": {
                "app.kubernetes.io/name": service,
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                "kubernetes.io/service-name": service,
            },
            "annotations": {
                "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-02T03:04:05Z",
            },
            "ownerReferences": [{
                "apiVersion": "v1",
                "kind": "Service",
                "name": service,
                "uid": format!("8c1f2f6e-1111-4222-8333-{number:012x}"),
                "controller": true,
                "blockOwnerDeletion": true,
            }],
            "managedFields": [managed("kube-controller-manager", "Update", &json!({
                "f:addressType": {},
                "f:endpoints": {},
                "f:metadata": {
                    "f:annotations": {
                        ".": {},
                        "f:endpoints.kubernetes.io/last-change-trigger-time": {},
                    },
                    "f:generateName": {},
                    "f:labels": {
                        ".": {},
                        "f:endpointslice.kubernetes.io/managed-by": {},
                        "f:kubernetes.io/service-name": {},
                    },
                    "f:ownerReferences": {".": {}, "k:{\"uid\":\"8c1f2f6e\"}": {}},
                },
                "f:ports": {},
            }))],
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [
            {"name": "http", "protocol": "TCP", "port": 8080},
            {"name": "metrics", "protocol": "TCP", "port": 9090},
        ],
    })
}

/// A Node with these internal addresses.
pub fn node(name: &str, ips: &[IpAddr]) -> Value {
    let addresses: Vec<_> = ips
        .iter()
        .map(|ip| json!({"type": "InternalIP", "address": ip}))
        .chain([json!({"type": "Hostname", "address": name})])
        .collect();
    json!({
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/region": "lab",
                "topology.kubernetes.io/zone": "lab-a",
            },
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
            "managedFields": [managed("kubelet", "Update", &json!({
                "f:metadata": {"f:labels": {".": {}, "f:kubernetes.io/hostname": {}}},
                "f:status": {"f:addresses": {}, "f:conditions": {}, "f:nodeInfo": {}},
            }))],
        },
        "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]},
        "status": {
            "addresses": addresses,
            "capacity": {"cpu": "8", "memory": "32614528Ki", "pods": "110"},
            "allocatable": {"cpu": "7910m", "memory": "31487104Ki", "pods": "110"},
            "conditions": [{
                "type": "Ready",
                "status": "True",
                "reason": "KubeletReady",
                "message": "kubelet is posting ready status",
                "lastHeartbeatTime": "2026-01-02T03:04:05Z",
                "lastTransitionTime": "2026-01-02T03:04:05Z",
            }],
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "kubeletVersion": "v1.36.4",
                "kubeProxyVersion": "",
            },
        },
    })
}

pub fn service_cidr(name: &str, cidrs: &[&str]) -> Value {
    json!({
        "kind": "ServiceCIDR",
        "apiVersion": "networking.k8s.io/v1",
        "metadata": {"name": name, "finalizers": ["networking.k8s.io/service-cidr-finalizer"]},
        "spec": {"cidrs": cidrs},
        "status": {"conditions": [{
            "type": "Ready",
            "status": "True",
            "reason": "",
            "message": "Kubernetes Service CIDR is ready",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }]},
    })
}

fn one_endpoint(service: &str, number: u32, endpoint: u32) -> Value {
    json!({
        "addresses": [endpoint_ip(number, endpoint)],
        "conditions": {"ready": true, "serving": true, "terminating": false},
        "nodeName": format!("node-{}", (number + endpoint) % 50),
        "zone": format!("lab-{}", ["a", "b", "c"][(endpoint % 3) as usize]),
        "targetRef": {
            "kind": "Pod",
            "namespace": NAMESPACE,
            "name": format!("{service}-6d4cf56db6-{endpoint:05}"),
            "uid": format!("1d2c3b4a-{endpoint:04x}-4555-8666-{number:012x}"),
        },
    })
}

fn managed(manager: &str, operation: &str, fields: &Value) -> Value {
    json!({
        "manager": manager,
        "operation": operation,
        "apiVersion": "v1",
        "time": "2026-01-02T03:04:05Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    })
}

fn port_fields() -> Value {
    json!({".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_as_big_as_real_objects() {
        for number in [0, 43_999] {
            let (service, slice) = (service(number).to_string(), slice(number, 2).to_string());
            assert!((1300..1700).contains(&service.len()), "{}", service.len());
            assert!((1300..1800).contains(&slice.len()), "{}", slice.len());
        }
    }
}
