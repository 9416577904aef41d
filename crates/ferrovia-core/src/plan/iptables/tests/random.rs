//! Any chain of changes ends where one full plan would.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::{IptablesHarness, endpoint, node, service};
use crate::desired::{LocalDetector, NoEndpoints, NodePortAddresses, NodeRules, ServicePort};
use crate::dialect::iptables::sim::IptablesSim;
use crate::dialect::iptables::{Commits, RuleCount};
use crate::model::TrafficPolicy;
use crate::plan::ObservedPolicy;
use crate::plan::iptables::IptablesOptions;

#[derive(Clone, Debug)]
struct Step {
    services: BTreeSet<u8>,
    endpoints: Vec<(u8, u16)>,
    local: (bool, bool),
    affinity: Option<u32>,
    restricted: bool,
    frontends: usize,
    gone: bool,
    node: Option<u8>,
}

fn step() -> impl Strategy<Value = Step> {
    let endpoints = proptest::collection::btree_map(1u8..9, 1u16..4, 0..6);
    let affinity = prop_oneof![2 => Just(None), 1 => Just(Some(60)), 1 => Just(Some(600))];
    (
        proptest::collection::btree_set(1u8..5, 0..3),
        endpoints,
        any::<(bool, bool)>(),
        affinity,
        (any::<bool>(), 1usize..4),
        any::<bool>(),
        proptest::option::weighted(0.2, 0u8..8),
    )
        .prop_map(
            |(services, endpoints, local, affinity, (restricted, frontends), gone, node)| Step {
                services,
                endpoints: endpoints.into_iter().collect(),
                local,
                affinity,
                restricted,
                frontends,
                gone,
                node,
            },
        )
}

impl Step {
    fn port(&self, n: u8) -> ServicePort {
        let endpoints: Vec<_> = self
            .endpoints
            .iter()
            .map(|(n, weight)| endpoint(*n, *weight))
            .collect();
        let policy = |local| {
            if local {
                TrafficPolicy::Local
            } else {
                TrafficPolicy::Cluster
            }
        };
        let port = service(n, &endpoints);
        let local = port.cluster.iter().copied().filter(|e| e.is_local);
        ServicePort {
            local: if self.local.0 || self.local.1 {
                local.collect()
            } else {
                Arc::default()
            },
            external_policy: policy(self.local.0),
            internal_policy: policy(self.local.1),
            affinity: self.affinity,
            source_ranges: if self.restricted {
                Box::new(["192.0.2.0/24".parse().unwrap()])
            } else {
                Box::new([])
            },
            frontends: port.frontends[..self.frontends].into(),
            ..port
        }
    }

    fn node(&self) -> Option<NodeRules> {
        let n = self.node?;
        Some(NodeRules {
            masquerade_all: n & 1 == 1,
            local: if n & 2 == 2 {
                LocalDetector::Off
            } else {
                node().local
            },
            node_ports: if n & 4 == 4 {
                NodePortAddresses::Only(["198.51.100.10".parse().unwrap()].into())
            } else {
                NodePortAddresses::Any
            },
            ..node()
        })
    }
}

proptest! {
    #[test]
    fn any_chain_of_changes_ends_like_one_full_plan(steps in proptest::collection::vec(step(), 1..20), many in any::<bool>(), drop in any::<bool>()) {
        let options = IptablesOptions {
            commits: if many { Commits::Many } else { Commits::One },
            ..IptablesOptions::default()
        };
        let no_endpoints = if drop { NoEndpoints::Drop } else { NoEndpoints::Reject };
        let mut lab = IptablesHarness::on(IptablesSim::default(), options);
        lab.desired.node = Arc::new(NodeRules { no_endpoints, ..node() });
        lab.full(ObservedPolicy::Adopt);
        for step in &steps {
            let changes = step.services.iter().map(|n| {
                let port = step.port(*n);
                (port.key.clone(), (!step.gone).then_some(port))
            });
            let changes = changes.filter(|(key, new)| lab.desired.ports.get(key).map(|p| &**p) != new.as_ref()).collect();
            lab.change(changes, step.node().map(|node| NodeRules { no_endpoints, ..node }));
        }
        prop_assert_eq!(lab.meaning(), lab.fresh().meaning());
        let counted = |table| lab.sim.chains(table).map(|(_, rules)| rules.len()).sum::<usize>();
        prop_assert_eq!(lab.planner.rules, RuleCount { filter: counted("filter"), nat: counted("nat") });
        // A second full plan is empty.
        let plan = lab.restart();
        prop_assert!(plan.is_empty(), "{}", plan);
    }
}
