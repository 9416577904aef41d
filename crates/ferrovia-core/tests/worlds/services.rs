//! The Services of a random cluster.

use serde_json::{Value, json};

use super::{Both, NODE_ADDRESSES, Random};

/// External addresses: three from outside, an address of the node, and one that some Service may have as its cluster IP.
const EXTERNAL: [Both; 5] = [
    ["203.0.113.1", "2001:db8:113::1"],
    ["203.0.113.2", "2001:db8:113::2"],
    ["203.0.113.3", "2001:db8:113::3"],
    NODE_ADDRESSES[1],
    ["10.96.0.10", "fd00:10:96::10"],
];
/// Who may use a load balancer: clients, this node, pods, one pod, the addresses of load balancers themselves, everyone.
const RANGES: [Both; 7] = [
    ["192.0.2.0/24", "2001:db8:2::/64"],
    ["192.0.2.77/32", "2001:db8:2::77/128"],
    ["198.51.100.0/24", "2001:db8:51::/64"],
    ["10.244.0.0/16", "fd00:10:244::/48"],
    ["10.244.1.10/32", "fd00:10:244:1::10/128"],
    ["203.0.113.0/24", "2001:db8:113::/64"],
    ["0.0.0.0/0", "::/0"],
];
/// One of them is in the range of node ports.
const PORTS: [u16; 4] = [53, 80, 443, 30_080];
const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

/// One port of a Service.
#[derive(Clone, Debug)]
pub(super) struct Port {
    pub(super) name: String,
    pub(super) protocol: &'static str,
    pub(super) port: u16,
    pub(super) node_port: Option<u16>,
}

/// A Service before it is an object.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    pub(super) name: String,
    pub(super) ports: Vec<Port>,
    index: usize,
    kind: &'static str,
    /// Its families in order, 0 for IPv4 and 1 for IPv6.
    families: &'static [usize],
    cluster_ips: [String; 2],
    external: Vec<Both>,
    ingress: Vec<Both>,
}

impl Drawn {
    /// The Service of this place in its cluster.
    pub(super) fn new(index: usize, random: &mut Random) -> Self {
        let kind = random.of(&["ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer"]);
        let has_node_ports = kind == "NodePort" || kind == "LoadBalancer" && random.percent(70);
        let is_balanced = kind == "LoadBalancer";
        Self {
            name: format!("s{index}"),
            ports: ports(index, has_node_ports, random),
            index,
            kind,
            families: random.of(&[&[0, 1], &[1, 0], &[0], &[1]]),
            cluster_ips: [format!("10.96.0.1{index}"), format!("fd00:10:96::1{index}")],
            external: some(&EXTERNAL, 2, random),
            // The last one is for external IPs only.
            ingress: some(&EXTERNAL[..4], if is_balanced { 2 } else { 0 }, random),
        }
    }

    /// All addresses it lists, also those of a family that it does not have.
    pub(super) fn addresses(&self) -> impl Iterator<Item = [&str; 2]> {
        let listed = self.external.iter().chain(&self.ingress).copied();
        listed.chain([self.cluster_ips.each_ref().map(String::as_str)])
    }

    /// The object, with all that does not depend on other objects.
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
                "ports": self.ports.iter().map(Port::object).collect::<Vec<_>>(),
                "externalIPs": self.external.concat(),
                "internalTrafficPolicy": random.of(&["Cluster", "Cluster", "Local"]),
                "externalTrafficPolicy": random.of(&["Cluster", "Local"]),
                "publishNotReadyAddresses": random.percent(10),
            },
        });
        if self.kind == "LoadBalancer" {
            self.balance(&mut service, random);
        }
        let spec = &mut service["spec"];
        if random.percent(20) {
            let seconds = random.of(&[600, 10_800]);
            spec["sessionAffinity"] = json!("ClientIP");
            spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": seconds}});
        }
        give_away(&mut service, random);
        service
    }

    /// What only Services of type LoadBalancer have.
    fn balance(&self, service: &mut Value, random: &mut Random) {
        let spec = &mut service["spec"];
        let has_node_ports = self.ports.iter().any(|port| port.node_port.is_some());
        spec["allocateLoadBalancerNodePorts"] = json!(has_node_ports);
        spec["healthCheckNodePort"] = json!(32_000 + self.index);
        if random.percent(50) {
            spec["loadBalancerSourceRanges"] = json!(some(&RANGES, 3, random).concat());
        }
        let mode = random.of(&["VIP", "VIP", "Proxy"]);
        let ingress = self.ingress.concat();
        let ingress = ingress.iter().map(|ip| json!({"ip": ip, "ipMode": mode}));
        service["status"] = json!({"loadBalancer": {"ingress": ingress.collect::<Vec<_>>()}});
    }
}

/// Now and then a Service is not for the proxy.
fn give_away(service: &mut Value, random: &mut Random) {
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

impl Port {
    fn object(&self) -> Value {
        let mut object = json!({"name": self.name, "protocol": self.protocol, "port": self.port});
        if let Some(node_port) = self.node_port {
            object["nodePort"] = json!(node_port);
        }
        object
    }
}

/// One to three ports, no two of which have number and protocol in common.
fn ports(service: usize, has_node_ports: bool, random: &mut Random) -> Vec<Port> {
    let mut found: Vec<Port> = Vec::new();
    for index in 0..=random.below(3) {
        let (port, protocol) = (random.of(&PORTS), random.of(&PROTOCOLS));
        if found
            .iter()
            .any(|other| (other.port, other.protocol) == (port, protocol))
        {
            continue;
        }
        let number = 30_080 + 10 * service + index;
        found.push(Port {
            name: format!("p{index}"),
            protocol,
            port,
            node_port: has_node_ports.then(|| u16::try_from(number).expect("Services are few")),
        });
    }
    // The only port of a Service may be without a name.
    if let [only] = &mut found[..]
        && random.percent(50)
    {
        only.name.clear();
    }
    found
}

/// Up to so many of a list; often none.
fn some(of: &[Both], most: usize, random: &mut Random) -> Vec<Both> {
    let count = random.below(most + 1);
    let mut found: Vec<Both> = (0..count).map(|_| random.of(of)).collect();
    found.sort_unstable();
    found.dedup();
    found
}
