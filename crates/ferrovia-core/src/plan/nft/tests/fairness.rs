//! The Services of one namespace do not affect the selectors of those of another.

use super::*;
use crate::plan::nft::share::{MAX_UNCOMMON_CLASSES, UNCOMMON_CLASSES_PER_NAMESPACE};

/// A service port of a namespace, with an address and a node port of its own.
fn tenant(namespace: &str, n: u16, endpoints: &[Endpoint]) -> ServicePort {
    let mut port = service(1, endpoints);
    port.key.service = ServiceKey::from_checked_names(namespace, &format!("s{n}"));
    port.frontends = Box::new([Frontend::NodePort(n)]);
    port
}

fn sticky(namespace: &str, n: u16, timeout: u32, endpoints: &[Endpoint]) -> ServicePort {
    ServicePort {
        affinity: Some(timeout),
        ..tenant(namespace, n, endpoints)
    }
}

fn all(ports: impl IntoIterator<Item = ServicePort>) -> Vec<(PortKey, Option<ServicePort>)> {
    let change = |port: ServicePort| (port.key.clone(), Some(port));
    ports.into_iter().map(change).collect()
}

fn weighted<const N: usize>(weights: [u16; N]) -> Vec<Endpoint> {
    let endpoints = (1..).zip(weights);
    endpoints.map(|(n, weight)| endpoint(n, weight)).collect()
}

/// The meaning of the kernel's elements of a service port.
fn fact(lab: &NftHarness, port: &ServicePort) -> String {
    let facts = lab.meaning();
    let name = format!("{}:", port.key.service);
    let mut of_port = facts.into_iter().filter(|fact| fact.contains(&name));
    of_port.next().unwrap_or_default()
}

/// Service ports of another namespace, with common and uncommon selectors.
fn victims() -> Vec<ServicePort> {
    vec![
        sticky("shop", 1, 777, &weighted([3, 2])),
        sticky("shop", 2, 10_800, &weighted([1, 1, 1])),
        tenant("shop", 3, &weighted([1000, 1])),
        tenant("shop", 4, &weighted([2, 1])),
    ]
}

#[test]
fn a_namespace_with_many_selectors_leaves_affinity_and_weights_of_others_exact() {
    let mut lab = NftHarness::new();
    let greedy = |n: u16| {
        sticky(
            "evil",
            1_000 + n,
            u32::from(n) + 1,
            &weighted([n % 50 + 1, 51]),
        )
    };
    lab.change(all((0..3_000).map(greedy)));
    let warnings = lab.planner.take_warnings();
    assert!(
        !warnings.is_empty()
            && warnings
                .iter()
                .all(|w| w.object.starts_with("Service evil/"))
    );

    let plan = lab.change(all(victims()));
    assert_eq!(plan.notes, [""; 0]);
    assert!(lab.planner.take_warnings().is_empty());
    let mut alone = NftHarness::new();
    alone.change(all(victims()));
    for port in victims() {
        let found = fact(&lab, &port);
        assert!(!found.is_empty());
        assert_eq!(found, fact(&alone, &port));
    }
    // The greedy ones still have affinity and all their endpoints.
    let last = fact(&lab, &greedy(2_999));
    assert!(
        last.contains("sticky-4096-") && last.matches(" x").count() == 2,
        "{last}"
    );
}

#[test]
fn services_that_change_all_the_time_use_no_more_than_their_share() {
    let mut lab = NftHarness::new();
    for timeout in 1..=3_000 {
        lab.set(sticky("evil", 1_000, timeout, &weighted([1, 2])));
    }
    lab.change(all(victims()));
    assert!(
        lab.planner
            .take_warnings()
            .iter()
            .all(|w| !w.object.contains("shop"))
    );
    lab.deferred_removals();
    let exact = lab.set(sticky("evil", 1_000, 4_000, &weighted([1, 2])));
    assert!(exact.to_string().contains("sticky-4000-3"), "{exact}");
}

#[test]
fn many_greedy_namespaces_cannot_use_up_common_selectors() {
    let mut lab = NftHarness::new();
    let greedy = (0..2 * MAX_UNCOMMON_CLASSES).map(|i| {
        let n = 1_000 + i as u16;
        let namespace = format!("evil-{}", i / UNCOMMON_CLASSES_PER_NAMESPACE);
        sticky(&namespace, n, 20_000 + i as u32, &weighted([1, 2]))
    });
    lab.change(all(greedy));
    lab.planner.take_warnings();
    let usual = [
        sticky("shop", 2, 10_800, &weighted([1; 100])),
        tenant("shop", 3, &weighted([1; 200])),
    ];
    lab.change(all(usual.clone()));
    assert!(lab.planner.take_warnings().is_empty());
    assert!(fact(&lab, &usual[0]).contains("sticky-10800-100"));
    assert!(fact(&lab, &usual[1]).contains("pick-200"));
    // An uncommon selector is rounded and reported.
    let unusual = sticky("shop", 4, 777, &weighted([3, 2]));
    lab.set(unusual.clone());
    let warnings = lab.planner.take_warnings();
    assert_eq!(
        warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "Service shop/s4: spec.sessionAffinityConfig.clientIP.timeoutSeconds: a namespace may use 64 uncommon combinations of timeout and \
             number of endpoints, and this namespace needs more; clients of this Service are remembered for 1024 seconds, and weights are \
             approximated"
        ]
    );
    let found = fact(&lab, &unusual);
    assert!(found.contains("sticky-1024-32"), "{found}");
    // Not reported again while it stays rounded.
    lab.set(sticky("shop", 4, 777, &weighted([2, 3])));
    assert!(lab.planner.take_warnings().is_empty());
}

#[test]
fn a_restart_leaves_rounded_lists_as_they_are() {
    let mut lab = NftHarness::new();
    let greedy = |n: u16| sticky("evil", 1_000 + n, u32::from(n) + 1, &weighted([2, 1]));
    // Their names sort in the order in which they were added, so that a restart processes them in the same order.
    lab.change(all((0..200).map(greedy)));
    lab.deferred_removals();
    lab.planner = NftPlanner::new(Family::V4, true);
    let plan = lab.full();
    assert!(plan.is_empty(), "{plan}");
}

proptest! {
    /// A Service's selectors depend on its own namespace only.
    #[test]
    fn a_namespace_never_changes_what_another_has(
        timeouts in prop::collection::vec(1u32..90_000, 0..300),
        before in any::<bool>(),
    ) {
        let greedy = || all((0..).zip(&timeouts).map(|(n, timeout)| sticky("evil", 1_000 + n, *timeout, &weighted([5, 2]))));
        let mut lab = NftHarness::new();
        if before {
            lab.change(greedy());
        }
        lab.change(all(victims()));
        if !before {
            lab.change(greedy());
        }
        let mut alone = NftHarness::new();
        alone.change(all(victims()));
        for port in victims() {
            prop_assert_eq!(fact(&lab, &port), fact(&alone, &port));
        }
    }
}
