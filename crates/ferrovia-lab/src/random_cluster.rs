//! Random but valid clusters: Services of every type, their EndpointSlices, and the options of the proxy on the node.
//!
//! A seed determines a cluster, so that failures can be reproduced. Names and addresses are those of the lab, where flows through the
//! cluster can be run with real packets. Few addresses and ports are used, so that Services conflict with each other.

mod services;
mod slices;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

use crate::random::Random;

use services::RandomService;

/// An IPv4 and an IPv6 value.
type DualStack = [&'static str; 2];

/// The node under test.
pub const NODE: &str = "node-1";
/// The addresses of the node under test, the primary ones first.
pub const NODE_ADDRESSES: [DualStack; 2] = [
    ["198.51.100.10", "2001:db8:51::10"],
    ["198.51.100.11", "2001:db8:51::11"],
];
const LOOPBACK: DualStack = ["127.0.0.1", "::1"];
/// A cluster IP of no Service.
const UNALLOCATED: DualStack = ["10.96.0.99", "fd00:10:96::99"];

/// The objects of a cluster, and the flags of the proxy on its node.
#[derive(Clone, Debug)]
pub struct RandomCluster {
    /// Flags, without dashes, and their values.
    pub options: BTreeMap<String, String>,
    /// Services, EndpointSlices, a Node and, in half of the clusters, a ServiceCIDR.
    pub objects: Vec<Value>,
    /// Destinations of calls: every frontend, the next port of each, and an unallocated cluster IP.
    pub targets: Vec<CallTarget>,
}

/// The destination of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallTarget {
    pub to: SocketAddr,
    /// As the API spells it: `TCP`, `UDP` or `SCTP`.
    pub protocol: &'static str,
}

impl RandomCluster {
    /// The cluster of this seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut cluster = Self {
            options: options(&mut random),
            objects: vec![node(&mut random)],
            targets: Vec::new(),
        };
        if random.percent(50) {
            cluster.objects.push(json!({
                "kind": "ServiceCIDR", "metadata": {"name": "all"}, "spec": {"cidrs": ["10.96.0.0/16", "fd00:10:96::/64"]},
            }));
        }
        for index in 0..=random.below(5) {
            cluster.add_service(index, &mut random);
        }
        cluster.add_targets(&UNALLOCATED, 80, "TCP");
        cluster.targets.sort_unstable();
        cluster.targets.dedup();
        cluster
    }

    fn add_service(&mut self, index: usize, random: &mut Random) {
        let service = RandomService::new(index, random);
        self.objects.push(service.object(random));
        slices::add(&mut self.objects, &service.name, &service.ports, random);
        for port in &service.ports {
            for ips in service.addresses() {
                self.add_targets(&ips, port.port, port.protocol);
                self.add_targets(&ips, port.port + 1, port.protocol);
            }
            if let Some(node_port) = port.node_port {
                for ips in NODE_ADDRESSES.into_iter().chain([LOOPBACK]) {
                    self.add_targets(&ips, node_port, port.protocol);
                }
            }
        }
    }

    fn add_targets(&mut self, ips: &[&str; 2], port: u16, protocol: &'static str) {
        let addresses = ips
            .iter()
            .map(|ip| ip.parse::<IpAddr>().expect("an address"));
        let targets = addresses.map(|ip| CallTarget {
            to: SocketAddr::new(ip, port),
            protocol,
        });
        self.targets.extend(targets);
    }
}

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

/// Flags that affect how packets are forwarded.
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
