//! Tests of the quota of ports.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::model::{ServiceLimits, ServicePolicy};
use crate::store::{Event, Store};
use crate::testing::{NODE, applied, merge, service};

const LIMIT: usize = 8;
const CAPACITY: usize = 20;

fn store() -> Store {
    let limits = ServiceLimits {
        ports_per_namespace: LIMIT,
        external_ip_frontends_per_namespace: 10,
        ..ServiceLimits::default()
    };
    let policy = ServicePolicy {
        limits,
        ..ServicePolicy::default()
    };
    let mut store = Store::with_policy(NODE, policy);
    store.port_quotas.capacity = CAPACITY;
    store.handle(Event::Listed(Kind::Service));
    store
}

/// A Service created on this day, with this many ports and external IPs.
fn with_ports(namespace: &str, name: &str, day: u8, ports: usize, ips: usize) -> Event {
    let port = |i| json!({"name": format!("p{i}"), "port": 80 + i});
    let ports: Vec<Value> = (0..ports).map(port).collect();
    let ips: Vec<String> = (0..ips).map(|i| format!("203.0.113.{i}")).collect();
    let spec = json!({"ports": ports, "externalIPs": ips});
    let mut value = service(name, "10.0.0.1", spec);
    let created = format!("2026-01-{day:02}T00:00:00Z");
    let metadata = json!({"namespace": namespace, "creationTimestamp": created});
    merge(&mut value, json!({"metadata": metadata}));
    applied(value)
}

fn gone(namespace: &str, name: &str) -> Event {
    Event::Deleted {
        kind: Kind::Service,
        namespace: namespace.into(),
        name: name.into(),
    }
}

/// The numbers of served ports and external IPs by Service.
fn served(store: &mut Store) -> BTreeMap<String, (usize, usize)> {
    store.take_touched();
    let services = store.services();
    let count = |it: &Arc<Service>| (it.key.to_string(), (it.ports.len(), it.external_ip_count()));
    services.map(count).collect()
}

#[test]
fn the_oldest_services_of_a_namespace_are_served_first() {
    let mut store = store();
    store.handle(with_ports("evil", "young", 3, 5, 0));
    store.handle(with_ports("evil", "old", 1, 6, 0));
    store.handle(with_ports("shop", "web", 4, 5, 0));
    let touched = store.take_touched();
    let warnings: Vec<_> = touched.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "Service evil/young: spec.ports: the Services of this namespace have 11 ports, and the limit is 8; only 2 of this Service's 5 ports are served"
        ]
    );
    assert_eq!(served(&mut store)["evil/young"].0, 2);
    assert_eq!(served(&mut store)["shop/web"].0, 5);
    // Nothing has changed.
    store.handle(with_ports("evil", "young", 3, 5, 0));
    store.handle(with_ports("evil", "another", 4, 1, 0));
    let touched = store.take_touched();
    let names: Vec<_> = touched.services.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["evil/another"]);
    store.handle(gone("evil", "old"));
    assert_eq!(served(&mut store)["evil/young"].0, 5);
    assert_eq!(served(&mut store)["evil/another"].0, 1);
}

#[test]
fn many_greedy_namespaces_leave_room_for_the_others() {
    let mut store = store();
    for n in 0..4 {
        store.handle(with_ports(&format!("evil-{n}"), "s", 1, 8, 0));
    }
    store.handle(with_ports("shop", "web", 9, 3, 0));
    let touched = store.take_touched();
    let warning = touched.warnings[0].to_string();
    assert!(
        warning.contains("the limit is 4, because all namespaces together have more than 20"),
        "{warning}"
    );
    let found = served(&mut store);
    assert_eq!(found["evil-0/s"].0, 4);
    assert_eq!(found["shop/web"].0, 3);
    for n in 0..3 {
        store.handle(gone(&format!("evil-{n}"), "s"));
    }
    assert_eq!(served(&mut store)["evil-3/s"].0, 8);
}

#[test]
fn by_default_ten_thousand_services_of_one_namespace_have_all_their_ports() {
    let mut store = Store::new(NODE);
    for n in 0..10_000 {
        store.handle(with_ports("shop", &format!("s{n}"), 1, 3, 0));
    }
    let touched = store.take_touched();
    assert_eq!(
        (touched.services.len(), touched.warnings.len()),
        (10_000, 0)
    );
    assert!(served(&mut store).values().all(|(ports, _)| *ports == 3));
}

#[test]
fn a_service_can_exceed_both_limits() {
    let mut store = store();
    store.handle(with_ports("evil", "s", 1, 12, 3));
    assert_eq!(served(&mut store)["evil/s"], (8, 1));
    store.handle(with_ports("evil", "s", 1, 2, 3));
    assert_eq!(served(&mut store)["evil/s"], (2, 3));
    store.handle(with_ports("evil", "s", 1, 12, 3));
    assert_eq!(served(&mut store)["evil/s"], (8, 1));
}

proptest! {
    /// After any sequence of events, the result is that of the last objects applied at once.
    #[test]
    fn the_outcome_depends_on_the_services_and_not_on_their_order(
        steps in prop::collection::vec((0..4u8, 0..3u8, 1..4u8, 0..12usize, 0..4usize, prop::bool::weighted(0.3)), 0..40)
    ) {
        let mut store = store();
        let mut left = BTreeMap::new();
        for (namespace, i, day, ports, ips, settles) in steps {
            let (namespace, name) = (format!("n{namespace}"), format!("s{i}"));
            if ports == 0 {
                store.handle(gone(&namespace, &name));
                left.remove(&(namespace, name));
            } else {
                store.handle(with_ports(&namespace, &name, day, ports, ips));
                left.insert((namespace, name), (day, ports, ips));
            }
            if settles {
                store.take_touched();
            }
        }
        let mut fresh = self::store();
        for ((namespace, name), (day, ports, ips)) in left.iter().rev() {
            fresh.handle(with_ports(namespace, name, *day, *ports, *ips));
        }
        let found = served(&mut store);
        prop_assert_eq!(&found, &served(&mut fresh));
        prop_assert!(found.values().map(|(ports, _)| ports).sum::<usize>() <= CAPACITY);
        // All ports of a namespace with few ports are served.
        for namespace in 0..4 {
            let of_namespace = || left.iter().filter(|((it, _), _)| *it == format!("n{namespace}"));
            let wanted: usize = of_namespace().map(|(_, (_, ports, _))| ports).sum();
            if wanted <= 4 {
                let has_all = of_namespace().all(|((it, name), (_, ports, _))| found[&format!("{it}/{name}")].0 == *ports);
                prop_assert!(has_all);
            }
        }
    }
}
