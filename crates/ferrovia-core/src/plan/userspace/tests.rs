//! The planner against the stand-in for the tools and the kernel, with ports given out in the order in which proxies open. `bound.rs` is about those
//! that need no rules.

mod bind_portals;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::desired::{Endpoint, Frontend, NodePortAddresses, NodeRules, PortChange};
use crate::dialect::iptables::sim::IptablesSim;
use crate::model::{PortKey, Protocol, ServiceKey, TrafficPolicy};
use crate::testing::ports::{self, node};

const RULES: UserspaceOptions = UserspaceOptions {
    portals: PortalMode::Rules {
        listen: None,
        host: Some(IpAddr::V4(std::net::Ipv4Addr::new(192, 168, 0, 2))),
    },
    localhost_node_ports: true,
};
const BIND: UserspaceOptions = UserspaceOptions {
    portals: PortalMode::Bind,
    localhost_node_ports: true,
};

fn endpoints(numbers: &[u8]) -> Arc<[Endpoint]> {
    let mut all: Vec<_> = numbers.iter().map(|n| ports::endpoint(*n, 1)).collect();
    all.sort_unstable();
    all.into()
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A node with two addresses.
fn addressed() -> NodeRules {
    let own = ["192.168.0.2", "192.168.0.3"].map(|ip| ip.parse().unwrap());
    NodeRules {
        addresses: own.into(),
        ..node()
    }
}

/// A service port with all kinds of frontends.
fn service(n: u8, numbers: &[u8]) -> ServicePort {
    ServicePort {
        key: PortKey {
            service: ServiceKey::from_checked_names("ns1", &format!("svc{n}")),
            name: "p80".into(),
            protocol: Protocol::Tcp,
        },
        frontends: Box::new([
            Frontend::ClusterIp(at(&format!("172.30.0.{n}:80"))),
            Frontend::ExternalIp(at(&format!("192.168.99.{n}:80"))),
            Frontend::LoadBalancer(at(&format!("1.2.3.{n}:80"))),
            Frontend::NodePort(3000 + u16::from(n)),
        ]),
        local: (endpoints(numbers).iter().copied())
            .filter(|endpoint| endpoint.is_local)
            .collect(),
        ..ports::port(n, &endpoints(numbers))
    }
}

/// A node whose kernel and sockets are stand-ins.
struct UserspaceHarness {
    desired: Desired,
    planner: UserspacePlanner,
    sim: IptablesSim,
    open: BTreeMap<ProxyName, Option<u16>>,
    /// The same proxies, as they were last set.
    set: BTreeMap<ProxyName, ProxySpec>,
    addresses: Vec<IpAddr>,
    next_port: u16,
}

impl UserspaceHarness {
    fn new(options: UserspaceOptions, services: &[ServicePort]) -> Self {
        let services = services.iter().cloned();
        let mut lab = Self {
            desired: Desired {
                ports: services
                    .map(|port| (port.key.clone(), Arc::new(port)))
                    .collect(),
                ..ports::nothing(Family::V4, node())
            },
            planner: UserspacePlanner::new(Family::V4, options),
            sim: IptablesSim::load(
                "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n-A PREROUTING -j ACCEPT\nCOMMIT\n",
            ),
            open: BTreeMap::new(),
            set: BTreeMap::new(),
            addresses: Vec::new(),
            next_port: 40000,
        };
        lab.full();
        lab
    }

    fn full(&mut self) -> UserspacePlan {
        let observed = UserspaceObserved {
            save: self.sim.save(),
            open: self.open.clone(),
            addresses: self.addresses.clone(),
        };
        let plan = self
            .planner
            .full(&self.desired, &observed, ObservedPolicy::Adopt);
        self.carry_out(&plan);
        plan
    }

    fn change(&mut self, services: &[ServicePort], gone: &[PortKey]) -> UserspacePlan {
        let mut delta = Delta::default();
        for port in services {
            let new = Arc::new(port.clone());
            let old = (self.desired.ports).insert(port.key.clone(), Arc::clone(&new));
            delta.ports.push(PortChange {
                key: port.key.clone(),
                old,
                new: Some(new),
            });
        }
        for key in gone {
            delta.ports.push(PortChange {
                key: key.clone(),
                old: self.desired.ports.remove(key),
                new: None,
            });
        }
        self.incremental(&delta)
    }

    fn set_node(&mut self, node: NodeRules) -> UserspacePlan {
        self.desired.node = Arc::new(node);
        self.incremental(&Delta {
            node: true,
            ..Delta::default()
        })
    }

    fn incremental(&mut self, delta: &Delta) -> UserspacePlan {
        let plan = self.planner.incremental(&self.desired, delta);
        self.carry_out(&plan);
        plan
    }

    /// As the host does it, and as strictly: a rule never names a proxy that is not open.
    fn carry_out(&mut self, plan: &UserspacePlan) {
        self.addresses.extend(&plan.new_addresses);
        for change in &plan.proxies {
            if let ProxyChange::Set(proxy) = change {
                self.set.insert(proxy.name.clone(), proxy.clone());
                let port = &mut self.next_port;
                let portal = matches!(proxy.listen, ProxyListen::Portal(_));
                self.open.entry(proxy.name.clone()).or_insert_with(|| {
                    *port += 1;
                    portal.then_some(*port - 1)
                });
            }
        }
        let ports: BTreeMap<String, Option<u16>> = (self.open.iter())
            .map(|(name, port)| (name.to_string(), *port))
            .collect();
        let rules = plan
            .rules
            .with_ports(|name| Some(ports[name].expect("a proxy that rules lead to has a port")));
        let written = self.sim.restore(&rules.to_string());
        written.unwrap_or_else(|why| panic!("{why}\n{plan}"));
        for change in &plan.proxies {
            if let ProxyChange::Close(name) = change {
                assert!(self.open.remove(name).is_some(), "{name} was not open");
                self.set.remove(name);
            }
        }
        self.addresses.retain(|ip| !plan.old_addresses.contains(ip));
    }

    /// A full plan has no changes, apart from repeating open proxies.
    fn assert_settled(&mut self) {
        let before = self.set.clone();
        let plan = self.full();
        assert_eq!(self.set, before);
        assert_eq!(plan.rules.to_string(), "", "{plan}");
        let closes = |change: &ProxyChange| matches!(change, ProxyChange::Close(_));
        assert!(!plan.proxies.iter().any(closes), "{plan}");
        assert_eq!((plan.new_addresses, plan.old_addresses), (vec![], vec![]));
    }

    fn saved(&self, table: &str) -> Vec<String> {
        let save = self.sim.save();
        let tables = crate::dialect::iptables::parse(&save);
        let table = tables.iter().find(|t| t.name == table);
        let rules = table.into_iter().flat_map(|table| &table.rules);
        rules
            .map(|rule| format!("-A {} {}", rule.chain, rule.args))
            .collect()
    }
}

#[test]
fn other_addresses_of_the_node_change_nothing() {
    let mut lab = UserspaceHarness::new(RULES, &[service(1, &[2])]);
    let plan = lab.set_node(NodeRules {
        addresses: BTreeSet::from(["192.0.2.7".parse().unwrap()]),
        ..node()
    });
    assert!(plan.is_empty(), "{plan}");
}

#[test]
fn portals_are_kube_proxys() {
    let mut service = service(41, &[1, 2]);
    service.frontends = Box::new([
        Frontend::ClusterIp(at("172.30.0.41:80")),
        Frontend::LoadBalancer(at("1.2.3.4:80")),
        Frontend::NodePort(3001),
    ]);
    service.key.service = ServiceKey::from_checked_names("ns1", "svc1");
    let lab = UserspaceHarness::new(RULES, &[service]);
    assert_eq!(
        lab.saved("nat"),
        [
            r#"-A KUBE-NODEPORT-CONTAINER -p tcp -m comment --comment "ns1/svc1:p80" -m tcp --dport 3001 -j DNAT --to-destination 192.168.0.2:40000"#,
            r#"-A KUBE-NODEPORT-HOST -p tcp -m comment --comment "ns1/svc1:p80" -m tcp --dport 3001 -j DNAT --to-destination 192.168.0.2:40000"#,
            r#"-A KUBE-PORTALS-CONTAINER -d 172.30.0.41/32 -p tcp -m comment --comment "ns1/svc1:p80" -m tcp --dport 80 -j DNAT --to-destination 192.168.0.2:40000"#,
            r#"-A KUBE-PORTALS-CONTAINER -d 1.2.3.4/32 -p tcp -m comment --comment "ns1/svc1:p80" -m tcp --dport 80 -j DNAT --to-destination 192.168.0.2:40000"#,
            r#"-A KUBE-PORTALS-HOST -d 172.30.0.41/32 -p tcp -m comment --comment "ns1/svc1:p80" -m tcp --dport 80 -j DNAT --to-destination 192.168.0.2:40000"#,
            r#"-A KUBE-PORTALS-HOST -d 1.2.3.4/32 -p tcp -m comment --comment "ns1/svc1:p80" -m tcp --dport 80 -j DNAT --to-destination 192.168.0.2:40000"#,
            r#"-A OUTPUT -m comment --comment "handle ClusterIPs; NOTE: this must be before the NodePort rules" -j KUBE-PORTALS-HOST"#,
            r#"-A OUTPUT -m addrtype --dst-type LOCAL -m comment --comment "handle service NodePorts; NOTE: this must be the last rule in the chain" -j KUBE-NODEPORT-HOST"#,
            r#"-A PREROUTING -m comment --comment "handle ClusterIPs; NOTE: this must be before the NodePort rules" -j KUBE-PORTALS-CONTAINER"#,
            "-A PREROUTING -j ACCEPT",
            r#"-A PREROUTING -m addrtype --dst-type LOCAL -m comment --comment "handle service NodePorts; NOTE: this must be the last rule in the chain" -j KUBE-NODEPORT-CONTAINER"#,
        ]
    );
    let filter = lab.saved("filter");
    for rule in [
        r#"-A INPUT -m comment --comment "Ensure that non-local NodePort traffic can flow" -j KUBE-NODEPORT-NON-LOCAL"#,
        r#"-A KUBE-NODEPORT-NON-LOCAL -p tcp -m comment --comment "ns1/svc1:p80" -m tcp --dport 40000 -m state --state NEW -j ACCEPT"#,
        r#"-A KUBE-PROXY-FIREWALL -p tcp -m comment --comment "ns1/svc1:p80 is reached by its addresses only" -m addrtype --dst-type LOCAL -m tcp --dport 40000 -m conntrack ! --ctstate DNAT -j DROP"#,
    ] {
        assert!(filter.contains(&rule.to_owned()), "{rule}\n{filter:#?}");
    }
}

#[test]
fn without_an_address_packets_are_redirected() {
    let options = UserspaceOptions {
        portals: PortalMode::Rules {
            listen: None,
            host: None,
        },
        ..RULES
    };
    let lab = UserspaceHarness::new(options, &[service(1, &[1])]);
    let nat = lab.saved("nat").join("\n");
    assert_eq!(nat.matches("-j REDIRECT --to-ports 40000").count(), 8);
}

#[test]
fn endpoints_that_change_change_no_rule() {
    let mut lab = UserspaceHarness::new(RULES, &[service(1, &[1, 2]), service(2, &[3])]);
    let plan = lab.change(&[service(1, &[1, 2, 5])], &[]);
    assert!(plan.rules.is_empty(), "{plan}");
    assert_eq!(plan.proxies.len(), 1);
    lab.assert_settled();
}

#[test]
fn a_service_comes_and_goes_without_touching_others() {
    let mut lab = UserspaceHarness::new(RULES, &[service(1, &[1])]);
    let before = lab.sim.save();
    let plan = lab.change(&[service(2, &[2])], &[]);
    assert!(!plan.to_string().contains("svc1"), "{plan}");
    assert_eq!(lab.open.len(), 2);
    lab.assert_settled();
    let plan = lab.change(&[], &[service(2, &[]).key]);
    assert!(!plan.to_string().contains("svc1"), "{plan}");
    assert_eq!(lab.sim.save(), before);
    assert_eq!(lab.open.len(), 1);
}

#[test]
fn without_endpoints_everything_is_refused_and_nothing_is_open() {
    let mut lab = UserspaceHarness::new(RULES, &[service(1, &[1])]);
    lab.change(&[service(1, &[])], &[]);
    assert!(lab.open.is_empty());
    let filter = lab.saved("filter").join("\n");
    assert_eq!(filter.matches("-j REJECT").count(), 4, "{filter}");
    assert!(!lab.saved("nat").join("\n").contains("svc1"));
    lab.assert_settled();
    lab.change(&[service(1, &[1])], &[]);
    assert!(!lab.saved("filter").join("\n").contains("REJECT"));
    lab.assert_settled();
}

#[test]
fn under_policy_local_each_client_has_its_proxy() {
    let local = |numbers: &[u8]| ServicePort {
        external_policy: TrafficPolicy::Local,
        ..service(1, numbers)
    };
    let mut lab = UserspaceHarness::new(RULES, &[local(&[1, 2])]);
    let names: Vec<_> = lab.open.keys().map(ToString::to_string).collect();
    assert_eq!(names, ["ns1/svc1:p80/tcp", "ns1/svc1:p80/tcp/local"]);
    let nat = lab.saved("nat").join("\n");
    let node_ports: Vec<_> = nat
        .lines()
        .filter(|rule| rule.starts_with("-A KUBE-NODEPORT-CONTAINER"))
        .collect();
    assert!(node_ports[0].contains("-s 10.244.1.0/24") && node_ports[0].ends_with("40000"));
    assert!(!node_ports[1].contains("-s ") && node_ports[1].ends_with("40001"));
    // None here: dropped for those outside, while pods still reach the others.
    lab.change(&[local(&[1])], &[]);
    assert_eq!(lab.open.len(), 1);
    let filter = lab.saved("filter").join("\n");
    assert_eq!(filter.matches("has no local endpoints").count(), 3);
    lab.assert_settled();
}

#[test]
fn source_ranges_open_the_portal_to_those_inside_only() {
    let ranged = |ranges: &[&str]| ServicePort {
        source_ranges: ranges.iter().map(|net| net.parse().unwrap()).collect(),
        ..service(1, &[1, 2])
    };
    let mut lab = UserspaceHarness::new(RULES, &[ranged(&["198.51.100.0/24", "203.0.113.0/24"])]);
    let balanced = |lab: &UserspaceHarness| -> Vec<String> {
        let rules = lab.saved("nat").into_iter();
        rules
            .filter(|rule| rule.contains("-d 1.2.3.1/32"))
            .collect()
    };
    assert_eq!(balanced(&lab).len(), 4);
    assert!(balanced(&lab).iter().all(|rule| rule.contains(" -s ")));
    let filter = lab.saved("filter").join("\n");
    assert_eq!(filter.matches("-d 1.2.3.1/32").count(), 1);
    lab.change(&[ranged(&[])], &[]);
    assert_eq!(balanced(&lab).len(), 2);
    assert!(!lab.saved("filter").join("\n").contains("-d 1.2.3.1/32"));
    lab.assert_settled();
}

#[test]
fn after_a_restart_all_ports_are_others() {
    let mut lab = UserspaceHarness::new(RULES, &[service(1, &[1]), service(2, &[2])]);
    lab.open.clear();
    lab.planner = UserspacePlanner::new(Family::V4, RULES);
    let plan = lab.full();
    assert_eq!(plan.proxies.len(), 2);
    let nat = lab.saved("nat").join("\n");
    assert!(nat.contains("40002") && !nat.contains("40000"), "{nat}");
    lab.assert_settled();
}

#[test]
fn rules_changed_by_another_process_are_repaired() {
    let mut lab = UserspaceHarness::new(RULES, &[service(1, &[1]), service(2, &[2])]);
    let before = lab.sim.save();
    lab.sim
        .restore("*nat\n:KUBE-PORTALS-HOST - [0:0]\n-A KUBE-PORTALS-CONTAINER -j ACCEPT\nCOMMIT\n")
        .unwrap();
    let plan = lab.full();
    assert!(!plan.rules.is_empty());
    assert_eq!(lab.sim.save(), before);
    assert_eq!(lab.open.len(), 2, "no connection is cut");
}

#[test]
fn node_ports_follow_the_nodes_addresses() {
    let mut lab = UserspaceHarness::new(RULES, &[service(1, &[1])]);
    let only = |ip: [u8; 4]| NodeRules {
        node_ports: NodePortAddresses::Only([IpAddr::from(ip)].into()),
        ..node()
    };
    lab.set_node(only([192, 0, 2, 1]));
    lab.set_node(only([192, 0, 2, 2]));
    let nat = lab.saved("nat").join("\n");
    assert!(nat.contains("-A PREROUTING -d 192.0.2.2/32"), "{nat}");
    assert!(
        !nat.contains("192.0.2.1/32") && !nat.contains("dst-type"),
        "{nat}"
    );
    lab.assert_settled();
    // A run with other settings finds the same.
    lab.desired.node = Arc::new(only([192, 0, 2, 3]));
    lab.planner = UserspacePlanner::new(Family::V4, RULES);
    lab.full();
    assert!(!lab.saved("nat").join("\n").contains("192.0.2.2/32"));
    lab.assert_settled();
}

#[test]
fn sctp_is_refused_with_a_note() {
    // Under policy Local too, where those inside could use the endpoint elsewhere.
    for policy in [TrafficPolicy::Cluster, TrafficPolicy::Local] {
        let mut service = service(1, &[1]);
        service.key.protocol = Protocol::Sctp;
        service.external_policy = policy;
        let mut lab = UserspaceHarness::new(RULES, &[]);
        let plan = lab.change(&[service], &[]);
        assert_eq!(plan.notes().len(), 1);
        assert!(lab.open.is_empty());
        let filter = lab.saved("filter").join("\n");
        assert_eq!(filter.matches("cannot be proxied").count(), 4);
        lab.assert_settled();
    }
}

#[test]
fn loopback_gets_a_proxy_for_each_node_port() {
    let mut desired = UserspaceHarness::new(RULES, &[service(1, &[1]), service(2, &[])]).desired;
    let changes = localhost::full(&desired, std::iter::empty());
    let texts: Vec<_> = changes.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        ["proxy ns1/svc1:p80/tcp at 127.0.0.1:3001\n  to 10.244.2.1:8080 weight 1\n"]
    );
    let key = service(1, &[]).key;
    let old = desired.ports.remove(&key);
    let name = ProxyName {
        key: key.clone(),
        policy: TrafficPolicy::Cluster,
    };
    let closed = [ProxyChange::Close(name.clone())];
    assert_eq!(localhost::full(&desired, [name].into_iter()), closed);
    let delta = Delta {
        ports: vec![PortChange {
            key,
            old,
            new: None,
        }],
        ..Delta::default()
    };
    assert_eq!(localhost::incremental(&delta, Family::V4), closed);
}

proptest! {
    /// Any chain of changes ends with the rules and proxies of a full plan, and never leads to a closed port.
    #[test]
    fn any_chain_of_changes_ends_where_one_full_plan_would(
        steps in prop::collection::vec((0u8..4, 0u8..4, 0u8..8), 1..24),
        binds in any::<bool>(),
    ) {
        let mut lab = UserspaceHarness::new(if binds { BIND } else { RULES }, &[]);
        lab.set_node(addressed());
        for (n, endpoints, shape) in steps {
            let numbers: Vec<u8> = (1..=endpoints).collect();
            let mut port = service(n, &numbers);
            if shape & 1 != 0 {
                port.external_policy = TrafficPolicy::Local;
            }
            if shape & 2 != 0 {
                port.source_ranges = Box::new(["10.244.0.0/16".parse().unwrap()]);
            }
            if shape & 4 != 0 {
                // An address of the node, and the number of the next one's node port.
                let node_address_frontends = Frontend::ExternalIp(at(&format!("192.168.0.2:{}", 3000 + u16::from((n + 1) % 4))));
                port.frontends = Box::new([port.frontends[0], node_address_frontends, port.frontends[3]]);
            }
            if shape == 7 && lab.desired.ports.contains_key(&port.key) {
                lab.change(&[], &[port.key]);
            } else {
                lab.change(&[port], &[]);
            }
        }
        lab.assert_settled();
    }
}
