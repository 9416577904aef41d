//! Tests of who wins a claim.

use super::*;
use crate::model::{Service, ServicePolicy};
use crate::testing::{object, service};
use crate::wire::Object;

/// A creation time as the API server would write it, `second` seconds into a year; none for 0.
fn age(second: u32, appeared: u64) -> Age {
    let mut value = service("web", "10.0.0.1", serde_json::json!({}));
    if second > 0 {
        value["metadata"]["creationTimestamp"] = format!("2026-01-01T00:00:{second:02}Z").into();
    }
    let Object::Service(wire) = object(value) else {
        unreachable!()
    };
    Age {
        created: Service::parse(&wire, &ServicePolicy::default())
            .unwrap()
            .0
            .created,
        appeared,
    }
}

fn port(service: &str) -> PortKey {
    PortKey {
        service: ServiceKey::from_checked_names("ns", service),
        name: "".into(),
        protocol: Protocol::Tcp,
    }
}

fn claim(port: u16) -> FrontendClaim {
    FrontendClaim::NodePort(Family::V4, port, Protocol::Tcp)
}

fn one(number: u16, service: &str) -> [Stake; 1] {
    ranked(number, service, Rank::ApiServer)
}

fn ranked(number: u16, service: &str, rank: Rank) -> [Stake; 1] {
    [Stake {
        claim: claim(number),
        port: port(service),
        rank,
    }]
}

/// Replaces claims; the services that this moved.
fn restate(
    claims: &mut FrontendClaims,
    old: &[Stake],
    new: &[Stake],
    age: Age,
) -> BTreeSet<ServiceKey> {
    let mut moved = ClaimChanges::default();
    claims.restate(old, new, age, &mut moved);
    moved.services
}

fn winner(claims: &FrontendClaims) -> Option<&PortKey> {
    claims.winner(&claim(1))
}

fn names(moved: &BTreeSet<ServiceKey>) -> Vec<&str> {
    moved.iter().map(ServiceKey::name).collect()
}

const NONE: [Stake; 0] = [];
const RANKS: [Rank; 3] = [Rank::ApiServer, Rank::Controller, Rank::Author];

#[test]
fn the_older_wins_in_any_order_of_events() {
    // Ages of `a` and `b` as (second of creation, appearance), and the winner.
    let cases = [
        ((1, 5), (2, 1), "a"),
        ((2, 1), (1, 5), "b"),
        ((1, 5), (1, 1), "a"),
        ((0, 1), (0, 2), "a"),
        ((0, 2), (0, 1), "b"),
        ((0, 0), (0, 0), "a"),
        // Only one has a creation time: appearance decides.
        ((0, 1), (1, 2), "a"),
        ((1, 2), (0, 1), "b"),
    ];
    for (a, b, older) in cases {
        for order in [["a", "b"], ["b", "a"]] {
            let mut claims = FrontendClaims::default();
            for name in order {
                let (second, appeared) = if name == "a" { a } else { b };
                restate(&mut claims, &NONE, &one(1, name), age(second, appeared));
            }
            assert_eq!(winner(&claims), Some(&port(older)), "{a:?} {b:?} {order:?}");
        }
    }
}

#[test]
fn the_winner_does_not_depend_on_the_order_of_claims() {
    // A circle: a before b and b before c by appearance, c before a by creation.
    let ages = [("a", age(2, 1)), ("b", age(0, 2)), ("c", age(1, 3))];
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let mut claims = FrontendClaims::default();
        for i in order {
            let (name, age) = ages[i];
            restate(&mut claims, &NONE, &one(1, name), age);
        }
        assert_eq!(winner(&claims), Some(&port("c")), "{order:?}");
    }
}

#[test]
fn only_winners_and_losers_are_affected() {
    let mut claims = FrontendClaims::default();
    assert_eq!(
        names(&restate(&mut claims, &NONE, &one(1, "b"), age(2, 0))),
        ["b"]
    );
    assert_eq!(
        names(&restate(&mut claims, &NONE, &one(1, "c"), age(3, 0))),
        [""; 0],
        "a loser changes nothing"
    );
    assert_eq!(
        names(&restate(&mut claims, &NONE, &one(1, "a"), age(1, 0))),
        ["a", "b"]
    );
    assert_eq!(
        names(&restate(&mut claims, &one(1, "a"), &one(1, "a"), age(1, 0))),
        [""; 0]
    );
    assert_eq!(
        names(&restate(&mut claims, &one(1, "a"), &one(2, "a"), age(1, 0))),
        ["a", "b"]
    );
    assert_eq!(
        names(&restate(&mut claims, &one(1, "b"), &NONE, age(2, 0))),
        ["b", "c"]
    );
    // Recreated, `a` is younger.
    restate(&mut claims, &NONE, &one(2, "c"), age(3, 0));
    assert_eq!(
        names(&restate(&mut claims, &one(2, "a"), &one(2, "a"), age(9, 0))),
        ["a", "c"]
    );
    restate(&mut claims, &one(1, "c"), &NONE, age(3, 0));
    restate(&mut claims, &one(2, "c"), &NONE, age(3, 0));
    restate(&mut claims, &one(2, "a"), &NONE, age(9, 0));
    assert!(claims.claimants.is_empty());
}

/// Whatever comes and goes, the answer is that of a search through all of them.
#[test]
fn the_winner_is_kept_right_through_any_changes() {
    let mut claims = FrontendClaims::default();
    let mut staked = BTreeSet::new();
    // Any sequence will do that stakes and withdraws at both ends and in between.
    for step in 0..2_000_u32 {
        let n = step.wrapping_mul(2_654_435_761) >> 27;
        let name = format!("s{n:02}");
        // A third have no creation time.
        let age = age(n % 3 * (1 + n * 7 % 50), u64::from(n % 5));
        let stake = ranked(1, &name, RANKS[n as usize % 7 % 3]);
        if staked.remove(&n) {
            restate(&mut claims, &stake, &NONE, age);
        } else {
            staked.insert(n);
            restate(&mut claims, &NONE, &stake, age);
        }
        let all = claims.claimants.get(&claim(1)).map(Claimants::all);
        let first = all.and_then(|all| all.iter().min_by(|a, b| by_precedence(a, b)));
        assert_eq!(winner(&claims), first.map(|first| &first.port));
        assert_eq!(all.map_or(0, |all| all.len()), staked.len());
    }
}

#[test]
fn a_loss_is_reported_once_each_time_it_begins() {
    let mut claims = FrontendClaims::default();
    let lost = |claims: &mut FrontendClaims| match claims.outcome(&one(1, "b")[0], None) {
        ClaimOutcome::Wins => None,
        ClaimOutcome::Loses {
            to, is_new_loss, ..
        } => Some((to.service.name().to_string(), is_new_loss)),
    };
    restate(&mut claims, &NONE, &one(1, "b"), age(2, 0));
    assert_eq!(lost(&mut claims), None);
    restate(&mut claims, &NONE, &one(1, "a"), age(1, 0));
    assert_eq!(lost(&mut claims), Some(("a".into(), true)));
    restate(&mut claims, &one(1, "b"), &one(1, "b"), age(2, 0));
    assert_eq!(lost(&mut claims), Some(("a".into(), false)));
    restate(&mut claims, &one(1, "a"), &NONE, age(1, 0));
    assert_eq!(lost(&mut claims), None);
    restate(&mut claims, &NONE, &one(1, "a"), age(1, 0));
    assert_eq!(lost(&mut claims), Some(("a".into(), true)));
}

#[test]
fn who_assigned_an_address_goes_before_age() {
    for (strong, weak) in [(0, 1), (0, 2), (1, 2)] {
        let strong = ranked(1, "strong", RANKS[strong]);
        let weak = ranked(1, "weak", RANKS[weak]);
        // The weaker claim is older by creation, by appearance, or the younger.
        for (old, young) in [
            (age(1, 1), age(2, 2)),
            (age(0, 1), age(0, 2)),
            (age(1, 1), age(0, 2)),
        ] {
            for (of_strong, of_weak) in [(young, old), (old, young)] {
                let mut claims = FrontendClaims::default();
                restate(&mut claims, &NONE, &weak, of_weak);
                restate(&mut claims, &NONE, &strong, of_strong);
                assert_eq!(winner(&claims), Some(&port("strong")));
                let mut claims = FrontendClaims::default();
                restate(&mut claims, &NONE, &strong, of_strong);
                restate(&mut claims, &NONE, &weak, of_weak);
                assert_eq!(winner(&claims), Some(&port("strong")));
                restate(&mut claims, &strong, &NONE, of_strong);
                assert_eq!(winner(&claims), Some(&port("weak")));
            }
        }
    }
}

#[test]
fn a_claim_that_changes_its_rank_is_judged_again() {
    let mut claims = FrontendClaims::default();
    let external = ranked(1, "a", Rank::Author);
    let assigned = ranked(1, "a", Rank::Controller);
    restate(&mut claims, &NONE, &external, age(1, 0));
    restate(&mut claims, &NONE, &ranked(1, "b", Rank::Author), age(0, 0));
    restate(
        &mut claims,
        &NONE,
        &ranked(1, "c", Rank::Controller),
        age(2, 0),
    );
    assert_eq!(winner(&claims), Some(&port("c")));
    let moved = restate(&mut claims, &external, &assigned, age(1, 0));
    assert_eq!(winner(&claims), Some(&port("a")));
    assert_eq!(names(&moved), ["a", "c"]);
    let moved = restate(&mut claims, &assigned, &external, age(1, 0));
    assert_eq!(winner(&claims), Some(&port("c")));
    assert_eq!(names(&moved), ["a", "c"]);
}

#[test]
fn a_rank_takes_no_room() {
    assert_eq!(size_of::<Claimant>(), size_of::<(PortKey, Age)>());
}
