//! The planner and the applier together: what is planned from what was read, until there is nothing left to plan.

use std::collections::BTreeSet;

use ferrovia_core::family::Family;
use ferrovia_core::plan::ipvs::{IpvsOptions, IpvsPlanner, cleanup};
use ferrovia_core::plan::{ObservedPolicy, Planner as _};
use ferrovia_host::Applier as _;
use ferrovia_lab::kube_proxy_rules::{self, ServiceShape};
use ferrovia_lab::uml::suite::Test;

use crate::applier::applier_of;
use crate::support::{in_namespace, run};

pub(crate) const TESTS: [Test; 1] = [(
    "planner: a restart writes nothing and a cleanup leaves nothing of ours",
    a_restart_writes_nothing_and_a_cleanup_leaves_nothing_of_ours,
)];

/// Those with the most to write: node ports, source ranges, local policy with and without local endpoints. Those of IPv6 come on top.
const CHOSEN: [&str; 4] = ["S5", "S8", "S9", "S10"];

fn a_restart_writes_nothing_and_a_cleanup_leaves_nothing_of_ours() {
    let is_chosen =
        |shape: &ServiceShape| CHOSEN.contains(&shape.name) || shape.family == Family::V6;
    let chosen: Vec<ServiceShape> = kube_proxy_rules::all()
        .into_iter()
        .filter(is_chosen)
        .collect();
    assert!(chosen.len() > CHOSEN.len());
    for shape in chosen {
        in_namespace(move || check(&shape));
    }
}

fn check(shape: &ServiceShape) {
    let (name, family) = (shape.name, shape.family);
    // Another process's, at an address of another process's.
    run("ipvsadm -A -t 192.0.2.1:80 -s wlc");
    run("ipset create SOMEBODYS hash:ip");
    let before = (run("ipvsadm -S -n"), run("ipset save"));
    let desired = shape.desired();
    let mut applier = applier_of(family);
    let mut planner = IpvsPlanner::new(family, IpvsOptions::default());
    let observed = applier.observe().unwrap();
    let plan = planner.full(&desired, &observed, ObservedPolicy::Adopt);
    assert!(applier.apply(&plan).unwrap(), "{name}");
    assert!(applier.is_untouched().unwrap(), "{name}");

    // A new process finds everything as it should be.
    let mut applier = applier_of(family);
    let mut planner = IpvsPlanner::new(family, IpvsOptions::default());
    let observed = applier.observe().unwrap();
    let again = planner.full(&desired, &observed, ObservedPolicy::Adopt);
    assert!(again.is_empty(), "{name}: a restart writes\n{again}");

    let node_addresses = BTreeSet::from(["192.168.0.2".parse().unwrap()]);
    let plan = cleanup(family, &observed, &node_addresses);
    applier.apply(&plan).unwrap();
    assert_eq!((run("ipvsadm -S -n"), run("ipset save")), before, "{name}");
    assert!(!run("ip -br link").contains("kube-ipvs0"), "{name}");
}
