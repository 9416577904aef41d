//! Differences for damage of every kind, taken from the planners' own plans.

use serde_json::json;

use super::*;
use crate::desired::Desired;
use crate::dialect::iptables::sim;
use crate::dialect::nft::sim::NftSim;
use crate::family::Family;
use crate::plan::iptables::{IptablesObserved, IptablesOptions, IptablesPlanner};
use crate::plan::nft::NftPlanner;
use crate::plan::{ObservedPolicy, Planner};
use crate::testing::{TestCluster, endpoint, service, settings, slice};

fn world(endpoints: &[&str]) -> TestCluster {
    let mut world = TestCluster::new(settings());
    world.apply(service("web", "10.96.0.10", json!({})));
    let endpoints: Vec<_> = endpoints.iter().map(|ip| endpoint(ip, "n2")).collect();
    world.apply(slice("web-1", "web", endpoints));
    world
}

fn desired(world: &TestCluster) -> &Desired {
    world.builder.desired(Family::V4)
}

fn collected(differences: &[Difference]) -> Vec<String> {
    let one = |d: &Difference| format!("{} {}", d.kind.name(), d.place);
    differences.iter().map(one).collect()
}

#[test]
fn a_table_that_was_removed_is_missing_and_one_as_it_should_be_is_the_same() {
    let world = world(&["10.0.0.1"]);
    let plan = |observed| {
        NftPlanner::new(Family::V4, true).full(desired(&world), observed, ObservedPolicy::Adopt)
    };
    let nothing = Default::default();
    let all = plan(&nothing);
    let differences = nft::differences(&all, &nothing);
    assert!(
        differences
            .iter()
            .all(|d| d.kind == DifferenceKind::Missing)
    );
    assert!(
        differences
            .iter()
            .any(|d| d.place == "map ip ferrovia services")
    );
    let mut sim = NftSim::default();
    sim.apply(&all).unwrap();
    let observed = sim.observe();
    assert_eq!(nft::differences(&plan(&observed), &observed), []);
}

#[test]
fn element_differences_are_grouped_by_key() {
    let (one, other) = (world(&["10.0.0.1"]), world(&["10.0.0.2"]));
    let mut sim = NftSim::default();
    let mut planner = NftPlanner::new(Family::V4, true);
    sim.apply(&planner.full(desired(&other), &Default::default(), ObservedPolicy::Adopt))
        .unwrap();
    let observed = sim.observe();
    let plan =
        NftPlanner::new(Family::V4, true).full(desired(&one), &observed, ObservedPolicy::Adopt);
    let differences = nft::differences(&plan, &observed);
    assert_eq!(collected(&differences), ["wrong map ip ferrovia endpoints"]);
    assert!(
        differences[0].found[0].contains("10.0.0.2"),
        "{differences:?}"
    );
    assert!(
        differences[0].wanted[0].contains("10.0.0.1"),
        "{differences:?}"
    );
}

#[test]
fn iptables_differences_are_grouped_by_chain() {
    let world = world(&["10.0.0.1"]);
    let plan = |observed: &IptablesObserved| {
        let options = IptablesOptions::default();
        IptablesPlanner::new(Family::V4, options).full(
            desired(&world),
            observed,
            ObservedPolicy::Adopt,
        )
    };
    let mut kernel = sim::IptablesSim::default();
    kernel
        .restore(&plan(&IptablesObserved::default()).to_string())
        .unwrap();
    let whole = IptablesObserved {
        save: kernel.save(),
    };
    assert_eq!(iptables::differences(&plan(&whole), &whole), []);

    let damage = |input: &str| {
        let mut kernel = sim::IptablesSim::load(&whole.save);
        kernel.restore(input).unwrap();
        let found = IptablesObserved {
            save: kernel.save(),
        };
        iptables::differences(&plan(&found), &found)
    };
    let flushed = damage("*nat\n:KUBE-MARK-MASQ - [0:0]\nCOMMIT\n");
    assert_eq!(collected(&flushed), ["missing chain nat KUBE-MARK-MASQ"]);
    let added = damage("*nat\n-A KUBE-MARK-MASQ -j ACCEPT\nCOMMIT\n");
    assert_eq!(collected(&added), ["foreign chain nat KUBE-MARK-MASQ"]);
    assert_eq!(added[0].found, ["-j ACCEPT"]);
}

#[test]
fn deltas_are_described() {
    let (one, two) = (
        world(&["10.0.0.1", "10.0.0.2"]),
        world(&["10.0.0.2", "10.0.0.3"]),
    );
    let empty = TestCluster::new(settings());
    let words = |a, b| services::in_words(&services::delta(desired(a), desired(b)));
    assert_eq!(
        words(&one, &two),
        [
            "default/web/tcp gets endpoint 10.0.0.3:8080",
            "default/web/tcp loses endpoint 10.0.0.1:8080",
        ]
    );
    assert_eq!(
        words(&empty, &one),
        ["default/web/tcp is added: cluster IP 10.96.0.10:80 with 2 endpoints"]
    );
    assert_eq!(
        words(&one, &empty),
        ["default/web/tcp is removed: cluster IP 10.96.0.10:80"]
    );
    assert!(words(&one, &one).is_empty());
}

#[test]
fn changes_visible_to_new_connections_are_described() {
    let world = |changed: bool| {
        let mut world = TestCluster::new(settings());
        let mut web = service("web", "10.96.0.10", json!({}));
        web["metadata"]["annotations"] =
            json!({"ferrovia.io/scheduler": if changed { "lc" } else { "rr" }});
        world.apply(web);
        let local = json!({"internalTrafficPolicy": "Local"});
        world.apply(service("far", "10.96.0.11", local));
        if changed {
            world.apply(slice("far-1", "far", vec![endpoint("10.0.0.1", "n2")]));
        }
        world
    };
    let (before, after) = (world(false), world(true));
    let words = |a, b| services::in_words(&services::delta(desired(a), desired(b)));
    assert_eq!(
        words(&before, &after),
        [
            "default/far/tcp has endpoints, but its traffic policy allows none on this node",
            "default/web/tcp changes its endpoint selection",
        ]
    );
    assert_eq!(
        words(&after, &before)[0],
        "default/far/tcp has no endpoints any more"
    );
}
