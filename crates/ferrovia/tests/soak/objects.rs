//! Services and their endpoints as the API server has them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ferrovia_lab::Pod;
use ferrovia_lab::layout::NODE_ADDRESSES;
use serde_json::{Value, json};

use crate::model::Pods;

pub(crate) const NAMESPACE: &str = "soak";
pub(crate) const NODE: &str = "node-1";
const PORT: u16 = 80;
const UDP_PORT: u16 = 53;
const TARGET_PORT: u16 = 8080;
/// The node port of the first Service.
const NODE_PORTS: u16 = 30_100;

/// A Service whose name and addresses follow from a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Service(pub(crate) u16);

impl Service {
    pub(crate) fn name(self) -> String {
        format!("s{}", self.0)
    }

    pub(crate) fn slice_names(self) -> [String; 2] {
        ["ipv4", "ipv6"].map(|family| format!("{}-{family}", self.name()))
    }

    fn v4(self) -> Ipv4Addr {
        let [high, low] = self.0.to_be_bytes();
        Ipv4Addr::new(10, 96, high, low)
    }

    fn v6(self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, 0x10, 0x96, 0, 0, 0, 0, self.0)
    }

    /// Where it is reached over TCP.
    pub(crate) fn tcp(self, is_v6: bool) -> SocketAddr {
        let ip = if is_v6 {
            IpAddr::V6(self.v6())
        } else {
            IpAddr::V4(self.v4())
        };
        SocketAddr::new(ip, PORT)
    }

    /// Where it is reached over UDP.
    pub(crate) fn udp(self) -> SocketAddr {
        SocketAddr::new(self.v4().into(), UDP_PORT)
    }

    /// Where it is reached from outside.
    pub(crate) fn node_port(self) -> SocketAddr {
        SocketAddr::new(NODE_ADDRESSES[0], NODE_PORTS + self.0)
    }

    pub(crate) fn object(self) -> Value {
        let ips = json!([self.v4(), self.v6()]);
        json!({
            "kind": "Service",
            "apiVersion": "v1",
            "metadata": {"name": self.name(), "namespace": NAMESPACE},
            "spec": {
                "type": "NodePort",
                "clusterIP": self.v4(),
                "clusterIPs": ips,
                "ipFamilies": ["IPv4", "IPv6"],
                "ports": [
                    {"name": "tcp", "protocol": "TCP", "port": PORT, "nodePort": NODE_PORTS + self.0},
                    {"name": "udp", "protocol": "UDP", "port": UDP_PORT},
                ],
            },
        })
    }

    pub(crate) fn slices(self, pods: Pods) -> [Value; 2] {
        let slice = |name: &str, kind: &str, address: fn(Pod) -> IpAddr| {
            let endpoint = |pod: Pod| {
                let node = if Pod::LOCAL.contains(&pod) {
                    NODE
                } else {
                    "node-2"
                };
                json!({"addresses": [address(pod)], "nodeName": node, "conditions": {"ready": true}})
            };
            let endpoints: Vec<_> = pods.iter().map(endpoint).collect();
            json!({
                "kind": "EndpointSlice",
                "apiVersion": "discovery.k8s.io/v1",
                "metadata": {
                    "name": name,
                    "namespace": NAMESPACE,
                    "labels": {"kubernetes.io/service-name": self.name()},
                },
                "addressType": kind,
                "ports": [
                    {"name": "tcp", "protocol": "TCP", "port": TARGET_PORT},
                    {"name": "udp", "protocol": "UDP", "port": UDP_PORT},
                ],
                "endpoints": endpoints,
            })
        };
        let [v4, v6] = self.slice_names();
        [
            slice(&v4, "IPv4", |pod| pod.v4().into()),
            slice(&v6, "IPv6", |pod| pod.v6().into()),
        ]
    }
}
