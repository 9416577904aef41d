//! Compares the modes by trace: in random clusters a packet is treated the same in all of them, except for documented differences.
//!
//! What traces say is compared; that they are right is shown with real packets, by the cases and by the same clusters in the laboratory.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ferrovia_core::desired::{Builder, LocalSetting, NoEndpoints, NodePortSetting, NodeSettings};
use ferrovia_core::model::Protocol;
use ferrovia_core::store::{Event, Store};
use ferrovia_core::trace::{
    BIND_PORTALS, Cause, FrontendKind, IPTABLES, IPVS, Masquerade, NFTABLES, Outcome, Packet,
    Place, Trace, TraceContext, TraceProfile, USERSPACE, trace,
};
use ferrovia_core::wire::{Kind, Object};
use ferrovia_lab::random_cluster::{CallTarget, NODE, NODE_ADDRESSES, RandomCluster};
use serde_json::Value;

/// How many clusters are looked at: about as many as a second is enough for.
const WORLDS: u64 = 300;

const OTHERS: [TraceProfile; 4] = [IPTABLES, IPVS, USERSPACE, BIND_PORTALS];

/// Clients of each family and where they are.
const CLIENTS: [([&str; 2], Place); 7] = [
    (["198.51.100.10", "2001:db8:51::10"], Place::Node),
    (["10.244.1.10", "fd00:10:244:1::10"], Place::LocalPod),
    (["10.244.1.13", "fd00:10:244:1::13"], Place::LocalPod),
    (["10.244.2.10", "fd00:10:244:2::10"], Place::RemotePod),
    (["198.51.100.20", "2001:db8:51::20"], Place::Outside),
    (["192.0.2.9", "2001:db8:2::9"], Place::Outside),
    (["192.0.2.77", "2001:db8:2::77"], Place::Outside),
];

/// One way in which a mode is different from the nftables mode, as the documentation has it.
struct Nature {
    what: &'static str,
    modes: &'static [&'static str],
    /// It explains what the nftables mode (first) and the other one make of a packet.
    explains: fn(&Trace, &Trace) -> bool,
}

/// All of them. `bind portals` is the userspace mode with these.
const NATURES: [Nature; 14] = [
    Nature {
        what: "a Service whose node port has the number of its own port at an address of the node is reached there by either",
        modes: &["iptables"],
        explains: |a, b| {
            let kinds = [frontend(a), frontend(b)];
            kinds.contains(&Some(FrontendKind::NodePort))
                && kinds[0] != kinds[1]
                && !kinds.contains(&None)
        },
    },
    Nature {
        what: "unused ports and unused cluster IPs are handled differently by each mode",
        modes: &["iptables", "ipvs", "userspace", "bind portals"],
        explains: |a, b| {
            let is_nobodys = |t: &Trace| {
                matches!(
                    t.cause,
                    Cause::NoSuchPort | Cause::NoSuchClusterIp | Cause::Unknown
                )
            };
            is_nobodys(a) && is_nobodys(b)
        },
    },
    Nature {
        what: "source ranges do not matter where there are no endpoints",
        modes: &["iptables", "userspace", "bind portals"],
        explains: |a, b| {
            a.cause == Cause::SourceRanges
                && matches!(b.cause, Cause::NoEndpoints | Cause::NotCovered)
        },
    },
    Nature {
        what: "what the node itself sends to external addresses without endpoints leaves by the routes",
        modes: &["iptables"],
        explains: |a, b| {
            b.cause == Cause::NotCovered
                && a.packet.place == Place::Node
                && a.outcome != Outcome::Delivered
        },
    },
    Nature {
        what: "node ports without endpoints are refused also where they would not answer",
        modes: &["iptables", "userspace", "bind portals"],
        explains: |a, b| {
            a.cause == Cause::Unknown
                && is_refusal(b)
                && frontend(b) == Some(FrontendKind::NodePort)
        },
    },
    Nature {
        what: "SCTP is not supported, and source ranges are not checked first",
        modes: &["userspace", "bind portals"],
        explains: |a, b| a.packet.protocol == Protocol::Sctp && b.outcome == Outcome::Refused,
    },
    Nature {
        what: "endpoints see the proxy's address",
        modes: &["userspace", "bind portals"],
        explains: |a, b| {
            same_endpoints(a, b)
                && used(b).all(|e| e.masquerade == Masquerade::Proxy)
                && a.packet.protocol != Protocol::Sctp
        },
    },
    Nature {
        what: "what is not for a client is refused instead of dropped",
        modes: &["bind portals"],
        explains: |a, b| {
            a.outcome == Outcome::Dropped && b.outcome == Outcome::Refused && a.cause == b.cause
        },
    },
    Nature {
        what: "pods that are known by their interface are not known",
        modes: &["bind portals"],
        explains: |a, b| {
            a.packet.place == Place::LocalPod
                && policy(a) == Some("Cluster")
                && policy(b) == Some("Local")
        },
    },
    Nature {
        what: "policy Local holds for pods and the node too, if it has endpoints, and leaves their addresses alone",
        modes: &["ipvs"],
        explains: |a, b| {
            policy(a) == Some("Cluster") && policy(b) == Some("Local") && used(b).count() > 0
        },
    },
    Nature {
        what: "ports with the number of a node port are masqueraded as node ports are",
        modes: &["ipvs"],
        explains: |a, b| same_endpoints(a, b) && b.masquerade == Masquerade::NodePortNumber,
    },
    Nature {
        what: "what the node sends to a cluster IP would have that as its source",
        modes: &["ipvs"],
        explains: |a, b| {
            same_endpoints(a, b)
                && a.packet.place == Place::Node
                && b.masquerade == Masquerade::NotFromPod
        },
    },
    Nature {
        what: "an address that is a cluster IP and an external one is treated as what it is for the Service",
        modes: &["iptables", "ipvs"],
        explains: |a, b| {
            same_endpoints(a, b)
                && frontend(a) != Some(FrontendKind::ClusterIp)
                && matches!(a.masquerade, Masquerade::All | Masquerade::NotFromPod)
        },
    },
    Nature {
        what: "an endpoint elsewhere that reaches itself by way of this node is masqueraded",
        modes: &["iptables"],
        explains: |a, b| {
            same_endpoints(a, b) && used(b).any(|e| e.masquerade == Masquerade::Hairpin && !e.local)
        },
    },
];

#[test]
fn a_packet_is_treated_the_same_in_every_mode() {
    let mut seen = BTreeSet::new();
    for number in 0..WORLDS {
        let world = RandomCluster::new(number);
        let cluster = Cluster::new(&world);
        for packet in cluster.packets(&world) {
            cluster.compare(&packet, number, &mut seen);
        }
    }
    // What is never seen is either not so any more or not asked for.
    for nature in &NATURES {
        for mode in nature.modes {
            assert!(
                seen.contains(&(nature.what, *mode)),
                "{mode}: {}",
                nature.what
            );
        }
    }
}

/// A cluster that has been understood.
struct Cluster {
    store: Store,
    builder: Builder,
    addresses: Vec<IpAddr>,
}

impl Cluster {
    fn new(world: &RandomCluster) -> Self {
        let mut store = Store::new(NODE);
        for object in &world.objects {
            store.handle(Event::Applied(Box::new(read(object.clone()))));
        }
        for kind in Kind::ALL {
            store.handle(Event::Listed(kind));
        }
        let addresses: Vec<IpAddr> = NODE_ADDRESSES
            .iter()
            .flatten()
            .map(|ip| ip.parse().unwrap())
            .collect();
        let mut builder = Builder::new(settings(&world.options));
        let touched = store.take_touched();
        builder.update(&store, touched, &addresses);
        Self {
            store,
            builder,
            addresses,
        }
    }

    /// Every client calls everything; loopback is the node's alone.
    fn packets(&self, world: &RandomCluster) -> Vec<Packet> {
        let calls = world.targets.iter().flat_map(|target| {
            let clients = CLIENTS
                .iter()
                .filter(|(_, place)| *place == Place::Node || !target.to.ip().is_loopback());
            clients.map(|(ips, place)| self.packet(*target, *ips, *place))
        });
        calls.collect()
    }

    fn packet(&self, target: CallTarget, client: [&str; 2], place: Place) -> Packet {
        let CallTarget { to, protocol } = target;
        let source = client[usize::from(to.is_ipv6())].parse().unwrap();
        let source = if place == Place::Node {
            self.trace_context(NFTABLES).node_source(to.ip(), source)
        } else {
            source
        };
        Packet {
            source,
            place,
            destination: to.ip(),
            port: to.port(),
            protocol: Protocol::parse(protocol).unwrap(),
        }
    }

    fn trace_context(&self, profile: TraceProfile) -> TraceContext<'_> {
        TraceContext {
            builder: &self.builder,
            store: &self.store,
            addresses: &self.addresses,
            profile,
        }
    }

    /// What the modes make of a packet is the same or explained.
    fn compare(&self, packet: &Packet, number: u64, seen: &mut BTreeSet<(&str, &str)>) {
        let expected = trace(&self.trace_context(NFTABLES), packet);
        for profile in OTHERS {
            let found = trace(&self.trace_context(profile), packet);
            if fate(&expected) == fate(&found) {
                continue;
            }
            let mode = name(profile);
            let mut natures = NATURES.iter().filter(|nature| nature.modes.contains(&mode));
            let nature = natures.find(|nature| (nature.explains)(&expected, &found));
            let nature = nature.unwrap_or_else(|| {
                panic!("nothing explains cluster {number} in {mode}:\n{expected}\n{found}")
            });
            seen.insert((nature.what, mode));
        }
    }
}

fn name(profile: TraceProfile) -> &'static str {
    if profile == BIND_PORTALS {
        "bind portals"
    } else {
        profile.mode
    }
}

/// What clients and endpoints notice.
fn fate(trace: &Trace) -> (Outcome, BTreeSet<(SocketAddr, bool)>) {
    (
        trace.outcome,
        used(trace)
            .map(|e| (e.address, e.masquerade.is_on()))
            .collect(),
    )
}

fn used(trace: &Trace) -> impl Iterator<Item = &ferrovia_core::trace::EndpointFate> {
    trace.endpoints.iter().filter(|endpoint| endpoint.used)
}

fn same_endpoints(a: &Trace, b: &Trace) -> bool {
    a.outcome == Outcome::Delivered
        && a.outcome == b.outcome
        && used(a).map(|e| e.address).eq(used(b).map(|e| e.address))
}

fn is_refusal(trace: &Trace) -> bool {
    matches!(trace.cause, Cause::NoEndpoints | Cause::NoLocalEndpoints)
}

fn frontend(trace: &Trace) -> Option<FrontendKind> {
    trace.service.as_ref().map(|service| service.frontend)
}

fn policy(trace: &Trace) -> Option<&'static str> {
    trace.service.as_ref().map(|service| service.policy)
}

fn read(value: Value) -> Object {
    match value["kind"].as_str().unwrap() {
        "Service" => Object::Service(serde_json::from_value(value).unwrap()),
        "EndpointSlice" => Object::EndpointSlice(serde_json::from_value(value).unwrap()),
        "Node" => Object::Node(serde_json::from_value(value).unwrap()),
        _ => Object::ServiceCidr(serde_json::from_value(value).unwrap()),
    }
}

/// What a node's flags mean. Those that the generator uses are all there are.
fn settings(options: &BTreeMap<String, String>) -> NodeSettings {
    let ranges = |name: &str| {
        let list = options
            .get(name)
            .into_iter()
            .flat_map(|list| list.split(','));
        list.map(|net| net.parse().unwrap()).collect::<Vec<_>>()
    };
    let is_set = |name: &str| options.contains_key(name);
    let local = match options.get("detect-local-mode").map(String::as_str) {
        Some("NodeCIDR") => LocalSetting::NodeCidr,
        Some(_) => LocalSetting::InterfacePrefix(options["pod-interface-name-prefix"].clone()),
        None => LocalSetting::ClusterCidr(ranges("cluster-cidr")),
    };
    NodeSettings {
        local,
        masquerade_all: is_set("masquerade-all"),
        no_endpoints: if is_set("no-endpoints") {
            NoEndpoints::Drop
        } else {
            NoEndpoints::Reject
        },
        egress_except: is_set("egress-masquerade").then(|| ranges("cluster-cidr")),
        node_ports: match options.get("nodeport-addresses").map(String::as_str) {
            Some("all") => NodePortSetting::Any,
            Some(_) => NodePortSetting::Cidrs(ranges("nodeport-addresses")),
            None => NodePortSetting::Primary,
        },
        ..NodeSettings::of_node(NODE)
    }
}
