//! Tests of the store: what touches what, relabelling, legacy objects, ages, repeated warnings.

use serde_json::{Value, json};

use super::*;
use crate::testing::{NODE, applied, endpoint, merge, service, slice};

struct Fixture(Store);

impl Fixture {
    fn new() -> Self {
        Self(Store::new(NODE))
    }

    /// Applies an object; the services it touched, with `node` for the node.
    fn apply(&mut self, value: Value) -> Vec<String> {
        self.0.handle(applied(value));
        self.touched()
    }

    fn delete(&mut self, kind: Kind, name: &str) -> Vec<String> {
        self.0.handle(Event::Deleted {
            kind,
            namespace: String::new(),
            name: name.into(),
        });
        self.touched()
    }

    fn touched(&mut self) -> Vec<String> {
        let touched = self.0.take_touched();
        let node = touched.node.then(|| "node".to_string());
        touched
            .services
            .iter()
            .map(|key| key.name().to_string())
            .chain(node)
            .collect()
    }

    fn ips(&self, service: &str) -> Vec<String> {
        let key = ServiceKey::from_checked_names("default", service);
        self.0
            .slices(&key)
            .flat_map(|slice| slice.endpoints.iter().map(|e| e.ip.to_string()))
            .collect()
    }
}

const NOTHING: [&str; 0] = [];

#[test]
fn initial_lists_are_complete_with_services_and_slices() {
    for order in [
        [Kind::Service, Kind::EndpointSlice],
        [Kind::EndpointSlice, Kind::Service],
    ] {
        let mut store = Store::new(NODE);
        store.handle(Event::Listed(Kind::Node));
        for kind in order {
            assert!(!store.initial_lists_done());
            store.handle(Event::Listed(kind));
        }
        assert!(store.initial_lists_done());
    }
}

#[test]
fn only_changes_of_what_we_read_touch_a_service() {
    let mut fixture = Fixture::new();
    assert_eq!(
        fixture.apply(service("web", "10.0.0.1", json!({}))),
        ["web"]
    );
    assert_eq!(
        fixture.apply(service("web", "10.0.0.1", json!({}))),
        NOTHING
    );
    let mut relabelled = service(
        "web",
        "10.0.0.1",
        json!({"selector": {"a": "b"}, "trafficDistribution": "x"}),
    );
    merge(
        &mut relabelled,
        json!({"metadata": {"labels": {"a": "b"}, "resourceVersion": "7"}}),
    );
    assert_eq!(fixture.apply(relabelled), NOTHING);
    assert_eq!(
        fixture.apply(service("web", "10.0.0.2", json!({}))),
        ["web"]
    );
    assert_eq!(fixture.delete(Kind::Service, "web"), ["web"]);
    assert_eq!(fixture.delete(Kind::Service, "web"), NOTHING);
}

#[test]
fn a_service_that_becomes_unusable_goes() {
    for spec in [
        json!({"clusterIP": "None"}),
        json!({"type": "ExternalName"}),
        json!({"ports": []}),
    ] {
        let mut fixture = Fixture::new();
        fixture.apply(service("web", "10.0.0.1", json!({})));
        assert_eq!(fixture.apply(service("web", "10.0.0.1", spec)), ["web"]);
        assert_eq!(fixture.0.services().count(), 0);
    }
}

#[test]
fn slices_come_and_go() {
    let mut fixture = Fixture::new();
    let one = slice("web-1", "web", json!([endpoint("10.1.0.1", "n1")]));
    assert_eq!(fixture.apply(one.clone()), ["web"]);
    assert_eq!(fixture.apply(one), NOTHING);
    assert_eq!(
        fixture.apply(slice("web-0", "web", json!([endpoint("10.1.0.9", "n1")]))),
        ["web"]
    );
    assert_eq!(
        fixture.ips("web"),
        ["10.1.0.9", "10.1.0.1"],
        "in order of slice names"
    );
    assert_eq!(
        fixture.apply(slice("web-1", "web", json!([endpoint("10.1.0.2", "n1")]))),
        ["web"]
    );
    assert_eq!(fixture.ips("web"), ["10.1.0.9", "10.1.0.2"]);
    assert_eq!(fixture.delete(Kind::EndpointSlice, "unknown"), NOTHING);
    assert_eq!(fixture.delete(Kind::EndpointSlice, "web-1"), ["web"]);
    assert_eq!(fixture.ips("web"), ["10.1.0.9"]);
    // Becoming unusable is as good as going.
    let mut headless = slice("web-0", "web", json!([endpoint("10.1.0.9", "n1")]));
    merge(
        &mut headless,
        json!({"metadata": {"labels": {"service.kubernetes.io/headless": ""}}}),
    );
    assert_eq!(fixture.apply(headless), ["web"]);
    assert!(fixture.0.slices.is_empty());
}

#[test]
fn a_relabelled_slice_leaves_its_old_service() {
    let mut fixture = Fixture::new();
    fixture.apply(slice("s", "old", json!([endpoint("10.1.0.1", "n1")])));
    assert_eq!(
        fixture.apply(slice("s", "new", json!([endpoint("10.1.0.1", "n1")]))),
        ["new", "old"]
    );
    assert_eq!(fixture.ips("old"), NOTHING);
    assert_eq!(fixture.ips("new"), ["10.1.0.1"]);
}

#[test]
fn a_legacy_object_counts_until_there_is_a_real_slice() {
    let mut fixture = Fixture::new();
    let legacy = json!({"kind": "Endpoints", "metadata": {"name": "web"},
        "subsets": [{"addresses": [{"ip": "10.1.0.1"}], "ports": [{"port": 80}]}]});
    assert_eq!(fixture.apply(legacy.clone()), ["web"]);
    assert_eq!(fixture.apply(legacy), NOTHING);
    assert_eq!(fixture.ips("web"), ["10.1.0.1"]);
    assert!(
        fixture
            .0
            .slices(&ServiceKey::from_checked_names("default", "web"))
            .all(|slice| slice.mirrored)
    );
    // A real slice of the legacy object's own name does not replace it, it outranks it.
    fixture.apply(slice("web", "web", json!([endpoint("10.1.0.2", "n1")])));
    assert_eq!(fixture.ips("web"), ["10.1.0.2"]);
    fixture.delete(Kind::EndpointSlice, "web");
    assert_eq!(fixture.ips("web"), ["10.1.0.1"]);
    assert_eq!(fixture.delete(Kind::Endpoints, "web"), ["web"]);
    assert_eq!(fixture.ips("web"), NOTHING);
    assert!(fixture.0.slices.is_empty());
}

#[test]
fn problems_of_a_legacy_object_carry_its_name() {
    let mut store = Store::new(NODE);
    let warnings = store.handle(applied(
        json!({"kind": "Endpoints", "metadata": {"name": "web"},
        "subsets": [{"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": 80}]}]}),
    ));
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].object, "Endpoints default/web");
}

#[test]
fn only_our_node_counts_and_it_stays() {
    let mut fixture = Fixture::new();
    let node = |name: &str, zone: &str, other: &str| {
        json!({"kind": "Node", "metadata": {"name": name,
            "labels": {"topology.kubernetes.io/zone": zone, "other": other}}})
    };
    assert_eq!(fixture.apply(node("n2", "a", "")), NOTHING);
    assert_eq!(fixture.apply(node("n1", "a", "")), ["node"]);
    assert_eq!(fixture.apply(node("n1", "a", "changed")), NOTHING);
    assert_eq!(fixture.apply(node("n1", "b", "")), ["node"]);
    assert_eq!(fixture.delete(Kind::Node, "n1"), NOTHING);
    assert_eq!(fixture.0.node().unwrap().zone.as_deref(), Some("b"));
}

#[test]
fn service_cidrs_are_kept_per_object() {
    let mut fixture = Fixture::new();
    let cidr = |name: &str, cidrs: Value| json!({"kind": "ServiceCIDR", "metadata": {"name": name}, "spec": {"cidrs": cidrs}});
    let all = |fixture: &Fixture| {
        fixture
            .0
            .service_cidrs()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        fixture.apply(cidr("a", json!(["10.96.0.0/12", "fd00::/108"]))),
        ["node"]
    );
    assert_eq!(
        fixture.apply(cidr(
            "b",
            json!(["10.96.0.0/12", "10.97.0.0/16", "10.200.0.0/16"])
        )),
        ["node"]
    );
    assert_eq!(
        fixture.apply(cidr(
            "b",
            json!(["10.96.0.0/12", "10.97.0.0/16", "10.200.0.0/16"])
        )),
        NOTHING
    );
    assert_eq!(
        all(&fixture),
        ["10.96.0.0/12", "10.200.0.0/16", "fd00::/108"]
    );
    // The other object still has the range that both had.
    assert_eq!(fixture.delete(Kind::ServiceCidr, "a"), ["node"]);
    assert_eq!(all(&fixture), ["10.96.0.0/12", "10.200.0.0/16"]);
    // A range of everything would drop everything.
    let warnings = fixture
        .0
        .handle(applied(cidr("b", json!(["0.0.0.0/0", "bogus"]))));
    assert_eq!((warnings.len(), all(&fixture).len()), (2, 0));
}

#[test]
fn services_of_the_initial_list_have_the_same_age() {
    let mut store = Store::new(NODE);
    let age = |store: &Store, name: &str| {
        store
            .age(&ServiceKey::from_checked_names("default", name))
            .map(|age| age.appeared)
    };
    store.handle(applied(service("b", "10.0.0.2", json!({}))));
    store.handle(applied(service("a", "10.0.0.1", json!({}))));
    store.handle(Event::Listed(Kind::Service));
    store.handle(applied(service("d", "10.0.0.4", json!({}))));
    store.handle(applied(service("c", "10.0.0.3", json!({}))));
    store.handle(applied(service("d", "10.0.0.5", json!({}))));
    assert_eq!(
        ["a", "b", "c", "d", "e"].map(|name| age(&store, name)),
        [Some(0), Some(0), Some(2), Some(1), None]
    );
}

#[test]
fn a_warning_is_reported_once() {
    let mut store = Store::new(NODE);
    let bad = |ip: &str| applied(service("web", "10.0.0.1", json!({"externalIPs": [ip]})));
    assert_eq!(store.handle(bad("bogus")).len(), 1);
    assert_eq!(store.handle(bad("bogus")).len(), 0);
    assert_eq!(store.handle(bad("other")).len(), 1, "a new problem is news");
    assert_eq!(store.handle(bad("8.8.8.8")).len(), 0);
    assert_eq!(
        store.handle(bad("other")).len(),
        1,
        "a problem that came back is news"
    );
    store.handle(Event::Deleted {
        kind: Kind::Service,
        namespace: "default".into(),
        name: "web".into(),
    });
    assert!(store.warning_history.is_empty());
}

#[test]
fn hostile_objects_are_refused_with_a_harmless_reason() {
    let mut store = Store::new(NODE);
    let warnings = store.handle(applied(service("x\n; drop", "10.0.0.1", json!({}))));
    assert_eq!(
        warnings[0].to_string(),
        r#"Service default/"x\n; drop": metadata.name: "x\n; drop" is not a valid name; Service ignored"#
    );
    assert_eq!(store.services().count(), 0);
    // What only looks like another object's key does no harm to it.
    store.handle(applied(service("web", "10.0.0.1", json!({}))));
    store.handle(Event::Deleted {
        kind: Kind::Service,
        namespace: "default/web".into(),
        name: String::new(),
    });
    assert_eq!(store.services().count(), 1);
}

#[test]
fn names_are_shared() {
    let mut store = Store::new(NODE);
    store.handle(applied(slice(
        "a",
        "web",
        json!([endpoint("10.1.0.1", "n9"), endpoint("10.1.0.2", "n9")]),
    )));
    let key = ServiceKey::from_checked_names("default", "web");
    let slice = store.slices(&key).next().unwrap();
    let nodes: Vec<_> = slice
        .endpoints
        .iter()
        .filter_map(|e| e.node.as_ref())
        .collect();
    assert!(Arc::ptr_eq(nodes[0], nodes[1]));
}

#[test]
fn a_service_and_its_slices_have_one_name_whichever_comes_first() {
    let mut store = Store::new(NODE);
    store.handle(applied(service("first", "10.0.0.1", json!({}))));
    store.handle(applied(slice("a", "first", json!([]))));
    store.handle(applied(slice("b", "last", json!([]))));
    store.handle(applied(service("last", "10.0.0.2", json!({}))));
    for name in ["first", "last"] {
        let key = ServiceKey::from_checked_names("default", name);
        let slice = store.slices(&key).next().unwrap();
        let known = store.service(&key).unwrap();
        assert!(std::ptr::eq(slice.service.as_str(), known.key.as_str()));
    }
}

#[test]
fn trigger_times_are_recorded_after_the_initial_list() {
    let mut store = Store::new("n1");
    let triggered = |ip: &str, time: &str| {
        let mut value = slice("web-1", "web", vec![endpoint(ip, "n1")]);
        let annotations = json!({"endpoints.kubernetes.io/last-change-trigger-time": time});
        merge(
            &mut value,
            json!({"metadata": {"annotations": annotations}}),
        );
        applied(value)
    };
    store.handle(triggered("10.1.0.1", "2026-01-01T00:00:00Z"));
    store.handle(Event::Listed(Kind::EndpointSlice));
    assert!(store.take_touched().triggers.is_empty(), "the first list");

    store.handle(triggered("10.1.0.2", "2026-01-01T00:00:01Z"));
    store.handle(triggered("10.1.0.2", "2026-01-01T00:00:02Z"));
    store.handle(triggered("10.1.0.3", &"9".repeat(100)));
    let triggers = store.take_touched().triggers;
    let of_web = &triggers[&ServiceKey::from_checked_names("default", "web")];
    assert_eq!(**of_web, [(Family::V4, "2026-01-01T00:00:01Z".into())]);

    store.handle(triggered("10.1.0.4", "2026-01-01T00:00:03Z"));
    store.handle(Event::Deleted {
        kind: Kind::EndpointSlice,
        namespace: "default".into(),
        name: "web-1".into(),
    });
    assert!(store.take_touched().triggers.is_empty(), "deleted");
}
