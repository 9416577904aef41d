//! Tests of the limit that the Services of a namespace share.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::model::{ServiceLimits, ServicePolicy};
use crate::store::{Event, Store};
use crate::testing::{NODE, applied, merge, service};
use crate::wire::Kind;

const LIMIT: usize = 10;

fn store() -> Store {
    let limits = ServiceLimits {
        external_ip_frontends_per_namespace: LIMIT,
        ..ServiceLimits::default()
    };
    let policy = ServicePolicy {
        limits,
        ..ServicePolicy::default()
    };
    let mut store = Store::with_policy(NODE, policy);
    store.handle(Event::Listed(Kind::Service));
    store
}

/// A Service of this age in days with so many external IPs and ports.
fn listing(namespace: &str, name: &str, day: u8, ips: usize, ports: usize) -> Event {
    let ips: Vec<String> = (0..ips).map(|i| format!("203.0.113.{i}")).collect();
    let port = |i| json!({"name": format!("p{i}"), "port": 80 + i});
    let ports: Vec<Value> = (0..ports).map(port).collect();
    let mut value = service(
        name,
        "10.0.0.1",
        json!({"externalIPs": ips, "ports": ports}),
    );
    let created = format!("2026-01-{day:02}T00:00:00Z");
    merge(
        &mut value,
        json!({"metadata": {"namespace": namespace, "creationTimestamp": created}}),
    );
    applied(value)
}

fn gone(namespace: &str, name: &str) -> Event {
    Event::Deleted {
        kind: Kind::Service,
        namespace: namespace.into(),
        name: name.into(),
    }
}

/// How many external IPs each Service has.
fn served(store: &mut Store) -> BTreeMap<String, usize> {
    store.take_touched();
    let services = store.services();
    let count =
        |it: &std::sync::Arc<crate::model::Service>| (it.key.to_string(), it.external_ip_count());
    services.map(count).collect()
}

fn expected<const N: usize>(services: [(&str, usize); N]) -> BTreeMap<String, usize> {
    services
        .map(|(name, count)| (name.to_owned(), count))
        .into()
}

#[test]
fn the_oldest_have_theirs_first_and_each_namespace_has_its_own_limit() {
    let mut store = store();
    store.handle(listing("evil", "young", 3, 5, 2));
    store.handle(listing("evil", "old", 1, 3, 1));
    store.handle(listing("evil", "middle", 2, 4, 1));
    store.handle(listing("shop", "web", 4, 5, 2));
    let touched = store.take_touched();
    let warnings: Vec<_> = touched.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "Service evil/young: spec.externalIPs: external IPs in this namespace need 17 frontends, the limit is 10; only 1 of 5 \
             addresses of this Service are served"
        ]
    );
    let all = [
        ("evil/young", 1),
        ("evil/old", 3),
        ("evil/middle", 4),
        ("shop/web", 5),
    ];
    assert_eq!(served(&mut store), expected(all));
    store.handle(gone("evil", "old"));
    assert_eq!(served(&mut store)["evil/young"], 3);
    store.handle(gone("evil", "middle"));
    assert_eq!(served(&mut store)["evil/young"], 5);
}

#[test]
fn what_does_not_change_is_neither_touched_nor_reported_again() {
    let mut store = store();
    store.handle(listing("evil", "old", 1, 10, 1));
    store.handle(listing("evil", "young", 2, 5, 1));
    assert_eq!(store.take_touched().warnings.len(), 1);
    store.handle(listing("evil", "young", 2, 5, 1));
    let touched = store.take_touched();
    assert_eq!((touched.services.len(), touched.warnings.len()), (0, 0));
    // It changes, but not in this.
    let mut value = listing("evil", "young", 2, 5, 1);
    if let Event::Applied(object) = &mut value
        && let crate::wire::Object::Service(service) = &mut **object
    {
        service.spec.session_affinity = "ClientIP".into();
    }
    store.handle(value);
    let touched = store.take_touched();
    assert_eq!((touched.services.len(), touched.warnings.len()), (1, 0));
    assert_eq!(served(&mut store)["evil/young"], 0);
}

proptest! {
    /// Whatever comes and goes, each Service has what it would have if the last objects had come at once.
    #[test]
    fn the_outcome_depends_on_the_services_and_not_on_their_order(
        steps in prop::collection::vec((0..6u8, 1..4u8, 0..9usize, 1..3usize, prop::bool::weighted(0.3)), 0..40)
    ) {
        let mut store = store();
        let mut left = BTreeMap::new();
        for (i, day, ips, ports, settles) in steps {
            let name = format!("s{i}");
            if ips == 8 {
                store.handle(gone("a", &name));
                left.remove(&name);
            } else {
                store.handle(listing("a", &name, day, ips, ports));
                left.insert(name, (day, ips, ports));
            }
            if settles {
                store.take_touched();
            }
        }
        let mut fresh = self::store();
        for (name, (day, ips, ports)) in left.iter().rev() {
            fresh.handle(listing("a", name, *day, *ips, *ports));
        }
        let found = served(&mut store);
        prop_assert_eq!(&found, &served(&mut fresh));
        let total: usize = left.iter().map(|(name, (_, _, ports))| found[&format!("a/{name}")] * ports).sum();
        prop_assert!(total <= LIMIT);
    }
}
