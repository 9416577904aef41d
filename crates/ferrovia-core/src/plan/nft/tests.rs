//! The planner against the stand-in kernel: any chain of changes ends where one full plan would.

mod fairness;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;

use proptest::prelude::*;

use super::layout::chain;
use super::packet_lookup::{KeyedElements, lookup_packet};
use super::view::{FrontendPath, KernelEndpointList, ServiceTableView, meaning};
use super::*;
use crate::desired::{Endpoint, Frontend, NoEndpoints};
use crate::dialect::nft::Statement;
use crate::dialect::nft::sim::NftSim;
use crate::model::{Algorithm, Protocol, ServiceKey, TrafficPolicy};
use crate::testing::ports::{self, endpoint, node};

/// A service port with all kinds of frontends, and with those endpoints for policy Local that are here.
fn service(n: u8, endpoints: &[Endpoint]) -> ServicePort {
    let port = ports::port(n, endpoints);
    let local = port.cluster.iter().copied().filter(|e| e.is_local);
    ServicePort {
        local: local.collect(),
        ..port
    }
}

/// A node whose kernel is the stand-in.
struct NftHarness {
    desired: Desired,
    planner: NftPlanner,
    sim: NftSim,
}

impl NftHarness {
    fn unwritten() -> Self {
        let desired = ports::nothing(Family::V4, node());
        Self {
            desired,
            planner: NftPlanner::new(Family::V4, true),
            sim: NftSim::default(),
        }
    }

    fn new() -> Self {
        let mut lab = Self::unwritten();
        lab.full();
        lab
    }

    fn full(&mut self) -> Transaction {
        let plan = self
            .planner
            .full(&self.desired, &self.sim.observe(), ObservedPolicy::Adopt);
        self.sim.apply(&plan).unwrap();
        plan
    }

    fn change(&mut self, changes: Vec<(PortKey, Option<ServicePort>)>) -> Transaction {
        let delta = ports::change(&mut self.desired, changes, None);
        self.incremental(&delta)
    }

    fn set_node(&mut self, node: NodeRules) -> Transaction {
        let delta = ports::change(&mut self.desired, Vec::new(), Some(node));
        self.incremental(&delta)
    }

    fn incremental(&mut self, delta: &Delta) -> Transaction {
        let plan = self.planner.incremental(&self.desired, delta);
        self.sim.apply(&plan).unwrap();
        plan
    }

    fn set(&mut self, port: ServicePort) -> Transaction {
        self.change(vec![(port.key.clone(), Some(port))])
    }

    fn deferred_removals(&mut self) {
        while self.planner.has_deferred_removals() {
            let plan = self.planner.deferred_removals();
            self.sim.apply(&plan).unwrap();
        }
    }

    fn meaning(&self) -> BTreeSet<String> {
        meaning(&self.sim.observe())
    }

    /// The same written from scratch.
    fn fresh(&self) -> Self {
        let mut fresh = Self::unwritten();
        fresh.desired = self.desired.clone();
        fresh.full();
        fresh
    }
}

#[test]
fn restart_with_an_unchanged_cluster_writes_nothing() {
    let mut lab = NftHarness::new();
    for n in 1..=6 {
        let eps: Vec<_> = (1..=n).map(|i| endpoint(i, 1)).collect();
        let mut port = service(n, &eps);
        port.affinity = (n % 2 == 0).then_some(600);
        port.external_policy = if n % 3 == 0 {
            TrafficPolicy::Local
        } else {
            TrafficPolicy::Cluster
        };
        lab.set(port);
    }
    // History has left holes: the endpoints are not where a fresh plan would put them.
    lab.set(service(
        5,
        &[endpoint(2, 1), endpoint(5, 1), endpoint(9, 1)],
    ));
    lab.deferred_removals();
    lab.planner = NftPlanner::new(Family::V4, true);
    let plan = lab.full();
    assert!(plan.is_empty(), "{plan}");
    assert!(!lab.planner.has_deferred_removals());
}

#[test]
fn an_endpoint_that_goes_costs_a_handful_of_elements() {
    let mut lab = NftHarness::new();
    let all: Vec<_> = (1..=200).map(|n| endpoint(n, 1)).collect();
    lab.set(service(1, &all));
    let elements = |plan: &Transaction| {
        plan.ops
            .iter()
            .map(|op| match op {
                NftOp::AddElements(_, elements) | NftOp::DeleteElements(_, elements) => {
                    elements.len()
                }
                _ => 0,
            })
            .sum::<usize>()
    };
    let plan = lab.set(service(1, &all[1..]));
    assert!(elements(&plan) <= 12, "{plan}");
}

#[test]
fn the_number_of_rules_does_not_depend_on_the_number_of_services() {
    let count = |services: u8| {
        let mut lab = NftHarness::new();
        for n in 1..=services {
            lab.set(service(
                n,
                &[endpoint(n, 1), endpoint(n.wrapping_add(1), 1)],
            ));
        }
        let observed = lab.sim.observe();
        (
            observed.chains.len(),
            observed
                .chains
                .values()
                .map(|chain| chain.rules.len())
                .sum::<usize>(),
        )
    };
    assert_eq!(count(1), count(200));
}

#[test]
fn a_frontend_passes_from_one_service_to_another_in_one_transaction() {
    let mut lab = NftHarness::new();
    let winner = service(1, &[endpoint(1, 1)]);
    let mut loser = service(2, &[endpoint(2, 1)]);
    lab.change(vec![
        (winner.key.clone(), Some(winner.clone())),
        (loser.key.clone(), Some(loser.clone())),
    ]);
    loser.frontends = winner.frontends.clone();
    // In either order of keys.
    lab.change(vec![
        (winner.key.clone(), None),
        (loser.key.clone(), Some(loser.clone())),
    ]);
    lab.change(vec![(loser.key, None), (winner.key.clone(), Some(winner))]);
    lab.deferred_removals();
    assert_eq!(lab.meaning(), lab.fresh().meaning());
}

#[test]
fn a_table_that_does_not_fit_is_replaced_in_one_transaction() {
    let mut lab = NftHarness::new();
    lab.set(service(1, &[endpoint(1, 1)]));
    // The same table without counters is another table to the kernel.
    lab.planner = NftPlanner::new(Family::V4, false);
    let plan = lab.full();
    assert_eq!(plan.ops[..2], [NftOp::DeleteTable, NftOp::AddTable]);
    assert_eq!(lab.sim.observe().sets["services"].elements.len(), 2);
}

#[test]
fn tables_of_a_previous_proxy_are_deleted_in_the_first_transaction() {
    let mut lab = NftHarness::unwritten();
    lab.sim
        .damage(|table| table.predecessors.push("kube-proxy".to_owned()));
    let plan = lab.full();
    for op in [
        NftOp::AddTable,
        NftOp::DeleteOtherTable("kube-proxy".into()),
    ] {
        assert!(plan.ops.contains(&op), "{op:?}\n{plan}");
    }
}

#[test]
fn damage_is_repaired_and_nothing_else_is_written() {
    let mut lab = NftHarness::new();
    lab.set(service(1, &[endpoint(1, 1), endpoint(2, 1)]));
    let whole = lab.meaning();
    lab.sim.damage(|table| {
        table.chains.get_mut("dispatch").unwrap().rules.remove(0);
        let services = &mut table.sets.get_mut("services").unwrap().elements;
        let key = services.keys().next().unwrap().clone();
        services.remove(&key);
    });
    assert_ne!(lab.meaning(), whole);
    let plan = lab.full();
    assert_eq!(plan.ops[0], NftOp::FlushChain("dispatch".into()), "{plan}");
    assert_eq!(plan.ops.len(), 1 + 3 + 1, "{plan}");
    assert_eq!(lab.meaning(), whole);
}

#[test]
fn node_rules_change_in_place() {
    let mut lab = NftHarness::new();
    lab.set(service(1, &[endpoint(1, 1)]));
    lab.set_node(NodeRules {
        masquerade_all: true,
        node_ports: NodePortAddresses::Only(["198.51.100.10".parse().unwrap()].into()),
        ..node()
    });
    lab.planner = NftPlanner::new(Family::V4, true);
    assert!(lab.full().is_empty());
}

#[test]
fn the_nodes_addresses_go_in_order() {
    let mut lab = NftHarness::new();
    let only = |numbers: std::ops::Range<u8>| NodeRules {
        node_ports: NodePortAddresses::Only(numbers.map(|n| [192, 0, 2, n].into()).collect()),
        ..node()
    };
    lab.set_node(only(1..30));
    let plan = lab.set_node(only(25..40));
    let [NftOp::DeleteElements(_, gone), NftOp::AddElements(_, come)] = &plan.ops[..] else {
        panic!("{plan}");
    };
    assert_eq!((gone.len(), come.len()), (24, 10));
    assert!(gone.is_sorted_by_key(|element| &element.key), "{plan}");
}

#[test]
fn services_without_endpoints_can_be_dropped() {
    let mut lab = NftHarness::new();
    lab.set(service(1, &[]));
    // A new process with another setting finds the elements where they belong and changes rules alone.
    lab.desired.node = Arc::new(NodeRules {
        no_endpoints: NoEndpoints::Drop,
        ..node()
    });
    lab.planner = NftPlanner::new(Family::V4, true);
    let plan = lab.full();
    let rules: Vec<_> = plan
        .ops
        .iter()
        .filter_map(|op| match op {
            NftOp::FlushChain(_) => None,
            NftOp::AddRule(chain, rule) => Some((&**chain, rule.statements.as_slice())),
            other => panic!("{other:?}\n{plan}"),
        })
        .collect();
    let dropping = [Statement::Goto(chain::DROPPING.into())];
    let to_dropping = |chain| [(chain, &dropping[..]), (chain, &dropping[..])];
    let services = to_dropping(chain::SERVICE_REFUSALS);
    let node_ports = to_dropping(chain::NODE_PORT_REFUSALS);
    assert_eq!(rules, [services, node_ports].concat());
}

#[test]
fn rules_of_unknown_services_are_kept_while_objects_are_missing() {
    let mut lab = NftHarness::new();
    lab.set(service(1, &[endpoint(1, 1), endpoint(2, 1)]));
    let mut sticky = service(2, &(1..=20).map(|n| endpoint(n, 1)).collect::<Vec<_>>());
    sticky.affinity = Some(60);
    sticky.external_policy = TrafficPolicy::Local;
    sticky.source_ranges = Box::new(["192.0.2.0/24".parse().unwrap()]);
    lab.set(sticky);
    let whole = lab.meaning();
    // A new process that can read only the first service, which has changed meanwhile.
    lab.planner = NftPlanner::new(Family::V4, true);
    lab.desired
        .ports
        .retain(|key, _| key.service.name() == "s1");
    let mut changed = service(1, &[endpoint(3, 1)]);
    changed.frontends = changed.frontends[..2].into();
    lab.desired
        .ports
        .insert(changed.key.clone(), Arc::new(changed));
    let plan = lab.planner.full(
        &lab.desired,
        &lab.sim.observe(),
        ObservedPolicy::KeepUnknown,
    );
    lab.sim.apply(&plan).unwrap();
    let kept = |facts: &BTreeSet<String>| {
        facts
            .iter()
            .filter(|fact| fact.contains("demo/s2"))
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(kept(&lab.meaning()), kept(&whole));
    assert!(
        lab.meaning()
            .iter()
            .any(|fact| fact.contains("demo/s1") && fact.contains("10.244.2.3")),
        "{plan}"
    );
    // New services do not get in the way of those that are kept.
    lab.set(service(3, &[endpoint(5, 1)]));
    lab.deferred_removals();
    assert_eq!(kept(&lab.meaning()), kept(&whole));
    // All is known: what is left over goes.
    lab.full();
    lab.deferred_removals();
    assert_eq!(kept(&lab.meaning()), Vec::<String>::new());
    assert_eq!(lab.meaning(), lab.fresh().meaning());
}

#[test]
fn a_chain_that_returns_is_rewritten() {
    let mut lab = NftHarness::new();
    let many: Vec<_> = (1..=40).map(|n| endpoint(n, 1)).collect();
    lab.set(service(1, &many));
    lab.set(service(1, &many[..2]));
    let first_step = lab.planner.deferred_removals();
    lab.sim.apply(&first_step).unwrap();
    let plan = lab.set(service(1, &many));
    assert!(
        plan.ops.contains(&NftOp::FlushChain("pick-40".into())),
        "{plan}"
    );
    lab.planner = NftPlanner::new(Family::V4, true);
    assert!(lab.full().is_empty());
}

#[test]
fn after_a_restart_numbers_are_spared_that_affinities_may_refer_to() {
    let mut lab = NftHarness::new();
    lab.set(service(1, &[endpoint(1, 1)]));
    lab.set(service(2, &[endpoint(1, 1)]));
    // The second went and a third came while no daemon ran.
    lab.desired.ports.remove(&service(2, &[]).key);
    let third = service(3, &[endpoint(1, 1)]);
    lab.desired.ports.insert(third.key.clone(), Arc::new(third));
    lab.planner = NftPlanner::new(Family::V4, true);
    let plan = lab.full().to_string();
    // 2 and 1024 more, in the fifteenth bit and above.
    assert!(plan.contains("tcp . 8100:8000 . 0"), "{plan}");
    assert!(
        !plan.contains("add element ip ferrovia endpoints { tcp . 8000:4000"),
        "{plan}"
    );
}

#[test]
fn the_number_of_a_service_that_went_is_not_given_to_the_next() {
    let mut lab = NftHarness::new();
    lab.set(service(1, &[endpoint(1, 1)]));
    lab.change(vec![(service(1, &[]).key, None)]);
    let plan = lab.set(service(2, &[endpoint(1, 1)]));
    assert!(plan.to_string().contains("tcp . 8000:4000 . 0"), "{plan}");
}

#[derive(Clone, Debug)]
struct Step {
    service: u8,
    endpoints: Vec<(u8, u16)>,
    local: bool,
    affinity: Option<u32>,
    hash: bool,
    restricted: bool,
    gone: bool,
    deferred_removals: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let endpoints = proptest::collection::btree_map(1u8..9, 1u16..4, 0..6);
    let affinity = prop_oneof![2 => Just(None), 1 => Just(Some(60)), 1 => Just(Some(600))];
    (
        1u8..5,
        endpoints,
        any::<bool>(),
        affinity,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(service, endpoints, local, affinity, hash, restricted, gone, deferred_removals)| {
                Step {
                    service,
                    endpoints: endpoints.into_iter().collect(),
                    local,
                    affinity,
                    hash,
                    restricted,
                    gone,
                    deferred_removals,
                }
            },
        )
}

impl Step {
    fn port(&self) -> ServicePort {
        let endpoints: Vec<_> = self
            .endpoints
            .iter()
            .map(|(n, weight)| endpoint(*n, *weight))
            .collect();
        let policy = if self.local {
            TrafficPolicy::Local
        } else {
            TrafficPolicy::Cluster
        };
        ServicePort {
            external_policy: policy,
            internal_policy: if self.hash {
                policy
            } else {
                TrafficPolicy::Cluster
            },
            affinity: self.affinity,
            algorithm: if self.hash {
                Algorithm::SourceHash
            } else {
                Algorithm::Random
            },
            source_ranges: if self.restricted {
                Box::new(["192.0.2.0/24".parse().unwrap()])
            } else {
                Box::new([])
            },
            ..service(self.service, &endpoints)
        }
    }
}

/// A walk to any frontend makes out what the whole table says of it.
fn check_walks(observed: &NftObserved) {
    let whole = ServiceTableView::of(observed);
    let ask = |set: NftSetId, keys: &[ElementKey]| -> Result<KeyedElements, Infallible> {
        let elements = &observed.sets[set.name()].elements;
        let find = |key: &ElementKey| Some((key.clone(), elements.get(key)?.clone()));
        Ok(keys.iter().map_while(find).collect())
    };
    for frontend in &whole.frontends {
        let at = frontend.destination();
        let protocol = Protocol::from_number(at.protocol).unwrap();
        let Ok(part) = lookup_packet(Family::V4, (at.address, protocol, at.port), ask);
        let part = ServiceTableView::of(&part);
        let meant = whole.frontends.iter().filter(|f| f.destination() == at);
        assert!(part.frontends.iter().eq(meant));
        for (number, list) in &part.lists {
            assert_eq!(Some(list), whole.lists.get(number));
        }
        let lists = match frontend.path {
            FrontendPath::List { list, .. } => vec![list],
            FrontendPath::BySource { inside, outside } => {
                inside.into_iter().chain(outside).collect()
            }
            FrontendPath::Rejected | FrontendPath::Dropped => Vec::new(),
        };
        assert!(lists.iter().all(|list| part.lists.contains_key(list)));
    }
}

#[test]
fn looking_up_a_long_list_finds_every_slot() {
    let mut lab = NftHarness::new();
    let weights = [1000, 1, 37].into_iter();
    let endpoints = (1..).zip(weights).map(|(n, weight)| Endpoint {
        weight,
        ..endpoint(n, 1)
    });
    lab.set(service(1, &endpoints.collect::<Vec<_>>()));
    check_walks(&lab.sim.observe());
    let view = ServiceTableView::of(&lab.sim.observe());
    let slots = |list: &KernelEndpointList| list.endpoints.values().sum::<u32>();
    assert!(view.lists.values().any(|list| slots(list) == 1038));
}

proptest! {
    #[test]
    fn any_chain_of_changes_ends_like_one_full_plan(steps in proptest::collection::vec(step(), 1..30)) {
        let mut lab = NftHarness::new();
        for step in &steps {
            let port = step.port();
            lab.change(vec![(port.key.clone(), (!step.gone).then_some(port))]);
            if step.deferred_removals && lab.planner.has_deferred_removals() {
                let plan = lab.planner.deferred_removals();
                lab.sim.apply(&plan).unwrap();
            }
        }
        lab.deferred_removals();
        check_walks(&lab.sim.observe());
        prop_assert_eq!(lab.meaning(), lab.fresh().meaning());

        // A second full plan is empty.
        lab.planner = NftPlanner::new(Family::V4, true);
        let plan = lab.full();
        prop_assert!(plan.is_empty(), "{}", plan);
    }
}

#[test]
fn other_addresses_of_the_node_change_nothing() {
    let mut lab = NftHarness::new();
    lab.set(service(1, &[endpoint(1, 1)]));
    let plan = lab.set_node(NodeRules {
        addresses: BTreeSet::from(["192.0.2.7".parse().unwrap()]),
        ..node()
    });
    assert_eq!(plan.to_string(), "");
}
