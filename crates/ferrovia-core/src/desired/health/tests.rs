//! Tests of health checks, and of counting ports without local endpoints.

use serde_json::{Value, json};

use super::*;
use crate::desired::Frontend;
use crate::family::Family::{V4, V6};
use crate::testing::{NODE, TestCluster, endpoint, merge, ports, service, settings, slice};
use crate::wire::Kind;

fn checked(name: &str, port: u16) -> Value {
    service(
        name,
        "10.0.0.1",
        json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": port}),
    )
}

fn not_ready(ip: &str) -> Value {
    let mut value = endpoint(ip, NODE);
    merge(&mut value, json!({"conditions": {"ready": false}}));
    value
}

fn check(world: &TestCluster, name: &str) -> Option<(u16, u32)> {
    let checks = &world.builder.desired(V4).health_checks;
    checks
        .get(&ServiceKey::from_checked_names("default", name))
        .map(|check| (check.port, check.local_endpoints))
}

#[test]
fn ready_pods_on_this_node_count_once_each() {
    let mut world = TestCluster::new(settings());
    world.apply(checked("web", 31000));
    assert_eq!(check(&world, "web"), Some((31000, 0)));
    let endpoints = vec![
        endpoint("10.1.0.1", NODE),
        endpoint("10.1.0.2", NODE),
        endpoint("10.1.0.3", "elsewhere"),
        not_ready("10.1.0.4"),
    ];
    world.apply(slice("web-1", "web", endpoints));
    world.apply(slice("web-2", "web", vec![endpoint("10.1.0.1", NODE)]));
    assert_eq!(check(&world, "web"), Some((31000, 2)));
    assert!(world.builder.desired(V6).health_checks.is_empty());
    let (deltas, _) = world.apply(slice("web-3", "web", vec![endpoint("10.1.0.9", NODE)]));
    assert!(deltas.v4.checks.is_empty(), "the port is the same");
    world.delete(Kind::EndpointSlice, "web-3");
    let (deltas, _) = world.apply(checked("web", 31001));
    assert_eq!(
        deltas.v4.checks,
        [ServiceKey::from_checked_names("default", "web")]
    );
    assert_eq!(check(&world, "web"), Some((31001, 2)));
    world.delete(Kind::Service, "web");
    assert_eq!(check(&world, "web"), None);
}

#[test]
fn pods_without_a_port_do_not_count() {
    let mut world = TestCluster::new(settings());
    world.apply(checked("web", 31000));
    let mut portless = slice("web-1", "web", vec![endpoint("10.1.0.1", NODE)]);
    portless["ports"] = json!([]);
    world.apply(portless.clone());
    assert_eq!(check(&world, "web"), Some((31000, 0)));
    portless["ports"] = json!([{"port": null}]);
    world.apply(portless);
    assert_eq!(check(&world, "web"), Some((31000, 0)));
    world.apply(slice("web-2", "web", vec![endpoint("10.1.0.2", NODE)]));
    assert_eq!(check(&world, "web"), Some((31000, 1)));
}

#[test]
fn a_service_without_a_check_port_has_no_check() {
    let mut world = TestCluster::new(settings());
    world.apply(service("web", "10.0.0.1", json!({})));
    world.apply(slice("web-1", "web", vec![endpoint("10.1.0.1", NODE)]));
    assert_eq!(check(&world, "web"), None);
}

fn port(
    policies: [TrafficPolicy; 2],
    frontends: &[Frontend],
    any: bool,
    local: bool,
) -> Arc<ServicePort> {
    let local = local.then(|| ports::endpoint(2, 1));
    Arc::new(ServicePort {
        frontends: frontends.into(),
        local: local.into_iter().collect(),
        any_endpoints: any,
        internal_policy: policies[0],
        external_policy: policies[1],
        ..ports::port(1, &[])
    })
}

#[test]
fn ports_that_lack_local_endpoints_are_counted_by_policy() {
    use TrafficPolicy::{Cluster, Local};
    let inside = Frontend::ClusterIp("10.0.0.1:80".parse().unwrap());
    let external_access = Frontend::NodePort(30080);
    let count = |port: &Arc<ServicePort>| {
        let found = WithoutLocal::of(&Some(Arc::clone(port)));
        (found.internal, found.external)
    };
    let both = [inside, external_access];
    assert_eq!(count(&port([Local, Local], &both, true, false)), (1, 1));
    assert_eq!(count(&port([Cluster, Local], &both, true, false)), (0, 1));
    assert_eq!(count(&port([Local, Local], &[inside], true, false)), (1, 0));
    assert_eq!(count(&port([Local, Local], &both, true, true)), (0, 0));
    assert_eq!(count(&port([Local, Local], &both, false, false)), (0, 0));

    let mut tally = WithoutLocal::default();
    let lacking = port([Local, Local], &both, true, false);
    let change = |old: Option<&Arc<ServicePort>>, new: Option<&Arc<ServicePort>>| PortChange {
        key: lacking.key.clone(),
        old: old.cloned(),
        new: new.cloned(),
    };
    tally.follow(&[change(None, Some(&lacking))]);
    assert_eq!((tally.internal, tally.external), (1, 1));
    tally.follow(&[change(Some(&lacking), None)]);
    assert_eq!(tally, WithoutLocal::default());
}
