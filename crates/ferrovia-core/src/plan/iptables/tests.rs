//! The planner against the simulated kernel: any sequence of changes ends where one full plan would, and foreign rules stay.

mod random;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::*;
use crate::desired::{Endpoint, NoEndpoints, NodePortAddresses, NodeRules};
use crate::dialect::iptables::Commits;
use crate::dialect::iptables::sim::IptablesSim;
use crate::model::{Algorithm, PortKey};
use crate::testing::ports::{self, endpoint, node, port as service};

/// A node whose kernel is the stand-in.
struct IptablesHarness {
    desired: Desired,
    options: IptablesOptions,
    planner: IptablesPlanner,
    sim: IptablesSim,
}

impl IptablesHarness {
    /// On a machine with foreign rules.
    fn on(sim: IptablesSim, options: IptablesOptions) -> Self {
        let desired = ports::nothing(Family::V4, node());
        Self {
            desired,
            options,
            planner: IptablesPlanner::new(Family::V4, options),
            sim,
        }
    }

    fn new() -> Self {
        let mut lab = Self::on(IptablesSim::default(), IptablesOptions::default());
        lab.full(ObservedPolicy::Adopt);
        lab
    }

    fn full(&mut self, found: ObservedPolicy) -> Restore {
        let observed = IptablesObserved {
            save: self.sim.save(),
        };
        let plan = self.planner.full(&self.desired, &observed, found);
        self.write(&plan);
        plan
    }

    fn write(&mut self, plan: &Restore) {
        let written = self.sim.restore(&plan.to_string());
        written.unwrap_or_else(|why| panic!("{why}\n{plan}"));
    }

    /// A new process over what is there.
    fn restart(&mut self) -> Restore {
        self.planner = IptablesPlanner::new(Family::V4, self.options);
        self.full(ObservedPolicy::Adopt)
    }

    fn change(
        &mut self,
        changes: Vec<(PortKey, Option<ServicePort>)>,
        node: Option<NodeRules>,
    ) -> Restore {
        let delta = ports::change(&mut self.desired, changes, node);
        let plan = self.planner.incremental(&self.desired, &delta);
        self.write(&plan);
        plan
    }

    fn set(&mut self, port: ServicePort) -> Restore {
        self.change(vec![(port.key.clone(), Some(port))], None)
    }

    fn remove(&mut self, n: u8) -> Restore {
        self.change(vec![(service(n, &[]).key, None)], None)
    }

    /// All rules; the order of services in shared chains means nothing.
    fn meaning(&self) -> BTreeMap<(&'static str, String), Vec<String>> {
        let mut all = BTreeMap::new();
        for table in ["filter", "nat", "mangle"] {
            for (chain, rules) in self.sim.chains(table) {
                let mut rules = rules.clone();
                if SharedChain::ALL.iter().any(|shared| shared.name() == chain) {
                    let last = rules.last().cloned();
                    assert_eq!(
                        (table, chain.as_str()) == ("nat", "KUBE-SERVICES"),
                        last.is_some_and(|rule| rule.contains("must be the last rule"))
                    );
                    rules.sort_unstable();
                }
                all.insert((table, chain.clone()), rules);
            }
        }
        all
    }

    fn fresh(&self) -> Self {
        let mut fresh = Self::on(IptablesSim::default(), self.options);
        fresh.desired = self.desired.clone();
        fresh.full(ObservedPolicy::Adopt);
        fresh
    }

    fn rule_count(&self, table: &str) -> usize {
        let ours = self
            .sim
            .chains(table)
            .filter(|(name, _)| name.starts_with("KUBE-"));
        ours.map(|(_, rules)| rules.len()).sum()
    }
}

#[test]
fn a_change_writes_only_what_it_changes() {
    let mut lab = IptablesHarness::new();
    for n in 1..=9 {
        lab.set(service(n, &[endpoint(n, 1)]));
    }
    let plan = lab
        .set(service(5, &[endpoint(5, 1), endpoint(6, 1)]))
        .to_string();
    let svc = names::PortNames::new(&service(5, &[]).key).cluster();
    let sep =
        |n| names::endpoint_chain(&service(5, &[]).key, &names::endpoint_text(&endpoint(n, 1)));
    assert_eq!(
        plan,
        format!(
            "*nat\n:{svc} - [0:0]\n:{} - [0:0]\n\
            -A {svc} ! -s 10.244.1.0/24 -d 10.96.0.5/32 -p tcp -m comment --comment \"demo/s5:http cluster IP\" -m tcp --dport 80 -j KUBE-MARK-MASQ\n\
            -A {svc} -m comment --comment \"demo/s5:http -> 10.244.1.6:8080\" -m statistic --mode random --probability 0.50000000000 -j {}\n\
            -A {svc} -m comment --comment \"demo/s5:http -> 10.244.2.5:8080\" -j {}\n\
            -A {} -s 10.244.1.6/32 -m comment --comment \"demo/s5:http\" -j KUBE-MARK-MASQ\n\
            -A {} -p tcp -m comment --comment \"demo/s5:http\" -m tcp -j DNAT --to-destination 10.244.1.6:8080\nCOMMIT\n",
            sep(6),
            sep(6),
            sep(5),
            sep(6),
            sep(6)
        )
    );
    assert!(
        lab.set(service(5, &[endpoint(5, 1), endpoint(6, 1)]))
            .is_empty()
    );
}

#[test]
fn a_service_that_goes_leaves_nothing() {
    let mut lab = IptablesHarness::new();
    let empty = lab.sim.save();
    lab.set(service(1, &[endpoint(1, 1), endpoint(2, 1)]));
    let plan = lab.remove(1);
    assert_eq!(lab.sim.save(), empty);
    assert_eq!(plan.sections().len(), 1, "{plan}");
}

#[test]
fn refusals_come_before_the_way_to_endpoints_goes_and_go_after_it_has_come() {
    let mut lab = IptablesHarness::new();
    lab.set(service(1, &[]));
    let tables =
        |plan: &Restore| -> Vec<_> { plan.sections().iter().map(|s| s.table().as_str()).collect() };
    assert_eq!(
        tables(&lab.set(service(1, &[endpoint(1, 1)]))),
        ["nat", "filter"]
    );
    assert_eq!(tables(&lab.set(service(1, &[]))), ["filter", "nat"]);
}

#[test]
fn node_ports_answer_on_those_loopback_addresses_that_are_in_range() {
    let addresses = |list: &[&str]| {
        let parsed = list.iter().map(|ip| ip.parse().unwrap());
        NodePortAddresses::Only(parsed.collect())
    };
    for (in_range, localhost_node_ports, answering) in [
        (
            &["127.0.0.1"][..],
            true,
            &["127.0.0.1/32", "198.51.100.10/32"][..],
        ),
        (&["127.0.0.1"], false, &["198.51.100.10/32"]),
        // The range was within 127.0.0.0/8 and had no address of this machine in it.
        (&[], true, &["198.51.100.10/32"]),
    ] {
        let options = IptablesOptions {
            localhost_node_ports,
            ..IptablesOptions::default()
        };
        let mut lab = IptablesHarness::on(IptablesSim::default(), options);
        lab.desired.node = Arc::new(NodeRules {
            node_ports: addresses(&["198.51.100.10"]),
            health_checks: addresses(&[in_range, &["198.51.100.10"]].concat()),
            ..node()
        });
        lab.full(ObservedPolicy::Adopt);
        let mut chains = lab.sim.chains("nat");
        let (_, rules) = chains.find(|(name, _)| *name == "KUBE-SERVICES").unwrap();
        let mut found: Vec<&str> = rules
            .iter()
            .filter_map(|rule| rule.split("-d ").nth(1)?.split(' ').next())
            .collect();
        found.sort_unstable();
        assert_eq!(found, answering, "{rules:?}");
    }
}

#[test]
fn rules_are_as_many_as_kube_proxys() {
    let options = IptablesOptions {
        count_invalid: true,
        count_localhost: true,
        ..IptablesOptions::default()
    };
    let balancer = |n, endpoints: &[Endpoint]| ServicePort {
        source_ranges: Box::new(["192.0.2.0/24".parse().unwrap()]),
        ..service(n, endpoints)
    };
    let cluster_ip = |n, endpoints: &[Endpoint]| {
        let port = service(n, endpoints);
        ServicePort {
            frontends: port.frontends[..1].into(),
            ..port
        }
    };
    // The load balancer of kube-proxy's test has an external IP more: one rule to it, or one that refuses.
    for (services, endpoints, small, big) in [
        (0, 0, (4, 5), (4, 5)),
        (1, 0, (5, 5), (7, 5)),
        (1, 1, (4, 10), (5, 17)),
        (1, 2, (4, 13), (5, 20)),
        (10, 10, (4, 325), (14, 395)),
    ] {
        let eps: Vec<_> = (1..=endpoints).map(|n| endpoint(n, 1)).collect();
        let counts = |make: &dyn Fn(u8, &[Endpoint]) -> ServicePort| {
            let mut lab = IptablesHarness::on(IptablesSim::default(), options);
            lab.full(ObservedPolicy::Adopt);
            for n in 1..=services {
                lab.set(make(n, &eps));
            }
            (lab.rule_count("filter"), lab.rule_count("nat"))
        };
        assert_eq!(counts(&cluster_ip), small, "{services} x {endpoints}");
        assert_eq!(counts(&balancer), big, "{services} x {endpoints}");
    }
}

#[test]
fn restart_with_an_unchanged_cluster_writes_nothing() {
    let mut lab = IptablesHarness::new();
    for n in 1..=6 {
        let mut port = service(n, &[endpoint(n, 1), endpoint(9, 2)]);
        port.affinity = (n % 2 == 0).then_some(600);
        lab.set(port);
    }
    let plan = lab.restart();
    assert!(plan.is_empty(), "{plan}");
}

#[test]
fn damage_is_repaired_and_nothing_else_is_written() {
    let mut lab = IptablesHarness::new();
    for n in 1..=3 {
        lab.set(service(n, &[endpoint(1, 1), endpoint(2, 1)]));
    }
    let whole = lab.meaning();
    let svc = names::PortNames::new(&service(2, &[]).key).cluster();
    let damage = [
        format!("*nat\n:{svc} - [0:0]\nCOMMIT\n"),
        "*nat\n-A KUBE-SERVICES -p udp -j RETURN\n-A KUBE-MARK-MASQ -j RETURN\nCOMMIT\n".into(),
        "*nat\n:KUBE-NODEPORTS - [0:0]\nCOMMIT\n".into(),
        "*filter\n:KUBE-FORWARD - [0:0]\n:FORWARD - [0:0]\n:KUBE-FIREWALL - [0:0]\nCOMMIT\n".into(),
        format!("*nat\n-I KUBE-SERVICES -j {svc}\n-A KUBE-PROXY-CANARY -j RETURN\nCOMMIT\n"),
    ];
    for damage in damage {
        lab.sim.restore(&damage).unwrap();
        let plan = lab.full(ObservedPolicy::Adopt);
        assert_eq!(lab.meaning(), whole, "{damage}{plan}");
        assert!(plan.to_string().lines().count() < 16, "{plan}");
    }
}

#[test]
fn foreign_rules_stay_and_chains_they_reference_are_only_flushed() {
    let foreign = "*nat\n:PREROUTING ACCEPT [0:0]\n:MINE - [0:0]\n:KUBE-FW-home - [0:0]\n:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]\n:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]\n\
        -A PREROUTING -j MINE\n-A MINE -j KUBE-SVC-AAAAAAAAAAAAAAAA\n-A KUBE-SVC-AAAAAAAAAAAAAAAA -j KUBE-SEP-AAAAAAAAAAAAAAAA\nCOMMIT\n\
        *filter\n:KUBE-FIREWALL - [0:0]\n-A KUBE-FIREWALL -s 192.0.2.1/32 -j DROP\nCOMMIT\n";
    let mut lab = IptablesHarness::on(IptablesSim::load(foreign), IptablesOptions::default());
    let plan = lab.full(ObservedPolicy::Adopt);
    assert_eq!(plan.notes.len(), 1, "{:?}", plan.notes);
    let chain = |table, name| lab.sim.chain(table, name).map(|rules| rules.join("\n"));
    assert_eq!(
        chain("nat", "MINE").as_deref(),
        Some("-j KUBE-SVC-AAAAAAAAAAAAAAAA")
    );
    assert_eq!(chain("nat", "KUBE-FW-home").as_deref(), Some(""));
    assert_eq!(
        chain("nat", "KUBE-SVC-AAAAAAAAAAAAAAAA").as_deref(),
        Some("")
    );
    assert_eq!(chain("nat", "KUBE-SEP-AAAAAAAAAAAAAAAA"), None);
    assert!(
        chain("filter", "KUBE-FIREWALL")
            .unwrap()
            .starts_with("-s 192.0.2.1/32 -j DROP\n")
    );
    assert!(lab.restart().is_empty());
}

#[test]
fn foreign_rules_in_our_chains_are_reported_and_removed() {
    let foreign = "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]\n\
        -A KUBE-SERVICES -p tcp -m tcp --dport 22 -j RETURN\n-A KUBE-SERVICES -d 10.0.0.1/32 -j KUBE-SVC-AAAAAAAAAAAAAAAA\n\
        -A KUBE-SVC-AAAAAAAAAAAAAAAA -j REDIRECT --to-ports 1\nCOMMIT\n\
        *filter\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -m comment --comment mine -j DROP\nCOMMIT\n";
    let mut lab = IptablesHarness::on(IptablesSim::load(foreign), IptablesOptions::default());
    let plan = lab.full(ObservedPolicy::Adopt);
    assert_eq!(plan.notes.len(), 3, "{:?}", plan.notes);
    assert!(
        plan.notes[1].contains("--dport 22 -j RETURN"),
        "{:?}",
        plan.notes
    );
    assert_eq!(lab.meaning(), lab.fresh().meaning());
    // Rules of unknown services are a kube-proxy's, and ours are not foreign.
    lab.set(service(1, &[endpoint(1, 1), endpoint(2, 1)]));
    lab.set(ServicePort {
        source_ranges: Box::new(["192.0.2.0/24".parse().unwrap()]),
        ..service(2, &[endpoint(3, 1)])
    });
    lab.set(service(3, &[]));
    lab.desired.ports.clear();
    let plan = lab.restart();
    assert!(!plan.is_empty());
    assert_eq!(plan.notes, Vec::<String>::new());
}

#[test]
fn rules_of_unknown_services_are_kept_while_objects_are_missing() {
    let mut lab = IptablesHarness::new();
    lab.set(service(1, &[endpoint(1, 1)]));
    lab.set(ServicePort {
        source_ranges: Box::new(["192.0.2.0/24".parse().unwrap()]),
        ..service(2, &[endpoint(1, 1), endpoint(2, 1)])
    });
    let whole = lab.meaning();
    lab.desired
        .ports
        .retain(|key, _| key.service.name() == "s1");
    lab.planner = IptablesPlanner::new(Family::V4, lab.options);
    let plan = lab.full(ObservedPolicy::KeepUnknown);
    assert!(plan.is_empty(), "{plan}");
    // So much differs that a chain is rewritten; rules of unknown services are kept.
    lab.sim
        .restore(&format!(
            "*nat\n{}COMMIT\n",
            "-A KUBE-SERVICES -j RETURN\n".repeat(40)
        ))
        .unwrap();
    lab.full(ObservedPolicy::KeepUnknown);
    assert_eq!(lab.meaning(), whole);
    // All is known: what is left over goes.
    lab.full(ObservedPolicy::Adopt);
    assert_eq!(lab.meaning(), lab.fresh().meaning());
}

#[test]
fn replacing_writes_everything() {
    let mut lab = IptablesHarness::new();
    lab.set(service(1, &[endpoint(1, 1)]));
    let whole = lab.meaning();
    let plan = lab.full(ObservedPolicy::Replace).to_string();
    assert_eq!(lab.meaning(), whole);
    for chain in ["KUBE-SERVICES", "KUBE-MARK-MASQ", "KUBE-FORWARD"] {
        assert!(plan.contains(&format!(":{chain} - [0:0]")), "{plan}");
    }
}

#[test]
fn services_without_endpoints_can_be_dropped_by_a_mark() {
    let mut lab = IptablesHarness::on(IptablesSim::default(), IptablesOptions::default());
    lab.desired.node = Arc::new(NodeRules {
        no_endpoints: NoEndpoints::Drop,
        ..node()
    });
    lab.full(ObservedPolicy::Adopt);
    lab.set(service(1, &[]));
    let rules = |table, chain| lab.sim.chain(table, chain).unwrap().join("\n");
    assert_eq!(
        rules("nat", "KUBE-MARK-DROP"),
        "-j MARK --set-xmark 0x8000/0x8000"
    );
    let services = rules("nat", "KUBE-SERVICES");
    assert_eq!(
        services
            .matches("has no endpoints\" -m tcp --dport 80 -j KUBE-MARK-DROP")
            .count(),
        2,
        "{services}"
    );
    assert!(rules("nat", "KUBE-NODEPORTS").contains("--dport 30001 -j KUBE-MARK-DROP"));
    assert!(rules("filter", "KUBE-FIREWALL").starts_with(
        "-m comment --comment \"kubernetes firewall for dropping marked packets\" -m mark --mark 0x8000/0x8000 -j DROP\n"
    ));
    assert!(rules("filter", "FORWARD").contains("-j KUBE-FIREWALL"));
    assert_eq!(rules("filter", "KUBE-SERVICES"), "");
    lab.set(service(1, &[endpoint(1, 1)]));
    assert_eq!(lab.meaning(), lab.fresh().meaning());
}

#[test]
fn crossing_into_a_large_cluster_rewrites_nothing_that_stays() {
    let mut lab = IptablesHarness::new();
    lab.set(service(1, &[endpoint(1, 1)]));
    let crowd = |n: u8| {
        let eps: Vec<_> = (1..=255u8)
            .map(|m| Endpoint {
                ip: [10, 1, n, m].into(),
                ..endpoint(1, 1)
            })
            .collect();
        service(n, &eps)
    };
    lab.change(
        (10..14).map(|n| (crowd(n).key, Some(crowd(n)))).collect(),
        None,
    );
    let plan = lab.full(ObservedPolicy::Adopt);
    assert!(plan.is_empty(), "{plan}");
    let svc = names::PortNames::new(&crowd(10).key).cluster();
    assert!(
        lab.sim
            .chain("nat", &svc)
            .unwrap()
            .iter()
            .skip(1)
            .all(|rule| !rule.contains("--comment"))
    );
    // Written again, it is written without.
    let plan = lab
        .set(service(1, &[endpoint(1, 1), endpoint(2, 1)]))
        .to_string();
    assert!(!plan.contains("->"), "{plan}");
}

#[test]
fn a_big_change_is_cut_for_the_nft_tool_only() {
    for (commits, few) in [(Commits::One, true), (Commits::Many, false)] {
        let options = IptablesOptions {
            commits,
            ..IptablesOptions::default()
        };
        let mut lab = IptablesHarness::on(IptablesSim::default(), options);
        let many = (1..=250).map(|n| service(n, &[endpoint(1, 1), endpoint(2, 1)]));
        lab.desired.ports = many
            .map(|port| (port.key.clone(), Arc::new(port)))
            .collect();
        let plan = lab.full(ObservedPolicy::Adopt);
        let sections = plan
            .sections()
            .iter()
            .filter(|section| section.table().as_str() == "nat");
        assert_eq!(sections.count() == 1, few);
        let ports = std::mem::take(&mut lab.desired.ports);
        lab.full(ObservedPolicy::Adopt);
        assert_eq!(lab.meaning(), lab.fresh().meaning());
        // The same piece by piece.
        lab.desired.ports = ports;
        lab.full(ObservedPolicy::Adopt);
        lab.change(
            (1..=250).map(|n| (service(n, &[]).key, None)).collect(),
            None,
        );
        assert_eq!(lab.meaning(), lab.fresh().meaning());
    }
}

#[test]
fn unsupported_options_are_reported_once() {
    let mut lab = IptablesHarness::on(IptablesSim::default(), IptablesOptions::default());
    let hashed = |n| ServicePort {
        algorithm: Algorithm::SourceHash,
        ..service(n, &[endpoint(1, 1)])
    };
    lab.desired.ports.insert(hashed(1).key, Arc::new(hashed(1)));
    assert_eq!(lab.full(ObservedPolicy::Adopt).notes.len(), 1);
    assert_eq!(lab.full(ObservedPolicy::Adopt).notes.len(), 0);
    assert_eq!(lab.set(hashed(2)).notes.len(), 1);
}

#[test]
fn a_tool_that_prints_rules_differently_gets_no_second_jump() {
    let mut lab = IptablesHarness::new();
    let mut jumps = Vec::new();
    for _ in 0..3 {
        let save = lab
            .sim
            .save()
            .replace("-m conntrack --ctstate", "-m state --state");
        let plan = lab.planner.full(
            &lab.desired,
            &IptablesObserved { save },
            ObservedPolicy::Adopt,
        );
        lab.write(&plan);
        let input = lab.sim.chain("filter", "INPUT").unwrap();
        jumps.push((
            input.len(),
            lab.sim.chain("filter", "KUBE-FIREWALL").unwrap().len(),
        ));
    }
    assert_eq!(jumps, [(4, 1); 3]);
    // One that is really gone comes back.
    lab.sim
        .restore("*filter\n:INPUT - [0:0]\nCOMMIT\n")
        .unwrap();
    lab.full(ObservedPolicy::Adopt);
    assert_eq!(lab.sim.chain("filter", "INPUT").unwrap().len(), 4);
}

#[test]
fn other_addresses_of_the_node_change_nothing() {
    let mut lab = IptablesHarness::new();
    lab.set(service(1, &[endpoint(1, 1)]));
    let moved = NodeRules {
        addresses: BTreeSet::from(["192.0.2.7".parse().unwrap()]),
        ..node()
    };
    let plan = lab.change(Vec::new(), Some(moved));
    assert!(plan.is_empty(), "{plan}");
}
