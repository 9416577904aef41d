//! What a full plan makes of what it finds in the kernel, ours and others'.

use super::*;
use crate::dialect::ipset::{IpsetName, IpsetType, ObservedIpset};
use crate::dialect::iptables::TableName;
use crate::dialect::ipvs::VirtualServer;
use crate::plan::iptables::{IptablesOptions, IptablesPlanner};

#[test]
fn foreign_virtual_servers_stay() {
    let mut lab = IpvsHarness::new();
    lab.set(service(1, &[endpoint(2, 1)]));
    let foreign = ["192.0.2.1:80", "192.168.1.10:5000", "192.0.2.1:30001"];
    let excluded = "10.96.0.200:80";
    for at in foreign.into_iter().chain([excluded]) {
        let server = VirtualServer {
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
    let left: Vec<VirtualServerKey> = lab.sim.state.servers.keys().copied().collect();
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
    let mut lab = IpvsHarness::new();
    lab.sim
        .rules
        .restore("*filter\n:MINE - [0:0]\n-A INPUT -j MINE\n-A MINE -j KUBE-IPVS-FILTER\nCOMMIT\n")
        .unwrap();
    lab.set(service(1, &[endpoint(2, 1)]));
    let plan = cleanup(Family::V4, &lab.sim.observed(), &node().addresses);
    // The device marks that something is left, so it is removed last.
    assert_eq!(plan.steps.last(), Some(&IpvsStep::NoDevice));
    lab.write(&plan);
    let state = &lab.sim.state;
    assert!(!state.device && state.servers.is_empty() && state.sets.is_empty());
    // A foreign rule jumps to one of our chains.
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
fn cleanup_keeps_sets_that_foreign_rules_match() {
    let mut lab = IpvsHarness::new();
    let theirs = IpsetName::new("THEIRS").unwrap();
    let like_ours = lab.sim.state.sets[&IpvsSetId::Addresses.name(Family::V4)].clone();
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
    let left: Vec<&str> = lab.sim.state.sets.keys().map(IpsetName::as_str).collect();
    assert_eq!(left, ["KUBE-CLUSTER-IP", "KUBE-IPVS-IPS", "THEIRS"]);
    assert_eq!(plan.notes.len(), 2, "{:?}", plan.notes);
}

#[test]
fn unknown_services_keep_working() {
    let mut lab = IpvsHarness::new();
    lab.set(ServicePort {
        external_policy: TrafficPolicy::Local,
        ..local(service(1, &[endpoint(2, 1)]))
    });
    lab.set(service(2, &[endpoint(2, 1)]));
    let whole = lab.meaning();
    lab.desired.ports.clear();
    lab.planner = IpvsPlanner::new(Family::V4, lab.options.clone());
    let plan = lab.full(ObservedPolicy::KeepUnknown);
    assert!(plan.is_empty(), "{plan}");
    assert_eq!(lab.meaning(), whole);
    // What has changed of a known one is written.
    lab.desired.ports = [service(1, &[endpoint(4, 1)])]
        .map(|port| (port.key.clone(), Arc::new(port)))
        .into();
    lab.full(ObservedPolicy::KeepUnknown);
    assert!(lab.entries(IpvsSetId::LoadBalancerLocal).is_empty());
    assert!(lab.entries(IpvsSetId::NodePortLocalTcp).is_empty());
    assert!(
        lab.server("10.96.0.1:80")
            .unwrap()
            .ends_with("> 10.244.1.4:8080 x1")
    );
    assert!(lab.server("10.96.0.2:80").is_some());
    lab.full(ObservedPolicy::Adopt);
    assert_eq!(lab.meaning(), lab.fresh().meaning());
}

#[test]
fn everything_can_be_rewritten() {
    let mut lab = IpvsHarness::new();
    lab.set(service(1, &[endpoint(2, 1)]));
    let whole = lab.meaning();
    let plan = lab.full(ObservedPolicy::Replace).to_string();
    assert_eq!(lab.meaning(), whole);
    assert!(plan.contains(":KUBE-SERVICES") && plan.contains("swap KUBE-SWAP KUBE-CLUSTER-IP"));
    assert!(plan.contains("-A -t 10.96.0.1:80 -s rr"));
}

#[test]
fn sets_that_are_narrow_strange_or_half_made_are_replaced() {
    let mut lab = IpvsHarness::new();
    lab.set(service(1, &[endpoint(2, 1)]));
    let whole = lab.meaning();
    let name = |set: IpvsSetId| set.name(Family::V4);
    let sets = &mut lab.sim.state.sets;
    sets.get_mut(&name(IpvsSetId::LoadBalancer)).unwrap().max = 1;
    sets.get_mut(&name(IpvsSetId::ClusterIp))
        .unwrap()
        .has_others = true;
    let strange = sets.get_mut(&name(IpvsSetId::ExternalIp)).unwrap();
    *strange = ObservedIpset {
        kind: Some(IpsetType::Ip(Family::V4)),
        entries: BTreeSet::new(),
        ..strange.clone()
    };
    let half_made = strange.clone();
    sets.insert(IpsetName::new("KUBE-SWAP").unwrap(), half_made);
    let plan = lab.restart();
    assert_eq!(lab.meaning(), whole);
    assert_eq!(plan.notes.len(), 1);
    assert!(lab.restart().is_empty());
}

/// Names distinguish leftovers of a previous proxy from our own objects.
#[test]
fn our_own_chains_are_those_we_write() {
    let context = IpvsContext::new(
        Family::V4,
        &IpvsOptions::default(),
        &node(),
        NodeAddressFrontends::default(),
    );
    let written = rules::chains(&context).into_iter();
    let written: BTreeSet<_> = written
        .map(|chain| (chain.table, chain.name))
        .chain([(TableName::Filter, rules::OUT_FILTER)])
        .collect();
    assert_eq!(written, BTreeSet::from(rules::OWN));
}

#[test]
fn a_draining_destination_is_in_every_full_plan() {
    let mut lab = IpvsHarness::new();
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
    assert_eq!(lab.full(ObservedPolicy::Adopt).to_string(), drain);
    // The applier must report it, also in a new process.
    lab.sim = found;
    assert_eq!(lab.restart().to_string(), drain);
}

/// A change to another mode does not report our own rules as foreign, and leaves none of them behind.
#[test]
fn other_modes_know_our_rules() {
    for family in Family::ALL {
        let mut lab = IpvsHarness::on(IpvsSim::default(), family, IpvsOptions::default());
        lab.desired.node = Arc::new(NodeRules {
            no_endpoints: NoEndpoints::Drop,
            ..node()
        });
        lab.full(ObservedPolicy::Adopt);
        assert!(
            !lab.sim
                .rules
                .chain("nat", "KUBE-SERVICES")
                .unwrap()
                .is_empty()
        );

        let options = IptablesOptions::default();
        let mut iptables = IptablesPlanner::new(family, options);
        let plan = iptables.full(
            &lab.desired,
            &lab.sim.observed().rules,
            ObservedPolicy::Adopt,
        );
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
    let mut sim = IpvsSim::default();
    sim.rules
        .restore("*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-ABCDEFGHIJKLMNOP - [0:0]\n:KUBE-NODEPORTS - [0:0]\n\
                  -A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n\
                  -A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-ABCDEFGHIJKLMNOP\n-A KUBE-SERVICES -j KUBE-NODEPORTS\nCOMMIT\n\
                  *filter\n:KUBE-EXTERNAL-SERVICES - [0:0]\n-A INPUT -j KUBE-EXTERNAL-SERVICES\nCOMMIT\n")
        .unwrap();
    let mut lab = IpvsHarness::on(sim, Family::V4, IpvsOptions::default());
    lab.desired.ports = [service(1, &[endpoint(2, 1)])]
        .map(|port| (port.key.clone(), Arc::new(port)))
        .into();
    let plan = lab.full(ObservedPolicy::Adopt);
    let text = plan.to_string();
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
    assert!(at("*filter") < at("-A -t 10.96.0.1:80"));
    assert!(at("address add 10.96.0.1/32") < at("*nat\n"));
    assert!(at("*nat\n") < at("-X KUBE-SVC-ABCDEFGHIJKLMNOP"));
    assert_eq!(lab.meaning(), lab.fresh().meaning());
    assert!(lab.restart().is_empty());
}
