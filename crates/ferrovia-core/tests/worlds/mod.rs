//! Random but valid clusters, for questions that nobody thought of: Services of every kind, their slices, and a node's options.
//!
//! Everything follows from a number, so a cluster comes back. Names and addresses are those of the laboratory, in which a cluster can be
//! played with real packets; on paper they are as good as any. Few addresses and ports are used, so that Services meet each other.

mod random;
mod slices;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

pub(crate) use random::Random;

/// Whatever there is one of in each family.
type Both = [&'static str; 2];

/// The node that is asked about, and its addresses; the first is its usual one.
pub(crate) const NODE: &str = "node-1";
pub(crate) const NODE_ADDRESSES: [Both; 2] = [
    ["198.51.100.10", "2001:db8:51::10"],
    ["198.51.100.11", "2001:db8:51::11"],
];
const LOOPBACK: Both = ["127.0.0.1", "::1"];
/// A cluster IP that nobody has.
const UNALLOCATED: Both = ["10.96.0.99", "fd00:10:96::99"];
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
const PORTS: [u16; 4] = [53, 80, 443, 30_090];
const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

/// A cluster as its objects say, and the flags of the proxy on its node.
#[derive(Clone, Debug)]
pub(crate) struct World {
    /// Flags without their dashes.
    pub(crate) options: BTreeMap<String, String>,
    /// Services, EndpointSlices, a Node and perhaps the range of cluster IPs.
    pub(crate) objects: Vec<Value>,
    /// What clients may call: everything that is served, and what is close to it.
    pub(crate) targets: Vec<Target>,
}

/// Something to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    /// Where.
    pub(crate) to: SocketAddr,
    /// As objects write it.
    pub(crate) protocol: &'static str,
}

/// One port of a Service on its way to becoming an object.
#[derive(Clone, Debug)]
struct Port {
    name: String,
    protocol: &'static str,
    port: u16,
    node_port: Option<u16>,
}

impl World {
    /// The cluster of this number.
    pub(crate) fn new(number: u64) -> Self {
        let mut random = Random::new(number);
        let mut world = Self {
            options: options(&mut random),
            objects: vec![node(&mut random)],
            targets: Vec::new(),
        };
        if random.percent(50) {
            world.objects.push(json!({
                "kind": "ServiceCIDR", "metadata": {"name": "all"}, "spec": {"cidrs": ["10.96.0.0/16", "fd00:10:96::/64"]},
            }));
        }
        for index in 0..=random.below(5) {
            world.add_service(index, &mut random);
        }
        world.call(&UNALLOCATED, 80, "TCP");
        world.targets.sort_unstable();
        world.targets.dedup();
        world
    }

    fn add_service(&mut self, index: usize, random: &mut Random) {
        let kind = random.of(&["ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer"]);
        let without_node_ports =
            kind == "ClusterIP" || kind == "LoadBalancer" && random.percent(30);
        let ports = ports(index, without_node_ports, random);
        let name = format!("s{index}");
        let cluster_ips = [format!("10.96.0.1{index}"), format!("fd00:10:96::1{index}")];
        let order = random.of(&[&[0, 1][..], &[1, 0], &[0], &[1]]);
        let external = some(&EXTERNAL, 2, random);
        let ingress = if kind == "LoadBalancer" {
            some(&EXTERNAL[..4], 2, random)
        } else {
            Vec::new()
        };

        let mut service = json!({
            "kind": "Service",
            "metadata": {
                "name": name,
                "labels": {},
                "creationTimestamp": format!("2026-01-01T00:00:0{index}Z"),
            },
            "spec": {
                "type": kind,
                "clusterIP": cluster_ips[order[0]],
                "clusterIPs": order.iter().map(|family| &cluster_ips[*family]).collect::<Vec<_>>(),
                "ipFamilies": order.iter().map(|family| ["IPv4", "IPv6"][*family]).collect::<Vec<_>>(),
                "ports": ports.iter().map(Port::object).collect::<Vec<_>>(),
                "externalIPs": external.iter().flatten().collect::<Vec<_>>(),
                "internalTrafficPolicy": random.of(&["Cluster", "Cluster", "Local"]),
                "externalTrafficPolicy": random.of(&["Cluster", "Local"]),
                "publishNotReadyAddresses": random.percent(10),
            },
        });
        let spec = &mut service["spec"];
        if kind == "LoadBalancer" {
            spec["allocateLoadBalancerNodePorts"] = json!(!without_node_ports);
            spec["healthCheckNodePort"] = json!(32_000 + index);
            if random.percent(50) {
                let ranges = some(&RANGES, 3, random);
                spec["loadBalancerSourceRanges"] =
                    json!(ranges.iter().flatten().collect::<Vec<_>>());
            }
            let mode = random.of(&["VIP", "VIP", "Proxy"]);
            let ingress = ingress
                .iter()
                .flatten()
                .map(|ip| json!({"ip": ip, "ipMode": mode}));
            service["status"] = json!({"loadBalancer": {"ingress": ingress.collect::<Vec<_>>()}});
        }
        let spec = &mut service["spec"];
        if random.percent(20) {
            spec["sessionAffinity"] = json!("ClientIP");
            spec["sessionAffinityConfig"] =
                json!({"clientIP": {"timeoutSeconds": random.of(&[600, 10_800])}});
        }
        match random.below(30) {
            0 => {
                service["metadata"]["labels"]["service.kubernetes.io/service-proxy-name"] =
                    json!("another")
            }
            1 => (spec["clusterIP"], spec["clusterIPs"]) = (json!("None"), json!(["None"])),
            2 => {
                (spec["type"], spec["externalName"]) = (json!("ExternalName"), json!("example.com"))
            }
            _ => {}
        }
        self.objects.push(service);
        slices::add(&mut self.objects, &name, &ports, random);

        for port in &ports {
            let cluster_ips = [cluster_ips[0].as_str(), &cluster_ips[1]];
            for ips in external
                .iter()
                .chain(&ingress)
                .copied()
                .chain([cluster_ips])
            {
                self.call(&ips, port.port, port.protocol);
                self.call(&ips, port.port + 1, port.protocol);
            }
            for ips in NODE_ADDRESSES.into_iter().chain([LOOPBACK]) {
                port.node_port
                    .into_iter()
                    .for_each(|node_port| self.call(&ips, node_port, port.protocol));
            }
        }
    }

    fn call(&mut self, ips: &[&str; 2], port: u16, protocol: &'static str) {
        let addresses = ips.iter().map(|ip| ip.parse::<IpAddr>().unwrap());
        let targets = addresses.map(|ip| Target {
            to: SocketAddr::new(ip, port),
            protocol,
        });
        self.targets.extend(targets);
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
fn ports(service: usize, without_node_ports: bool, random: &mut Random) -> Vec<Port> {
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
            node_port: (!without_node_ports).then(|| u16::try_from(number).unwrap()),
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

/// What the API server tells of the node.
fn node(random: &mut Random) -> Value {
    let labels = if random.percent(70) {
        json!({"topology.kubernetes.io/zone": "zone-a"})
    } else {
        json!({})
    };
    let addresses = NODE_ADDRESSES[0].map(|ip| json!({"type": "InternalIP", "address": ip}));
    json!({
        "kind": "Node",
        "metadata": {"name": NODE, "labels": labels},
        "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00:10:244:1::/64"]},
        "status": {"addresses": addresses},
    })
}

/// The flags that decide what becomes of packets.
fn options(random: &mut Random) -> BTreeMap<String, String> {
    let mut options = BTreeMap::new();
    let mut set = |name: &str, value: &str| drop(options.insert(name.to_owned(), value.to_owned()));
    match random.below(8) {
        0 => {}
        1 => set("cluster-cidr", "10.244.0.0/16"),
        2 => set("cluster-cidr", "10.244.1.0/24,fd00:10:244:1::/64"),
        3 => set("detect-local-mode", "NodeCIDR"),
        4 => {
            set("detect-local-mode", "InterfaceNamePrefix");
            set("pod-interface-name-prefix", "veth");
        }
        _ => {
            set("cluster-cidr", "10.244.0.0/16,fd00:10:244::/48");
            if random.percent(20) {
                set("egress-masquerade", "true");
            }
        }
    }
    match random.below(8) {
        0..3 => set("nodeport-addresses", "all"),
        3 => set("nodeport-addresses", "198.51.100.11/32,2001:db8:51::11/128"),
        4 => set("nodeport-addresses", "198.51.100.11/32"),
        5 => set("nodeport-addresses", "10.20.30.0/24,2001:db8:30::/64"),
        _ => {}
    }
    if random.percent(20) {
        set("masquerade-all", "true");
    }
    if random.percent(20) {
        set("no-endpoints", "drop");
    }
    options
}

/// Up to so many of a list; often none.
fn some(of: &[Both], most: usize, random: &mut Random) -> Vec<Both> {
    let count = random.below(most + 1);
    let mut found: Vec<Both> = (0..count).map(|_| random.of(of)).collect();
    found.sort_unstable();
    found.dedup();
    found
}
