//! The Services of a random cluster.

use serde_json::{Value, json};

use super::{DualStack, NODE_ADDRESSES};
use crate::random::Random;

/// External addresses: three outside of the cluster, one of the node, and one that may be a cluster IP of another Service.
const EXTERNAL: [DualStack; 5] = [
    ["203.0.113.1", "2001:db8:113::1"],
    ["203.0.113.2", "2001:db8:113::2"],
    ["203.0.113.3", "2001:db8:113::3"],
    NODE_ADDRESSES[1],
    ["10.96.0.10", "fd00:10:96::10"],
];
/// `loadBalancerSourceRanges`: clients, a client, the nodes, pods, a pod, load balancer addresses, everything.
const RANGES: [DualStack; 7] = [
    ["192.0.2.0/24", "2001:db8:2::/64"],
    ["192.0.2.77/32", "2001:db8:2::77/128"],
    ["198.51.100.0/24", "2001:db8:51::/64"],
    ["10.244.0.0/16", "fd00:10:244::/48"],
    ["10.244.1.10/32", "fd00:10:244:1::10/128"],
    ["203.0.113.0/24", "2001:db8:113::/64"],
    ["0.0.0.0/0", "::/0"],
];
/// Service ports; one is in the range of node ports.
const PORTS: [u16; 4] = [53, 80, 443, 30_080];
const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

#[derive(Clone, Debug)]
pub(super) struct RandomPort {
    pub(super) name: String,
    pub(super) protocol: &'static str,
    pub(super) port: u16,
    pub(super) node_port: Option<u16>,
}

/// A Service, from which its object is built.
#[derive(Clone, Debug)]
pub(super) struct RandomService {
    pub(super) name: String,
    pub(super) ports: Vec<RandomPort>,
    index: usize,
    kind: &'static str,
    /// `ipFamilies`: 0 for IPv4, 1 for IPv6.
    families: &'static [usize],
    cluster_ips: [String; 2],
    external: Vec<DualStack>,
    ingress: Vec<DualStack>,
}

impl RandomService {
    /// The Service of this index in its cluster.
    pub(super) fn new(index: usize, random: &mut Random) -> Self {
        let kind = random.choose(&["ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer"]);
        let has_node_ports = kind == "NodePort" || kind == "LoadBalancer" && random.percent(70);
        let is_balanced = kind == "LoadBalancer";
        Self {
            name: format!("s{index}"),
            ports: ports(index, has_node_ports, random),
            index,
            kind,
            families: random.choose(&[&[0, 1], &[1, 0], &[0], &[1]]),
            cluster_ips: [format!("10.96.0.1{index}"), format!("fd00:10:96::1{index}")],
            external: subset(&EXTERNAL, 2, random),
            // The last address is for external IPs only.
            ingress: subset(&EXTERNAL[..4], if is_balanced { 2 } else { 0 }, random),
        }
    }

    /// All of its addresses, including those of a family that it does not have.
    pub(super) fn addresses(&self) -> impl Iterator<Item = [&str; 2]> {
        let listed = self.external.iter().chain(&self.ingress).copied();
        listed.chain([self.cluster_ips.each_ref().map(String::as_str)])
    }

    pub(super) fn object(&self, random: &mut Random) -> Value {
        let of_families = |of: [&str; 2]| -> Vec<String> {
            self.families
                .iter()
                .map(|family| of[*family].to_owned())
                .collect()
        };
        let cluster_ips = of_families(self.cluster_ips.each_ref().map(String::as_str));
        let mut service = json!({
            "kind": "Service",
            "metadata": {
                "name": self.name,
                "labels": {},
                "creationTimestamp": format!("2026-01-01T00:00:0{}Z", self.index),
            },
            "spec": {
                "type": self.kind,
                "clusterIP": cluster_ips[0],
                "clusterIPs": cluster_ips,
                "ipFamilies": of_families(["IPv4", "IPv6"]),
                "ports": self.ports.iter().map(RandomPort::object).collect::<Vec<_>>(),
                "externalIPs": self.external.concat(),
                "internalTrafficPolicy": random.choose(&["Cluster", "Cluster", "Local"]),
                "externalTrafficPolicy": random.choose(&["Cluster", "Local"]),
                "publishNotReadyAddresses": random.percent(10),
            },
        });
        if self.kind == "LoadBalancer" {
            self.add_load_balancer(&mut service, random);
        }
        let spec = &mut service["spec"];
        if random.percent(20) {
            let seconds = random.choose(&[600, 10_800]);
            spec["sessionAffinity"] = json!("ClientIP");
            spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": seconds}});
        }
        sometimes_exclude(&mut service, random);
        service
    }

    /// Adds the fields of type LoadBalancer.
    fn add_load_balancer(&self, service: &mut Value, random: &mut Random) {
        let spec = &mut service["spec"];
        let has_node_ports = self.ports.iter().any(|port| port.node_port.is_some());
        spec["allocateLoadBalancerNodePorts"] = json!(has_node_ports);
        spec["healthCheckNodePort"] = json!(32_000 + self.index);
        if random.percent(50) {
            spec["loadBalancerSourceRanges"] = json!(subset(&RANGES, 3, random).concat());
        }
        let mode = random.choose(&["VIP", "VIP", "Proxy"]);
        let ingress = self.ingress.concat();
        let ingress = ingress.iter().map(|ip| json!({"ip": ip, "ipMode": mode}));
        service["status"] = json!({"loadBalancer": {"ingress": ingress.collect::<Vec<_>>()}});
    }
}

/// Makes one of ten Services one that the proxy ignores.
fn sometimes_exclude(service: &mut Value, random: &mut Random) {
    match random.below(30) {
        0 => {
            let label = "service.kubernetes.io/service-proxy-name";
            service["metadata"]["labels"][label] = json!("another");
        }
        1 => {
            service["spec"]["clusterIP"] = json!("None");
            service["spec"]["clusterIPs"] = json!(["None"]);
        }
        2 => {
            service["spec"]["type"] = json!("ExternalName");
            service["spec"]["externalName"] = json!("example.com");
        }
        _ => {}
    }
}

impl RandomPort {
    fn object(&self) -> Value {
        let mut object = json!({"name": self.name, "protocol": self.protocol, "port": self.port});
        if let Some(node_port) = self.node_port {
            object["nodePort"] = json!(node_port);
        }
        object
    }
}

/// One to three ports with distinct numbers or protocols.
fn ports(service: usize, has_node_ports: bool, random: &mut Random) -> Vec<RandomPort> {
    let mut found: Vec<RandomPort> = Vec::new();
    for index in 0..=random.below(3) {
        let (port, protocol) = (random.choose(&PORTS), random.choose(&PROTOCOLS));
        if found
            .iter()
            .any(|other| (other.port, other.protocol) == (port, protocol))
        {
            continue;
        }
        let number = 30_080 + 10 * service + index;
        found.push(RandomPort {
            name: format!("p{index}"),
            protocol,
            port,
            node_port: has_node_ports.then(|| u16::try_from(number).expect("the number is small")),
        });
    }
    // The name is optional for a single port.
    if let [only] = &mut found[..]
        && random.percent(50)
    {
        only.name.clear();
    }
    found
}

/// A random subset of up to `most` values.
fn subset(of: &[DualStack], most: usize, random: &mut Random) -> Vec<DualStack> {
    let count = random.below(most + 1);
    let mut subset: Vec<DualStack> = (0..count).map(|_| random.choose(of)).collect();
    subset.sort_unstable();
    subset.dedup();
    subset
}
