//! The planner against the stand-in kernel.

mod load_balancer;
mod observed;
mod random;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::sim::IpvsSim;
use super::*;
use crate::desired::{
    Endpoint, Frontend, HealthCheck, LocalDetector, NoEndpoints, NodePortAddresses, NodeRules,
};
use crate::dialect::ipset::IpsetOp as SetOp;
use crate::dialect::ipvs::{IpvsOp, VirtualServerKey};
use crate::model::{Algorithm, PortKey, Protocol, Scheduler, TrafficPolicy};
use crate::testing::ports::{self, endpoint};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn node() -> NodeRules {
    NodeRules {
        local: LocalDetector::Source("10.244.0.0/16".parse().unwrap()),
        addresses: BTreeSet::from([ip("192.168.1.10")]),
        service_cidrs: Vec::new(),
        ..ports::node()
    }
}

/// A service port with all kinds of frontends, an external address among them.
fn service(n: u8, endpoints: &[Endpoint]) -> ServicePort {
    let external: SocketAddr = format!("198.51.100.{n}:80").parse().unwrap();
    let port = ports::port(n, endpoints);
    let frontends = port.frontends.iter().cloned();
    ServicePort {
        frontends: frontends.chain([Frontend::ExternalIp(external)]).collect(),
        ..port
    }
}

/// With the local endpoints in the list of local ones.
fn local(port: ServicePort) -> ServicePort {
    let local = port.cluster.iter().copied().filter(|e| e.is_local);
    ServicePort {
        local: local.collect(),
        ..port
    }
}

/// A node whose kernel is the stand-in.
struct IpvsHarness {
    desired: Desired,
    options: IpvsOptions,
    planner: IpvsPlanner,
    sim: IpvsSim,
}

impl IpvsHarness {
    fn on(sim: IpvsSim, family: Family, options: IpvsOptions) -> Self {
        let desired = ports::nothing(family, node());
        Self {
            desired,
            planner: IpvsPlanner::new(family, options.clone()),
            options,
            sim,
        }
    }

    fn with(options: IpvsOptions) -> Self {
        let mut lab = Self::on(IpvsSim::default(), Family::V4, options);
        lab.full(ObservedPolicy::Adopt);
        lab
    }

    fn new() -> Self {
        Self::with(IpvsOptions::default())
    }

    fn full(&mut self, found: ObservedPolicy) -> IpvsPlan {
        let plan = self
            .planner
            .full(&self.desired, &self.sim.observed(), found);
        self.write(&plan);
        plan
    }

    fn write(&mut self, plan: &IpvsPlan) {
        let written = self.sim.apply(plan);
        written.unwrap_or_else(|why| panic!("{why}\n{plan}"));
    }

    /// A new process over what is there.
    fn restart(&mut self) -> IpvsPlan {
        self.planner = IpvsPlanner::new(self.desired.family, self.options.clone());
        self.full(ObservedPolicy::Adopt)
    }

    fn change(
        &mut self,
        changes: Vec<(PortKey, Option<ServicePort>)>,
        node: Option<NodeRules>,
    ) -> IpvsPlan {
        let delta = self.delta(changes, node);
        self.incremental(&delta)
    }

    /// Replaces the desired state and returns the delta.
    fn delta(
        &mut self,
        changes: Vec<(PortKey, Option<ServicePort>)>,
        node: Option<NodeRules>,
    ) -> Delta {
        ports::change(&mut self.desired, changes, node)
    }

    fn incremental(&mut self, delta: &Delta) -> IpvsPlan {
        let plan = self.planner.incremental(&self.desired, delta);
        self.write(&plan);
        plan
    }

    fn set(&mut self, port: ServicePort) -> IpvsPlan {
        self.change(vec![(port.key.clone(), Some(port))], None)
    }

    fn remove(&mut self, n: u8) -> IpvsPlan {
        self.change(vec![(service(n, &[]).key, None)], None)
    }

    /// A Service's health check gets a port, or loses it.
    fn check(&mut self, name: &str, port: Option<u16>) -> IpvsPlan {
        let key = ServiceKey::from_checked_names("demo", name);
        let checks = Arc::make_mut(&mut self.desired.health_checks);
        match port {
            Some(port) => checks.insert(
                key.clone(),
                HealthCheck {
                    port,
                    local_endpoints: 1,
                },
            ),
            None => checks.remove(&key),
        };
        self.incremental(&Delta {
            checks: vec![key],
            ..Delta::default()
        })
    }

    fn fresh(&self) -> Self {
        let mut fresh = Self::on(
            IpvsSim::default(),
            self.desired.family,
            self.options.clone(),
        );
        fresh.desired = self.desired.clone();
        fresh.full(ObservedPolicy::Adopt);
        fresh
    }

    /// Everything in the kernel. The order of rules in the one chain of services means nothing.
    fn meaning(&self) -> (IpvsObserved, Vec<(String, Vec<String>)>) {
        let mut chains = Vec::new();
        for table in ["filter", "nat"] {
            for (chain, rules) in self.sim.rules.chains(table) {
                let mut rules = rules.clone();
                if chain == "KUBE-IPVS-OUT-FILTER" {
                    rules.sort_unstable();
                }
                chains.push((format!("{table} {chain}"), rules));
            }
        }
        (self.sim.state.clone(), chains)
    }

    fn entries(&self, set: IpvsSetId) -> Vec<String> {
        let set = &self.sim.state.sets[&set.name(self.desired.family)];
        set.entries.iter().map(IpsetEntry::to_string).collect()
    }

    fn server(&self, at: &str) -> Option<String> {
        let (server, destinations) = self.sim.state.servers.get(&tcp(at))?;
        let destinations: Vec<String> = destinations
            .iter()
            .map(|(at, weight)| format!("{at} x{weight}"))
            .collect();
        Some(format!("{server} > {}", destinations.join(", ")))
    }
}

fn tcp(at: &str) -> VirtualServerKey {
    let at: SocketAddr = at.parse().unwrap();
    VirtualServerKey {
        address: at.ip(),
        port: at.port(),
        protocol: Protocol::Tcp,
    }
}

#[test]
fn a_change_of_endpoints_touches_only_its_servers() {
    let mut lab = IpvsHarness::new();
    for n in 1..=9 {
        lab.set(service(n, &[endpoint(1, 1)]));
    }
    let plan = lab.set(service(5, &[endpoint(3, 1)]));
    assert_eq!(
        plan.to_string(),
        "-a -t 10.96.0.5:80 -r 10.244.2.3:8080 -m -w 1\n\
         -d -t 10.96.0.5:80 -r 10.244.2.1:8080 drain\n\
         -a -t 192.168.1.10:30005 -r 10.244.2.3:8080 -m -w 1\n\
         -d -t 192.168.1.10:30005 -r 10.244.2.1:8080 drain\n\
         -a -t 198.51.100.5:80 -r 10.244.2.3:8080 -m -w 1\n\
         -d -t 198.51.100.5:80 -r 10.244.2.1:8080 drain\n\
         -a -t 203.0.113.5:80 -r 10.244.2.3:8080 -m -w 1\n\
         -d -t 203.0.113.5:80 -r 10.244.2.1:8080 drain\n"
    );
    // Of a weight, a scheduler and persistence likewise, in place.
    let port = service(5, &[endpoint(3, 2)]);
    let plan = lab.set(ServicePort {
        frontends: port.frontends[..1].into(),
        ..port.clone()
    });
    assert!(matches!(plan.steps[0], IpvsStep::Servers(_)));
    let plan = lab.set(ServicePort {
        frontends: port.frontends[..1].into(),
        affinity: Some(600),
        scheduler: Scheduler::known("lc"),
        ..port
    });
    assert_eq!(plan.to_string(), "-A -t 10.96.0.5:80 -s lc -p 600\n");
}

#[test]
fn a_service_comes_and_goes_in_order() {
    let mut lab = IpvsHarness::new();
    let added = lab.set(service(1, &[endpoint(2, 1)]));
    let kinds = |plan: &IpvsPlan| -> Vec<&'static str> {
        let kind = |step: &IpvsStep| match step {
            IpvsStep::Device => "device",
            IpvsStep::NoDevice => "no device",
            IpvsStep::Sets(ops) if matches!(ops[0], SetOp::Delete(..)) => "entries go",
            IpvsStep::Sets(_) => "entries come",
            IpvsStep::Rules(_) => "rules",
            IpvsStep::Servers(ops) if matches!(ops[0], IpvsOp::DeleteServer(_)) => "servers go",
            IpvsStep::Servers(_) => "servers come",
            IpvsStep::Addresses(ops) if matches!(ops[0], AddressOp::Unbind(_)) => "addresses go",
            IpvsStep::Addresses(_) => "addresses come",
        };
        plan.steps.iter().map(kind).collect()
    };
    assert_eq!(
        kinds(&added),
        ["entries come", "servers come", "addresses come"]
    );
    assert_eq!(
        kinds(&lab.remove(1)),
        ["addresses go", "servers go", "entries go"]
    );
    let mut fresh = IpvsHarness::on(IpvsSim::default(), Family::V4, IpvsOptions::default());
    fresh.desired.ports = [service(1, &[])]
        .map(|port| (port.key.clone(), Arc::new(port)))
        .into();
    assert_eq!(
        kinds(&fresh.full(ObservedPolicy::Adopt)),
        [
            "device",
            "entries come",
            "rules",
            "servers come",
            "addresses come"
        ]
    );
    assert!(fresh.restart().is_empty());
}

#[test]
fn what_one_port_gives_up_another_takes() {
    let mut lab = IpvsHarness::new();
    let old = service(1, &[endpoint(2, 1)]);
    lab.set(old.clone());
    let mut new = old.clone();
    new.key.service = ServiceKey::from_checked_names("demo", "renamed");
    let plan = lab.change(vec![(new.key.clone(), Some(new)), (old.key, None)], None);
    assert!(plan.is_empty(), "{plan}");
}

#[test]
fn an_address_and_a_local_endpoint_stay_while_anyone_has_them() {
    let mut lab = IpvsHarness::new();
    let one = service(1, &[endpoint(2, 1)]);
    let mut other = one.clone();
    other.key.name = "https".into();
    other.frontends = Box::new([Frontend::ClusterIp("10.96.0.1:443".parse().unwrap())]);
    lab.set(one);
    lab.set(other.clone());
    lab.remove(1);
    assert_eq!(lab.sim.state.addresses, BTreeSet::from([ip("10.96.0.1")]));
    assert_eq!(lab.entries(IpvsSetId::Addresses), ["10.96.0.1"]);
    assert_eq!(
        lab.entries(IpvsSetId::LoopBack),
        ["10.244.1.2,tcp:8080,10.244.1.2"]
    );
    lab.change(vec![(other.key, None)], None);
    assert!(lab.entries(IpvsSetId::LoopBack).is_empty() && lab.sim.state.addresses.is_empty());
}

#[test]
fn ports_of_health_checks_are_counted() {
    let mut lab = IpvsHarness::new();
    lab.check("a", Some(31000));
    lab.check("b", Some(31000));
    lab.check("a", Some(31001));
    assert_eq!(lab.entries(IpvsSetId::HealthCheck), ["31000", "31001"]);
    lab.check("b", None);
    assert_eq!(lab.entries(IpvsSetId::HealthCheck), ["31001"]);
    assert!(lab.restart().is_empty());
}

#[test]
fn policy_local_without_local_endpoints_drops_what_comes_from_outside() {
    let remote = ServicePort {
        external_policy: TrafficPolicy::Local,
        internal_policy: TrafficPolicy::Local,
        ..service(1, &[endpoint(1, 1)])
    };
    let mut lab = IpvsHarness::new();
    lab.set(remote.clone());
    assert_eq!(
        lab.entries(IpvsSetId::NoLocal),
        [
            "192.168.1.10,tcp:30001",
            "198.51.100.1,tcp:80",
            "203.0.113.1,tcp:80"
        ]
    );
    // From inside, endpoints elsewhere can be reached by external addresses, but not by the cluster IP.
    assert_eq!(
        lab.server("203.0.113.1:80").unwrap(),
        "-t 203.0.113.1:80 -s rr > 10.244.2.1:8080 x1"
    );
    assert_eq!(lab.entries(IpvsSetId::NoneAllowed), ["10.96.0.1,tcp:80"]);
    assert_eq!(lab.server("10.96.0.1:80"), None);
    assert!(lab.sim.state.addresses.contains(&ip("10.96.0.1")));

    let plan = lab.set(ServicePort {
        local: [endpoint(2, 1)].into(),
        cluster: [endpoint(2, 1), endpoint(1, 1)].into(),
        ..remote.clone()
    });
    let last = plan.steps.last().unwrap().to_string();
    assert!(last.starts_with("del KUBE-NONE-ALLOWED"), "{plan}");
    assert!(lab.entries(IpvsSetId::NoLocal).is_empty());
    assert_eq!(
        lab.server("10.96.0.1:80").unwrap(),
        "-t 10.96.0.1:80 -s rr > 10.244.1.2:8080 x1"
    );

    let mut as_upstream = IpvsHarness::with(IpvsOptions {
        local_fallback: true,
        ..IpvsOptions::default()
    });
    as_upstream.set(remote);
    assert!(as_upstream.entries(IpvsSetId::NoLocal).is_empty());
    assert_eq!(
        as_upstream.server("10.96.0.1:80").unwrap(),
        "-t 10.96.0.1:80 -s rr > 10.244.2.1:8080 x1"
    );
}

#[test]
fn services_without_endpoints_are_refused_by_the_kernel_or_dropped() {
    let mut lab = IpvsHarness::new();
    lab.set(service(1, &[]));
    assert_eq!(
        lab.server("10.96.0.1:80").unwrap(),
        "-t 10.96.0.1:80 -s rr > "
    );
    let mut lab = IpvsHarness::on(IpvsSim::default(), Family::V4, IpvsOptions::default());
    lab.desired.node = Arc::new(NodeRules {
        no_endpoints: NoEndpoints::Drop,
        ..node()
    });
    lab.full(ObservedPolicy::Adopt);
    lab.set(service(1, &[]));
    assert!(lab.sim.state.servers.is_empty());
    assert_eq!(lab.entries(IpvsSetId::NoEndpoints).len(), 4);
    let rules = |table, chain| lab.sim.rules.chain(table, chain).unwrap().join("\n");
    assert!(rules("nat", "KUBE-SERVICES").contains("KUBE-NO-ENDPOINTS dst,dst -j KUBE-MARK-DROP"));
    assert!(rules("filter", "KUBE-FIREWALL").contains("--mark 0x8000/0x8000 -j DROP"));
}

#[test]
fn schedulers_follow_service_weights_and_kernel() {
    let port = |scheduler, algorithm, weights: [u16; 2]| ServicePort {
        scheduler: Scheduler::known(scheduler),
        algorithm,
        ..service(1, &[endpoint(1, weights[0]), endpoint(2, weights[1])])
    };
    let random = Algorithm::Random;
    let cases = [
        (port("", random, [1, 1]), "rr"),
        (port("", random, [1, 2]), "wrr"),
        (port("lc", random, [1, 1]), "lc"),
        (port("lc", random, [1, 2]), "wlc"),
        (port("", Algorithm::SourceHash, [1, 2]), "mh -b flag-1"),
        (port("mh", random, [1, 1]), "mh -b flag-1,flag-2"),
        (port("sh", random, [1, 1]), "sh -b flag-1"),
        (port("nq", Algorithm::SourceHash, [1, 1]), "nq"),
    ];
    for (port, words) in cases {
        let mut lab = IpvsHarness::new();
        let plan = lab.set(port);
        assert!(
            lab.server("10.96.0.1:80")
                .unwrap()
                .starts_with(&format!("-t 10.96.0.1:80 -s {words} >")),
            "{words}: {plan}"
        );
        assert!(plan.notes.is_empty());
    }
    let mut poor = IpvsHarness::with(IpvsOptions {
        available: [Scheduler::RR, Scheduler::SH].into(),
        ..IpvsOptions::default()
    });
    let plan = poor.set(port("nq", random, [1, 2]));
    assert_eq!(
        plan.notes,
        ["demo/s1:http: this kernel has no scheduler nq; rr is used"]
    );
    assert!(poor.server("10.96.0.1:80").unwrap().contains("-s rr >"));
    poor.set(port("", Algorithm::SourceHash, [1, 1]));
    assert!(
        poor.server("10.96.0.1:80")
            .unwrap()
            .contains("-s sh -b flag-1 >")
    );
}

#[test]
fn source_ranges_are_spelt_as_the_tool_spells_them() {
    let mut lab = IpvsHarness::new();
    let ranges = |nets: &[&str]| nets.iter().map(|net| net.parse().unwrap()).collect();
    let restricted = |nets: &[&str]| ServicePort {
        source_ranges: ranges(nets),
        ..service(1, &[endpoint(2, 1)])
    };
    lab.set(restricted(&["192.0.2.0/24", "198.51.100.7/32"]));
    assert_eq!(
        lab.entries(IpvsSetId::SourceCidr),
        [
            "203.0.113.1,tcp:80,192.0.2.0/24",
            "203.0.113.1,tcp:80,198.51.100.7"
        ]
    );
    assert_eq!(lab.entries(IpvsSetId::Firewall), ["203.0.113.1,tcp:80"]);
    let out = |lab: &IpvsHarness| {
        lab.sim
            .rules
            .chain("filter", "KUBE-IPVS-OUT-FILTER")
            .unwrap()
            .to_vec()
    };
    assert_eq!(
        out(&lab),
        ["-s 203.0.113.1/32 -m ipvs --vproto 6 --vaddr 203.0.113.1 --vport 80 -j DROP"]
    );
    // The node may too: its own packets have the load balancer's address.
    let plan = lab.set(restricted(&["192.0.2.0/24", "203.0.113.1/32"]));
    assert_eq!(
        lab.entries(IpvsSetId::SourceIp),
        ["203.0.113.1,tcp:80,203.0.113.1"]
    );
    assert!(out(&lab).is_empty(), "{plan}");
    assert!(lab.restart().is_empty());
    // Not so where a range covers the load balancer and not the node.
    lab.set(restricted(&["203.0.113.0/24"]));
    assert_eq!(out(&lab).len(), 1);
    let plan = lab.set(restricted(&["192.168.0.0/16", "203.0.113.0/24"]));
    assert!(out(&lab).is_empty(), "{plan}");
}

#[test]
fn a_nodes_own_address_is_served_but_not_bound() {
    let mut lab = IpvsHarness::new();
    let port = ServicePort {
        frontends: Box::new([
            Frontend::ClusterIp("10.96.0.1:80".parse().unwrap()),
            Frontend::ExternalIp("192.168.1.10:80".parse().unwrap()),
        ]),
        ..service(1, &[endpoint(2, 1)])
    };
    lab.set(port);
    assert_eq!(lab.sim.state.addresses, BTreeSet::from([ip("10.96.0.1")]));
    assert!(lab.server("192.168.1.10:80").is_some());
    // The address moves to another machine and back.
    let elsewhere = NodeRules {
        addresses: BTreeSet::from([ip("192.168.1.11")]),
        ..node()
    };
    lab.change(Vec::new(), Some(elsewhere));
    assert!(lab.sim.state.addresses.contains(&ip("192.168.1.10")));
    lab.change(Vec::new(), Some(node()));
    assert_eq!(lab.meaning(), lab.fresh().meaning());
    // It goes without a trace, also if that happens while we are not there.
    lab.desired.ports.clear();
    lab.restart();
    assert!(lab.sim.state.servers.is_empty());
}

#[test]
fn a_nodes_address_that_a_service_lists_goes_before_a_node_port() {
    let mut lab = IpvsHarness::new();
    let by_node_port = service(1, &[endpoint(2, 1)]);
    let by_address = |external: &str| ServicePort {
        frontends: Box::new([
            Frontend::ClusterIp("10.96.0.2:30001".parse().unwrap()),
            Frontend::ExternalIp(SocketAddr::new(ip(external), 30001)),
        ]),
        ..service(2, &[endpoint(4, 1)])
    };
    let serves = |lab: &IpvsHarness, wanted: &str| {
        let found = lab.server("192.168.1.10:30001").unwrap();
        assert!(found.contains(wanted), "{found}");
        assert_eq!(lab.meaning(), lab.fresh().meaning());
    };
    lab.set(by_address("192.168.1.10"));
    lab.set(by_node_port);
    serves(&lab, "10.244.1.4:8080");
    lab.set(by_address("203.0.113.9"));
    serves(&lab, "10.244.1.2:8080");
    lab.set(by_address("192.168.1.10"));
    serves(&lab, "10.244.1.4:8080");
    // It gives the address up in the moment in which the node port changes.
    let gone = (service(2, &[]).key, None);
    let changed = service(1, &[endpoint(6, 1)]);
    lab.change(vec![(changed.key.clone(), Some(changed)), gone], None);
    serves(&lab, "10.244.1.6:8080");
}

#[test]
fn sctp_and_udp_go_at_once_and_have_their_own_sets() {
    let mut lab = IpvsHarness::new();
    for protocol in [Protocol::Sctp, Protocol::Udp] {
        let mut port = service(1, &[endpoint(2, 1)]);
        port.key.protocol = protocol;
        lab.set(port.clone());
        let plan = lab.set(ServicePort {
            cluster: [endpoint(4, 1)].into(),
            ..port
        });
        assert!(!plan.to_string().contains("drain"), "{plan}");
    }
    assert_eq!(
        lab.entries(IpvsSetId::NodePortSctp),
        ["192.168.1.10,sctp:30001"]
    );
    assert_eq!(lab.entries(IpvsSetId::NodePortUdp), ["30001"]);
    assert!(lab.restart().is_empty());
}
