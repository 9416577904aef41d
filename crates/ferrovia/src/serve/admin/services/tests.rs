use std::net::SocketAddr;
use std::sync::Arc;

use ferrovia_core::desired::{Endpoint, ServicePort};
use ferrovia_core::family::Family;
use ferrovia_core::model::{Algorithm, PortKey, Protocol, TrafficPolicy};

use super::*;

/// A service `namespace/name` at 10.96.0.`number`:80 with so many endpoints.
fn port(namespace: &str, name: &str, number: u8, endpoints: u8) -> (Family, Arc<ServicePort>) {
    let endpoint = |host| Endpoint {
        ip: [10, 244, number, host].into(),
        port: 8080,
        weight: 1,
        is_local: false,
    };
    let cluster: Arc<[Endpoint]> = (0..endpoints).map(endpoint).collect();
    let at = SocketAddr::from(([10, 96, 0, number], 80));
    let port = ServicePort {
        key: PortKey {
            service: ServiceKey::new(namespace, name).unwrap(),
            name: "http".into(),
            protocol: Protocol::Tcp,
        },
        frontends: [
            Frontend::ClusterIp(at),
            Frontend::NodePort(30000 + u16::from(number)),
        ]
        .into(),
        local: Arc::clone(&cluster),
        answering: None,
        any_endpoints: endpoints > 0,
        cluster,
        internal_policy: TrafficPolicy::Cluster,
        external_policy: TrafficPolicy::Cluster,
        affinity: None,
        algorithm: Algorithm::Random,
        scheduler: None,
        source_ranges: Box::default(),
    };
    (Family::V4, Arc::new(port))
}

fn snapshot() -> Snapshot {
    Snapshot::new(vec![
        port("kube-system", "kube-dns", 10, 2),
        port("shop", "cart", 21, 3),
        port("shop", "old", 22, 0),
        port("shop", "web", 20, 1),
    ])
}

fn names(query: &str) -> Vec<String> {
    let query = Query::parse(Some(query)).unwrap();
    let cut = Wanted::read(&query)
        .unwrap()
        .cut(&snapshot(), &Sample::default(), true);
    assert_eq!(cut.total, 4);
    cut.rows.iter().map(|row| row.name.clone()).collect()
}

#[test]
fn every_word_of_a_filter_must_hold() {
    assert_eq!(names("filter=shop"), ["cart", "old", "web"]);
    assert_eq!(names("filter=shop+w"), ["web"]);
    assert_eq!(names("filter=WEB"), ["web"]);
    assert_eq!(names("filter=ns:shop+is:down"), ["old"]);
    assert_eq!(names("filter=is:troubled"), ["old"]);
    assert_eq!(names("filter=10.96.0.2"), ["cart", "old", "web"]);
    assert_eq!(names("filter=30010"), ["kube-dns"]);
    assert_eq!(names("filter=type:nodeport+dns"), ["kube-dns"]);
    assert_eq!(names("filter=type:loadbalancer"), [""; 0]);
    assert_eq!(names("filter=%3Cscript%3E"), [""; 0]);
}

#[test]
fn rows_are_sorted_and_cut() {
    assert_eq!(names("sort=-name&limit=2"), ["web", "old"]);
    assert_eq!(names("sort=-endpoints"), ["cart", "kube-dns", "web", "old"]);
    assert_eq!(names("sort=endpoints&offset=1&limit=1"), ["web"]);
    assert_eq!(names("sort=-state&limit=1"), ["old"]);
    assert_eq!(names("offset=99"), [""; 0]);
    let bad = Query::parse(Some("sort=colour")).unwrap();
    assert!(Wanted::read(&bad).is_err());
}

#[test]
fn a_row_says_what_it_knows() {
    let query = Query::parse(Some("filter=cart")).unwrap();
    let cut = Wanted::read(&query)
        .unwrap()
        .cut(&snapshot(), &Sample::default(), false);
    let row = serde_json::to_value(&cut.rows[0]).unwrap();
    assert_eq!(row["types"], serde_json::json!(["ClusterIP", "NodePort"]));
    assert_eq!(row["ports"], serde_json::json!(["80/tcp"]));
    assert_eq!(row["nodePorts"], serde_json::json!([30021]));
    assert_eq!(row["endpoints"]["in"], 3);
    assert_eq!(row["connections"], Value::Null);
}
