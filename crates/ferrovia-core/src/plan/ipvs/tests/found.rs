//! What a full plan makes of what it finds in the kernel, ours and others'.

use super::*;
use crate::dialect::ipset::{Kind, Set, SetName};
use crate::dialect::iptables::TableName;
use crate::dialect::ipvs::Server;
use crate::plan::iptables::{IptablesOptions, IptablesPlanner};

#[test]
fn servers_of_others_stay() {
    let mut lab = Lab::new();
    lab.set(service(1, &[endpoint(2, 1)]));
    let foreign = ["192.0.2.1:80", "192.168.1.10:5000", "192.0.2.1:30001"];
    let excluded = "10.96.0.200:80";
    for at in foreign.into_iter().chain([excluded]) {
        let server = Server {
            key: tcp(at),
            scheduler: Scheduler::RR,
            flags: 0,
            persistence: None,
        };
        (lab.sim.state.servers).insert(server.key, (server, BTreeMap::new()));
    }
    lab.sim.state.addresses.insert(ip("10.96.0.200"));
    lab.options.exclude_cidrs = vec!["10.96.0.128/25".parse().unwrap()];
    lab.desired.ports.clear();
    lab.restart();
    let left: Vec<ServerKey> = lab.sim.state.servers.keys().copied().collect();
    let mut expected: Vec<_> = foreign.into_iter().chain([excluded]).map(tcp).collect();
    expected.sort_unstable();
    assert_eq!(left, expected);
    // Nor does cleaning up touch them.
    let plan = cleanup(Family::V4, &lab.sim.observed(), &node().addresses);
    lab.write(&plan);
    assert_eq!(lab.sim.state.servers.len(), 4);
}

#[test]
fn cleaning_up_leaves_nothing_of_ours() {
    let mut lab = Lab::new();
    lab.sim
        .rules
        .restore("*filter\n:MINE - [0:0]\n-A INPUT -j MINE\n-A MINE -j KUBE-IPVS-FILTER\nCOMMIT\n")
        .unwrap();
    lab.set(service(1, &[endpoint(2, 1)]));
    let plan = cleanup(Family::V4, &lab.sim.observed(), &node().addresses);
    // By the device is told that something is left, so nothing comes behind it.
    assert_eq!(plan.steps.last(), Some(&Step::NoDevice));
    lab.write(&plan);
    let state = &lab.sim.state;
    assert!(!state.device && state.servers.is_empty() && state.sets.is_empty());
    // Somebody leads to one of our chains.
    assert_eq!(
        lab.sim.rules.chain("filter", "KUBE-IPVS-FILTER"),
        Some(&[][..])
    );
    assert_eq!(lab.sim.rules.chain("filter", "KUBE-IPVS-POLICY"), None);
    let save = lab.sim.rules.save();
    let left = crate::dialect::iptables::leftovers(&save).unwrap();
    lab.sim.rules.restore(&left.restore().to_string()).unwrap();
    let save = lab.sim.rules.save();
    assert!(!save.contains("KUBE-SERVICES"), "{save}");
    assert!(save.contains("-A INPUT -j MINE"));
}

#[test]
fn cleaning_up_leaves_sets_that_rules_of_others_look_into() {
    let mut lab = Lab::new();
    let theirs = SetName::new("THEIRS").unwrap();
    let like_ours = lab.sim.state.sets[&SetId::Addresses.name(Family::V4)].clone();
    lab.sim.state.sets.insert(theirs, like_ours);
    // Into one of theirs first, and in a table where we have nothing.
    lab.sim
        .rules
        .restore(
            "*filter\n:MINE - [0:0]\n\
             -A MINE -m set --match-set THEIRS src -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT\nCOMMIT\n\
             *raw\n:KUBE-MINE - [0:0]\n-A KUBE-MINE -m set --match-set KUBE-IPVS-IPS dst -j ACCEPT\nCOMMIT\n",
        )
        .unwrap();
    let plan = cleanup(Family::V4, &lab.sim.observed(), &node().addresses);
    lab.write(&plan);
    let left: Vec<&str> = lab.sim.state.sets.keys().map(SetName::as_str).collect();
    assert_eq!(left, ["KUBE-CLUSTER-IP", "KUBE-IPVS-IPS", "THEIRS"]);
    assert_eq!(plan.notes.len(), 2, "{:?}", plan.notes);
}

#[test]
fn services_we_know_nothing_of_keep_working() {
    let mut lab = Lab::new();
    lab.set(ServicePort {
        external_policy: TrafficPolicy::Local,
        ..local(service(1, &[endpoint(2, 1)]))
    });
    lab.set(service(2, &[endpoint(2, 1)]));
    let whole = lab.meaning();
    lab.desired.ports.clear();
    lab.planner = IpvsPlanner::new(Family::V4, lab.options.clone());
    let plan = lab.full(Found::Keep);
    assert!(plan.is_empty(), "{plan}");
    assert_eq!(lab.meaning(), whole);
    // What has changed of a known one is written.
    lab.desired.ports = [service(1, &[endpoint(4, 1)])]
        .map(|port| (port.key.clone(), Arc::new(port)))
        .into();
    lab.full(Found::Keep);
    assert!(lab.entries(SetId::LoadBalancerLocal).is_empty());
    assert!(lab.entries(SetId::NodePortLocalTcp).is_empty());
    assert!(
        lab.server("10.96.0.1:80")
            .unwrap()
            .ends_with("> 10.244.1.4:8080 x1")
    );
    assert!(lab.server("10.96.0.2:80").is_some());
    lab.full(Found::Adopt);
    assert_eq!(lab.meaning(), lab.fresh().meaning());
}

#[test]
fn everything_can_be_written_anew() {
    let mut lab = Lab::new();
    lab.set(service(1, &[endpoint(2, 1)]));
    let whole = lab.meaning();
    let plan = lab.full(Found::Replace).to_string();
    assert_eq!(lab.meaning(), whole);
    assert!(plan.contains(":KUBE-SERVICES") && plan.contains("swap KUBE-SWAP KUBE-CLUSTER-IP"));
    assert!(plan.contains("-A -t 10.96.0.1:80 -s rr"));
}

#[test]
fn sets_that_are_narrow_strange_or_half_made_are_replaced() {
    let mut lab = Lab::new();
    lab.set(service(1, &[endpoint(2, 1)]));
    let whole = lab.meaning();
    let name = |set: SetId| set.name(Family::V4);
    let sets = &mut lab.sim.state.sets;
    sets.get_mut(&name(SetId::LoadBalancer)).unwrap().max = 1;
    sets.get_mut(&name(SetId::ClusterIp)).unwrap().has_others = true;
    let strange = sets.get_mut(&name(SetId::ExternalIp)).unwrap();
    *strange = Set {
        kind: Some(Kind::Ip(Family::V4)),
        entries: BTreeSet::new(),
        ..strange.clone()
    };
    let half_made = strange.clone();
    sets.insert(SetName::new("KUBE-SWAP").unwrap(), half_made);
    let plan = lab.restart();
    assert_eq!(lab.meaning(), whole);
    assert_eq!(plan.notes.len(), 1);
    assert!(lab.restart().is_empty());
}

/// By their names is told what a predecessor left and what is ours.
#[test]
fn our_own_chains_are_those_we_write() {
    let context = Context::new(
        Family::V4,
        &IpvsOptions::default(),
        &node(),
        Listed::default(),
    );
    let written = rules::chains(&context).into_iter();
    let written: BTreeSet<_> = written
        .map(|chain| (chain.table, chain.name))
        .chain([(TableName::Filter, rules::OUT_FILTER)])
        .collect();
    assert_eq!(written, BTreeSet::from(rules::OWN));
}

#[test]
fn a_destination_that_drains_is_told_of_at_every_comparison() {
    let mut lab = Lab::new();
    let port = ServicePort {
        frontends: service(1, &[]).frontends[..1].into(),
        ..service(1, &[endpoint(1, 1)])
    };
    lab.set(ServicePort {
        cluster: [endpoint(2, 1)].into(),
        ..port.clone()
    });
    lab.set(port);
    // It has connections, so the kernel still has it.
    let (_, there) = lab.sim.state.servers.get_mut(&tcp("10.96.0.1:80")).unwrap();
    there.insert("10.244.1.2:8080".parse().unwrap(), 0);
    let drain = "-d -t 10.96.0.1:80 -r 10.244.1.2:8080 drain\n";
    let found = lab.sim.clone();
    assert_eq!(lab.full(Found::Adopt).to_string(), drain);
    // Whoever writes has to learn of it, also in a new process.
    lab.sim = found;
    assert_eq!(lab.restart().to_string(), drain);
}

/// Whoever changes to another mode is not told that our rules are somebody else's, and nothing of them stays.
#[test]
fn other_modes_know_our_rules() {
    for family in Family::ALL {
        let mut lab = Lab::on(Sim::default(), family, IpvsOptions::default());
        lab.desired.node = Arc::new(NodeRules {
            no_endpoints: NoEndpoints::Drop,
            ..node()
        });
        lab.full(Found::Adopt);
        assert!(
            !lab.sim
                .rules
                .chain("nat", "KUBE-SERVICES")
                .unwrap()
                .is_empty()
        );

        let options = IptablesOptions::default();
        let mut iptables = IptablesPlanner::new(family, options);
        let plan = iptables.full(&lab.desired, &lab.sim.observed().rules, Found::Adopt);
        assert_eq!(plan.notes, [""; 0], "{family}");

        let plan = cleanup(family, &lab.sim.observed(), &node().addresses);
        assert_eq!(plan.notes, [""; 0], "{family}");
        lab.write(&plan);
        let save = lab.sim.rules.save();
        let left = crate::dialect::iptables::leftovers(&save).unwrap();
        assert_eq!(left.kept().next(), None, "{family}");
    }
}

#[test]
fn the_iptables_mode_serves_until_all_is_ready() {
    let mut sim = Sim::default();
    sim.rules
        .restore("*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-ABCDEFGHIJKLMNOP - [0:0]\n:KUBE-NODEPORTS - [0:0]\n\
                  -A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n\
                  -A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-ABCDEFGHIJKLMNOP\n-A KUBE-SERVICES -j KUBE-NODEPORTS\nCOMMIT\n\
                  *filter\n:KUBE-EXTERNAL-SERVICES - [0:0]\n-A INPUT -j KUBE-EXTERNAL-SERVICES\nCOMMIT\n")
        .unwrap();
    let mut lab = Lab::on(sim, Family::V4, IpvsOptions::default());
    lab.desired.ports = [service(1, &[endpoint(2, 1)])]
        .map(|port| (port.key.clone(), Arc::new(port)))
        .into();
    let plan = lab.full(Found::Adopt);
    let text = plan.to_string();
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
    assert!(at("*filter") < at("-A -t 10.96.0.1:80"));
    assert!(at("address add 10.96.0.1/32") < at("*nat\n"));
    assert!(at("*nat\n") < at("-X KUBE-SVC-ABCDEFGHIJKLMNOP"));
    assert_eq!(lab.meaning(), lab.fresh().meaning());
    assert!(lab.restart().is_empty());
}
