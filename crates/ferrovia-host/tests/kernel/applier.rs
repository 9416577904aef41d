//! Whether anyone but us has written since we last looked, with two families on one connection.

use ferrovia_core::dialect::nft::NftOp;
use ferrovia_core::family::Family;
use ferrovia_host::Applier;
use ferrovia_host::nft::{Nft, NftApplier, NftConnection};

use crate::sample;
use crate::support::{in_namespace, load, transaction};

/// An applier of each family on one connection, both of which have looked.
fn appliers() -> [NftApplier; 2] {
    let connection = NftConnection::new(Nft::open().unwrap());
    let mut both = Family::ALL.map(|family| NftApplier::new(family, connection.clone()));
    for applier in &mut both {
        applier.observe().unwrap();
    }
    both
}

fn commit(applier: &mut NftApplier, family: Family) {
    let plan = transaction(family, sample::frame(family));
    assert!(applier.apply(&plan).unwrap());
}

fn are_untouched(appliers: &mut [NftApplier; 2]) -> [bool; 2] {
    appliers
        .each_mut()
        .map(|applier| applier.is_untouched().unwrap())
}

#[test]
fn before_the_first_look_nothing_is_known() {
    in_namespace(|| {
        let connection = NftConnection::new(Nft::open().unwrap());
        let mut v4 = NftApplier::new(Family::V4, connection.clone());
        let mut v6 = NftApplier::new(Family::V6, connection);
        v6.observe().unwrap();
        assert!(!v4.is_untouched().unwrap());
        assert!(v6.is_untouched().unwrap());
    });
}

#[test]
fn a_commit_of_one_family_leaves_the_other_untouched() {
    in_namespace(|| {
        let mut both = appliers();
        for (number, family) in Family::ALL.into_iter().enumerate() {
            commit(&mut both[number], family);
            assert_eq!(are_untouched(&mut both), [true, true], "after {family}");
        }
    });
}

#[test]
fn a_refused_commit_leaves_both_untouched() {
    in_namespace(|| {
        let mut both = appliers();
        let senseless = transaction(Family::V4, vec![NftOp::DeleteChain("nowhere".into())]);
        assert!(both[0].apply(&senseless).is_err());
        assert_eq!(are_untouched(&mut both), [true, true]);
    });
}

#[test]
fn a_foreign_commit_touches_both_until_each_has_looked() {
    in_namespace(|| {
        let mut both = appliers();
        commit(&mut both[0], Family::V4);
        load("add table ip6 theirs");
        assert_eq!(are_untouched(&mut both), [false, false]);
        // Looking at one family says nothing about the other, and neither does writing.
        both[0].observe().unwrap();
        assert_eq!(are_untouched(&mut both), [true, false]);
        commit(&mut both[0], Family::V4);
        assert_eq!(are_untouched(&mut both), [true, false]);
        both[1].observe().unwrap();
        assert_eq!(are_untouched(&mut both), [true, true]);
    });
}

#[test]
fn a_plan_that_says_nothing_does_not_hide_a_foreign_commit() {
    in_namespace(|| {
        let mut both = appliers();
        commit(&mut both[0], Family::V4);
        let services = sample::Sets::of(Family::V4).services;
        let nothing = vec![NftOp::AddElements(services, Vec::new())];
        for ops in [nothing, Vec::new()] {
            assert!(!both[0].apply(&transaction(Family::V4, ops)).unwrap());
            assert_eq!(are_untouched(&mut both), [true, true]);
        }
        load("add table ip theirs");
        assert_eq!(are_untouched(&mut both), [false, false]);
    });
}

#[test]
fn a_commit_of_ours_does_not_hide_a_foreign_one() {
    in_namespace(|| {
        let mut both = appliers();
        load("add table ip theirs");
        commit(&mut both[1], Family::V6);
        assert_eq!(are_untouched(&mut both), [false, false]);
    });
}
