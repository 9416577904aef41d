//! Damage of every kind, told from the planners' own plans.

use serde_json::json;

use super::*;
use crate::desired::Desired;
use crate::dialect::iptables::sim;
use crate::dialect::nft::sim::Sim;
use crate::family::Family;
use crate::plan::iptables::{IptablesOptions, IptablesPlanner, Observed};
use crate::plan::nft::NftPlanner;
use crate::plan::{Found, Planner};
use crate::testing::{World, endpoint, service, settings, slice};

fn world(endpoints: &[&str]) -> World {
    let mut world = World::new(settings());
    world.apply(service("web", "10.96.0.10", json!({})));
    let endpoints: Vec<_> = endpoints.iter().map(|ip| endpoint(ip, "n2")).collect();
    world.apply(slice("web-1", "web", endpoints));
    world
}

fn desired(world: &World) -> &Desired {
    world.builder.desired(Family::V4)
}

fn told(differences: &[Difference]) -> Vec<String> {
    let one = |d: &Difference| format!("{} {}", d.kind.name(), d.place);
    differences.iter().map(one).collect()
}

#[test]
fn a_table_that_was_removed_is_missing_and_one_as_it_should_be_is_the_same() {
    let world = world(&["10.0.0.1"]);
    let plan =
        |observed| NftPlanner::new(Family::V4, true).full(desired(&world), observed, Found::Adopt);
    let nothing = Default::default();
    let all = plan(&nothing);
    let differences = nft::differences(&all, &nothing);
    assert!(differences.iter().all(|d| d.kind == Kind::Missing));
    assert!(
        differences
            .iter()
            .any(|d| d.place == "map ip ferrovia services")
    );
    let mut sim = Sim::default();
    sim.apply(&all).unwrap();
    let observed = sim.observe();
    assert_eq!(nft::differences(&plan(&observed), &observed), []);
}

#[test]
fn elements_are_told_by_their_keys() {
    let (one, other) = (world(&["10.0.0.1"]), world(&["10.0.0.2"]));
    let mut sim = Sim::default();
    let mut planner = NftPlanner::new(Family::V4, true);
    sim.apply(&planner.full(desired(&other), &Default::default(), Found::Adopt))
        .unwrap();
    let observed = sim.observe();
    let plan = NftPlanner::new(Family::V4, true).full(desired(&one), &observed, Found::Adopt);
    let differences = nft::differences(&plan, &observed);
    assert_eq!(told(&differences), ["wrong map ip ferrovia endpoints"]);
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
fn iptables_rules_are_told_chain_by_chain() {
    let world = world(&["10.0.0.1"]);
    let plan = |observed: &Observed| {
        let options = IptablesOptions::default();
        IptablesPlanner::new(Family::V4, options).full(desired(&world), observed, Found::Adopt)
    };
    let mut kernel = sim::Sim::default();
    kernel
        .restore(&plan(&Observed::default()).to_string())
        .unwrap();
    let whole = Observed {
        save: kernel.save(),
    };
    assert_eq!(iptables::differences(&plan(&whole), &whole), []);

    let damage = |input: &str| {
        let mut kernel = sim::Sim::load(&whole.save);
        kernel.restore(input).unwrap();
        let found = Observed {
            save: kernel.save(),
        };
        iptables::differences(&plan(&found), &found)
    };
    let flushed = damage("*nat\n:KUBE-MARK-MASQ - [0:0]\nCOMMIT\n");
    assert_eq!(told(&flushed), ["missing chain nat KUBE-MARK-MASQ"]);
    let added = damage("*nat\n-A KUBE-MARK-MASQ -j ACCEPT\nCOMMIT\n");
    assert_eq!(told(&added), ["foreign chain nat KUBE-MARK-MASQ"]);
    assert_eq!(added[0].found, ["-j ACCEPT"]);
}

#[test]
fn changes_in_words() {
    let (one, two) = (
        world(&["10.0.0.1", "10.0.0.2"]),
        world(&["10.0.0.2", "10.0.0.3"]),
    );
    let empty = World::new(settings());
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
        ["default/web/tcp comes: cluster IP 10.96.0.10:80 with 2 endpoints"]
    );
    assert_eq!(
        words(&one, &empty),
        ["default/web/tcp goes: cluster IP 10.96.0.10:80"]
    );
    assert!(words(&one, &one).is_empty());
}

#[test]
fn a_change_that_new_connections_notice_is_told() {
    let world = |changed: bool| {
        let mut world = World::new(settings());
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
            "default/far/tcp has endpoints, but none that its policy allows here",
            "default/web/tcp changes its way to choose endpoints",
        ]
    );
    assert_eq!(
        words(&after, &before)[0],
        "default/far/tcp has no endpoint anywhere any more"
    );
}
