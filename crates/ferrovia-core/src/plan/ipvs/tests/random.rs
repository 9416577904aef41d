//! Any chain of changes ends where one full plan would.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
struct Change {
    services: BTreeSet<u8>,
    endpoints: Vec<(u8, u16)>,
    local: (bool, bool),
    affinity: Option<u32>,
    restricted: bool,
    frontends: usize,
    gone: bool,
    node: Option<u8>,
    check: Option<(u8, Option<u16>)>,
}

fn change() -> impl Strategy<Value = Change> {
    let endpoints = proptest::collection::btree_map(1u8..9, 1u16..4, 0..6);
    (
        proptest::collection::btree_set(1u8..5, 0..3),
        endpoints,
        any::<(bool, bool)>(),
        prop_oneof![2 => Just(None), 1 => Just(Some(60)), 1 => Just(Some(600))],
        (any::<bool>(), 1usize..5),
        any::<bool>(),
        proptest::option::weighted(0.2, 0u8..16),
        proptest::option::weighted(0.2, (1u8..4, proptest::option::of(31000u16..31003))),
    )
        .prop_map(
            |(services, endpoints, local, affinity, (restricted, frontends), gone, node, check)| {
                Change {
                    services,
                    endpoints: endpoints.into_iter().collect(),
                    local,
                    affinity,
                    restricted,
                    frontends,
                    gone,
                    node,
                    check,
                }
            },
        )
}

impl Change {
    fn port(&self, n: u8) -> ServicePort {
        let endpoints: Vec<_> = self
            .endpoints
            .iter()
            .map(|(n, weight)| endpoint(*n, *weight))
            .collect();
        let policy = |is_local| {
            if is_local {
                TrafficPolicy::Local
            } else {
                TrafficPolicy::Cluster
            }
        };
        let mut port = service(n, &endpoints);
        if self.local.0 || self.local.1 {
            port = local(port);
        }
        port.key.protocol = Protocol::ALL[usize::from(n) % 3];
        ServicePort {
            external_policy: policy(self.local.0),
            internal_policy: policy(self.local.1),
            affinity: self.affinity,
            source_ranges: if self.restricted {
                Box::new([
                    "192.0.2.0/24".parse().unwrap(),
                    "192.0.3.1/32".parse().unwrap(),
                ])
            } else {
                Box::new([])
            },
            frontends: port.frontends[..self.frontends].into(),
            ..port
        }
    }

    fn node(&self, no_endpoints: NoEndpoints) -> Option<NodeRules> {
        let n = self.node?;
        let is = |bit| n & bit == bit;
        let mut addresses = node().addresses;
        addresses.insert(ip("192.168.1.11"));
        if is(8) {
            // An address that is a service's too.
            addresses.insert(ip("203.0.113.1"));
        }
        Some(NodeRules {
            no_endpoints,
            masquerade_all: is(1),
            local: if is(2) {
                LocalDetector::Off
            } else {
                node().local
            },
            node_ports: if is(4) {
                NodePortAddresses::Only([ip("192.168.1.11")].into())
            } else {
                NodePortAddresses::Any
            },
            addresses,
            ..node()
        })
    }

    /// The same, except that the node loses no address: a node port's server at an address that the node no longer has looks like
    /// one of another process.
    fn without_lost_addresses(&self) -> Self {
        Self {
            node: self.node.map(|n| n & !8),
            ..self.clone()
        }
    }

    /// The delta to another desired state.
    fn delta(&self, lab: &mut IpvsHarness, no_endpoints: NoEndpoints) -> Delta {
        let ports = self.services.iter().map(|n| {
            let port = self.port(*n);
            (port.key.clone(), (!self.gone).then_some(port))
        });
        let is_news = |(key, new): &(PortKey, Option<ServicePort>)| {
            lab.desired.ports.get(key).map(|port| &**port) != new.as_ref()
        };
        let ports = ports.filter(is_news).collect();
        lab.delta(ports, self.node(no_endpoints))
    }
}

/// A lab where services without endpoints are refused or dropped.
fn lab(drop: bool, local_fallback: bool) -> (IpvsHarness, NoEndpoints) {
    let no_endpoints = if drop {
        NoEndpoints::Drop
    } else {
        NoEndpoints::Reject
    };
    let options = IpvsOptions {
        local_fallback,
        ..IpvsOptions::default()
    };
    let mut lab = IpvsHarness::on(IpvsSim::default(), Family::V4, options);
    lab.desired.node = Arc::new(NodeRules {
        no_endpoints,
        ..node()
    });
    lab.full(ObservedPolicy::Adopt);
    (lab, no_endpoints)
}

proptest! {
    #[test]
    fn any_chain_of_changes_ends_like_one_full_plan(changes in proptest::collection::vec(change(), 1..20), drop in any::<bool>(), local_fallback in any::<bool>()) {
        let (mut lab, no_endpoints) = lab(drop, local_fallback);
        for change in &changes {
            let delta = change.delta(&mut lab, no_endpoints);
            lab.incremental(&delta);
            if let Some((n, port)) = change.check {
                lab.check(&format!("s{n}"), port);
            }
        }
        prop_assert_eq!(lab.meaning(), lab.fresh().meaning());
        // A second full plan is empty.
        let plan = lab.restart();
        prop_assert!(plan.is_empty(), "{}", plan);
    }

    #[test]
    fn a_full_plan_recovers_from_a_plan_that_failed_midway(changes in proptest::collection::vec(change(), 1..6), done in 0usize..6, restart in any::<bool>(), drop in any::<bool>()) {
        let (mut lab, no_endpoints) = lab(drop, false);
        for change in changes.iter().map(Change::without_lost_addresses) {
            let delta = change.delta(&mut lab, no_endpoints);
            let plan = lab.planner.incremental(&lab.desired, &delta);
            for step in plan.steps.iter().take(done) {
                prop_assert_eq!(lab.sim.step(step), Ok(()));
            }
            if restart {
                lab.restart();
            } else {
                lab.full(ObservedPolicy::Adopt);
            }
            prop_assert_eq!(lab.meaning(), lab.fresh().meaning());
        }
    }
}
