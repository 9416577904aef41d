//! Random but valid clusters: Services of every type, their slices, and node options.
//!
//! Everything follows from a number, so a cluster comes back. Names and addresses are those of the laboratory, in which a cluster can be
//! played with real packets; on paper they are as good as any. Few addresses and ports are used, so that Services meet each other.

mod random;
mod services;
mod slices;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

pub(crate) use random::Random;
use services::Drawn;

/// Whatever there is one of in each family.
type Both = [&'static str; 2];

/// The node that is asked about, and its addresses; the first is its usual one.
pub(crate) const NODE: &str = "node-1";
pub(crate) const NODE_ADDRESSES: [Both; 2] = [
    ["198.51.100.10", "2001:db8:51::10"],
    ["198.51.100.11", "2001:db8:51::11"],
];
const LOOPBACK: Both = ["127.0.0.1", "::1"];
/// A cluster IP that no Service has.
const UNALLOCATED: Both = ["10.96.0.99", "fd00:10:96::99"];
/// A cluster as its objects say, and the flags of the proxy on its node.
#[derive(Clone, Debug)]
pub(crate) struct TestCluster {
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

impl TestCluster {
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
        let drawn = Drawn::new(index, random);
        self.objects.push(drawn.object(random));
        slices::add(&mut self.objects, &drawn.name, &drawn.ports, random);
        for port in &drawn.ports {
            for ips in drawn.addresses() {
                self.call(&ips, port.port, port.protocol);
                self.call(&ips, port.port + 1, port.protocol);
            }
            if let Some(node_port) = port.node_port {
                for ips in NODE_ADDRESSES.into_iter().chain([LOOPBACK]) {
                    self.call(&ips, node_port, port.protocol);
                }
            }
        }
    }

    fn call(&mut self, ips: &[&str; 2], port: u16, protocol: &'static str) {
        let addresses = ips
            .iter()
            .map(|ip| ip.parse::<IpAddr>().expect("an address"));
        let targets = addresses.map(|ip| Target {
            to: SocketAddr::new(ip, port),
            protocol,
        });
        self.targets.extend(targets);
    }
}

/// The Node object.
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
