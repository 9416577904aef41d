//! The iptables mode on paper: what the planner prints, read by the stand-in kernel, is what kube-proxy has in the kernel.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use ferrovia_core::dialect::iptables::sim::IptablesSim;
use ferrovia_core::plan::iptables::{IptablesObserved, IptablesPlanner};
use ferrovia_core::plan::{ObservedPolicy, Planner};
use ferrovia_lab::kube_proxy_rules;

#[test]
fn every_shape_has_kube_proxys_rules() {
    for shape in kube_proxy_rules::all() {
        let desired = shape.desired();
        let mut planner = IptablesPlanner::new(shape.family, shape.options);
        let plan = planner.full(
            &desired,
            &IptablesObserved::default(),
            ObservedPolicy::Adopt,
        );
        let mut sim = IptablesSim::default();
        sim.restore(&plan.to_string()).unwrap();
        let (mut found, expected) = (kube_proxy_rules::rules(&sim.save()), shape.expected());
        // The chains of a service that is only there to be many.
        found.retain(|chain, _| expected.contains_key(chain) || !chain.1.starts_with("KUBE-S"));
        if let Some(difference) = kube_proxy_rules::difference(&found, &expected) {
            panic!("{}: {difference}", shape.name);
        }

        // What is written is found to be right.
        let observed = IptablesObserved { save: sim.save() };
        let mut again = IptablesPlanner::new(shape.family, shape.options);
        let plan = again.full(&desired, &observed, ObservedPolicy::Adopt);
        assert!(plan.is_empty(), "{}: {plan}", shape.name);
    }
}
