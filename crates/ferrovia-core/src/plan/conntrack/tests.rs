//! Which flows go and which stay, from objects to verdicts.

use serde_json::{Value, json};

use super::*;
use crate::desired::NodePortSetting;
use crate::family::Family::{V4, V6};
use crate::testing::{TestCluster, endpoint, merge, service, settings, slice};
use crate::wire::Kind;

const LOCAL: &str = "198.51.100.10";

/// A world whose changes are noted, and settled as if every sync succeeded.
struct ConntrackHarness {
    world: TestCluster,
    owed: PendingCleanup,
    local: Vec<IpAddr>,
}

impl ConntrackHarness {
    fn new() -> Self {
        Self {
            world: TestCluster::new(settings()),
            owed: PendingCleanup::default(),
            local: vec![LOCAL.parse().unwrap(), "127.0.0.1".parse().unwrap()],
        }
    }

    fn record(&mut self, object: Value) {
        let (deltas, _) = self.world.apply(object);
        self.owed.record(&deltas.v4);
    }

    fn note_deleted(&mut self, kind: Kind, name: &str) {
        let (deltas, _) = self.world.delete(kind, name);
        self.owed.record(&deltas.v4);
    }

    fn take_cleanup(&mut self) -> Option<Cleanup> {
        self.owed
            .take_cleanup(self.world.builder.desired(V4), &self.local)
    }

    /// The targets of what must be cleaned up after an object has changed.
    fn targets_after(&mut self, object: Value) -> Vec<FlowTarget> {
        self.record(object);
        targets_of(self.take_cleanup().as_ref())
    }

    fn cleanup_after(&mut self, object: Value) -> Cleanup {
        self.record(object);
        self.take_cleanup().expect("something to clean up")
    }
}

fn targets_of(cleanup: Option<&Cleanup>) -> Vec<FlowTarget> {
    let mut targets: Vec<_> = cleanup.map_or(Vec::new(), |it| it.targets().collect());
    targets.sort_unstable();
    targets
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn to(text: &str) -> FlowTarget {
    FlowTarget::Address(at(text))
}

/// A DNS Service with every kind of frontend.
fn dns() -> Value {
    let spec = json!({"ports": [{"port": 53, "protocol": "UDP", "nodePort": 30053}],
        "type": "LoadBalancer", "externalIPs": ["192.0.2.53"]});
    let mut dns = service("dns", "10.0.0.10", spec);
    merge(
        &mut dns,
        json!({"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.53"}]}}}),
    );
    dns
}

fn pods(endpoints: impl Into<Value>) -> Value {
    let mut pods = slice("dns-1", "dns", endpoints);
    pods["ports"] = json!([{"port": 5353, "protocol": "UDP"}]);
    pods
}

/// Two pods of `dns`.
fn two() -> Value {
    pods(json!([
        endpoint("10.1.0.1", "n1"),
        endpoint("10.1.0.2", "n2")
    ]))
}

fn one() -> Value {
    pods(json!([endpoint("10.1.0.2", "n2")]))
}

fn reason(cleanup: &Cleanup, sent_to: &str, answered_by: &str) -> Option<StaleReason> {
    cleanup
        .check_flow(at(sent_to), at(answered_by))
        .map(|verdict| verdict.reason)
}

#[test]
fn every_frontend_is_looked_at() {
    let mut lab = ConntrackHarness::new();
    lab.record(dns());
    assert!(lab.take_cleanup().is_none(), "no endpoints yet");
    let all = [
        to("10.0.0.10:53"),
        to("192.0.2.53:53"),
        to("203.0.113.53:53"),
        FlowTarget::NodePort(30053),
    ];
    assert_eq!(lab.targets_after(two()), all);
    assert!(lab.take_cleanup().is_none(), "once is enough");
    let cleanup = lab.cleanup_after(one());
    for address in [
        "10.0.0.10:53",
        "192.0.2.53:53",
        "203.0.113.53:53",
        "198.51.100.10:30053",
        "127.0.0.1:30053",
    ] {
        let judged = |by| reason(&cleanup, address, by);
        assert_eq!(judged("10.1.0.1:5353"), Some(StaleReason::EndpointGone));
        assert_eq!(
            judged("10.1.0.2:53"),
            Some(StaleReason::EndpointGone),
            "an old port"
        );
        assert_eq!(judged("10.1.0.2:5353"), None);
        assert_eq!(judged(address), Some(StaleReason::Untranslated));
    }
    assert_eq!(reason(&cleanup, "10.0.0.10:54", "10.1.0.1:5353"), None);
    assert_eq!(
        reason(&cleanup, "8.8.8.8:30053", "8.8.8.8:30053"),
        None,
        "another machine's port of that number"
    );
}

#[test]
fn node_ports_count_only_where_they_answer() {
    let mut lab = ConntrackHarness::new();
    let mut settings = settings();
    settings.node_ports = NodePortSetting::Cidrs(vec!["198.51.100.0/24".parse().unwrap()]);
    lab.world = TestCluster::new(settings);
    lab.world.local_addresses = lab.local.clone();
    lab.record(dns());
    let cleanup = lab.cleanup_after(two());
    let untranslated = |to| reason(&cleanup, to, to);
    assert!(untranslated("198.51.100.10:30053").is_some());
    assert!(untranslated("127.0.0.1:30053").is_none());
}

#[test]
fn what_new_flows_may_use_is_not_what_old_ones_may_keep() {
    let mut lab = ConntrackHarness::new();
    let mut local = dns();
    merge(
        &mut local,
        json!({"spec": {"internalTrafficPolicy": "Local", "externalTrafficPolicy": "Local"}}),
    );
    lab.record(local);
    let with = |ip: &str, conditions: Value| json!({"addresses": [ip], "nodeName": "n2", "conditions": conditions, "hints": {"forZones": [{"name": "far"}]}});
    let mut drained = pods(json!([endpoint("10.1.0.9", "n2")]));
    merge(
        &mut drained,
        json!({"metadata": {"name": "dns-2", "annotations": {"ferrovia.io/weight": "0"}}}),
    );
    lab.record(drained);
    let cleanup = lab.cleanup_after(pods(json!([
        with("10.1.0.1", json!({"ready": true, "serving": true})),
        with(
            "10.1.0.2",
            json!({"ready": false, "serving": true, "terminating": true})
        ),
        with("10.1.0.3", json!({"ready": true, "serving": false})),
        with("10.1.0.4", json!({"ready": false, "serving": false})),
        with(
            "10.1.0.5",
            json!({"ready": false, "serving": false, "terminating": true})
        ),
    ])));
    let goes: Vec<_> = [1, 2, 3, 4, 5, 9]
        .into_iter()
        .filter(|n| reason(&cleanup, "10.0.0.10:53", &format!("10.1.0.{n}:5353")).is_some())
        .collect();
    assert_eq!(goes, [4, 5]);
}

#[test]
fn a_service_that_loses_its_last_endpoint_keeps_its_flows() {
    let mut lab = ConntrackHarness::new();
    lab.record(dns());
    lab.record(two());
    lab.take_cleanup();
    lab.record(pods(json!([])));
    assert!(lab.take_cleanup().is_none());
    // An endpoint that returns takes them over.
    let cleanup = lab.cleanup_after(one());
    assert_eq!(
        reason(&cleanup, "10.0.0.10:53", "10.1.0.1:5353"),
        Some(StaleReason::EndpointGone)
    );
    assert_eq!(reason(&cleanup, "10.0.0.10:53", "10.1.0.2:5353"), None);
}

#[test]
fn cleanup_of_a_failed_sync_stays_pending() {
    let mut lab = ConntrackHarness::new();
    lab.record(dns());
    lab.record(two());
    lab.take_cleanup();
    // This sync fails, and before the next the other endpoint goes as well.
    lab.record(one());
    lab.record(pods(json!([])));
    let cleanup = lab.take_cleanup().unwrap();
    assert_eq!(
        reason(&cleanup, "10.0.0.10:53", "10.1.0.1:5353"),
        Some(StaleReason::EndpointGone)
    );
    assert_eq!(reason(&cleanup, "10.0.0.10:53", "10.1.0.2:5353"), None);
}

#[test]
fn a_service_change_alone_counts() {
    let mut lab = ConntrackHarness::new();
    let mut plain = service(
        "dns",
        "10.0.0.10",
        json!({"ports": [{"port": 53, "protocol": "UDP"}]}),
    );
    lab.record(plain.clone());
    lab.record(two());
    lab.take_cleanup();
    merge(&mut plain, json!({"spec": {"externalIPs": ["192.0.2.53"]}}));
    assert_eq!(lab.targets_after(plain.clone()), [to("192.0.2.53:53")]);
    merge(&mut plain, json!({"spec": {"sessionAffinity": "ClientIP"}}));
    assert_eq!(lab.targets_after(plain), [], "no flow is wrong for that");
}

#[test]
fn weights_and_roles_change_no_flow() {
    let mut lab = ConntrackHarness::new();
    lab.record(dns());
    lab.record(two());
    lab.take_cleanup();
    let mut heavier = two();
    merge(
        &mut heavier,
        json!({"metadata": {"annotations": {"ferrovia.io/weight": "0"}}}),
    );
    assert_eq!(lab.targets_after(heavier), []);
    let mut dns = dns();
    merge(
        &mut dns,
        json!({"spec": {"externalIPs": ["192.0.2.53", "203.0.113.53"]}}),
    );
    merge(&mut dns, json!({"status": {"loadBalancer": null}}));
    assert_eq!(
        lab.targets_after(dns),
        [],
        "the load balancer's address is now an external one"
    );
}

#[test]
fn flows_to_an_address_without_a_service_are_stale() {
    let mut lab = ConntrackHarness::new();
    lab.record(dns());
    lab.record(two());
    lab.take_cleanup();
    let mut closed = dns();
    closed["spec"]["ports"][0]
        .as_object_mut()
        .unwrap()
        .remove("nodePort");
    lab.record(closed);
    let cleanup = lab.take_cleanup().unwrap();
    assert_eq!(targets_of(Some(&cleanup)), [FlowTarget::NodePort(30053)]);
    let judged = |by| reason(&cleanup, "198.51.100.10:30053", by);
    assert_eq!(judged("10.1.0.1:5353"), Some(StaleReason::ServiceGone));
    assert_eq!(
        judged("198.51.100.10:30053"),
        None,
        "the node's own program has the port now"
    );
    lab.note_deleted(Kind::Service, "dns");
    let all = [
        to("10.0.0.10:53"),
        to("192.0.2.53:53"),
        to("203.0.113.53:53"),
    ];
    assert_eq!(targets_of(lab.take_cleanup().as_ref()), all);
}

#[test]
fn an_address_that_moves_belongs_to_its_new_service() {
    // In both orders of the services' names: what comes must not be undone by what goes.
    for (old, new) in [("a", "b"), ("b", "a")] {
        let mut lab = ConntrackHarness::new();
        let udp = |name: &str, ip: &str| {
            service(
                name,
                ip,
                json!({"ports": [{"port": 53, "protocol": "UDP"}], "externalIPs": ["192.0.2.53"]}),
            )
        };
        let pod = |name: &str, ip: &str| {
            let mut pod = slice(name, name, json!([endpoint(ip, "n1")]));
            pod["ports"] = json!([{"port": 53, "protocol": "UDP"}]);
            pod
        };
        lab.record(udp(old, "10.0.0.1"));
        lab.record(udp(new, "10.0.0.2"));
        lab.record(pod(old, "10.1.0.1"));
        lab.record(pod(new, "10.1.0.2"));
        lab.take_cleanup();
        lab.note_deleted(Kind::Service, old);
        let cleanup = lab.take_cleanup().unwrap();
        assert_eq!(
            reason(&cleanup, "192.0.2.53:53", "10.1.0.1:53"),
            Some(StaleReason::EndpointGone)
        );
        assert_eq!(reason(&cleanup, "192.0.2.53:53", "10.1.0.2:53"), None);
    }
}

#[test]
fn tcp_is_never_looked_at() {
    let mut lab = ConntrackHarness::new();
    lab.record(service("web", "10.0.0.1", json!({})));
    lab.record(slice("web-1", "web", json!([endpoint("10.1.0.1", "n1")])));
    lab.note_deleted(Kind::EndpointSlice, "web-1");
    lab.note_deleted(Kind::Service, "web");
    assert!(lab.take_cleanup().is_none());
    let ports = &lab.world.builder.desired(V4).ports;
    assert!(ports.values().all(|port| port.answering.is_none()));
}

#[test]
fn the_list_of_all_is_shared_where_it_is_the_same() {
    let mut lab = ConntrackHarness::new();
    lab.record(dns());
    lab.record(two());
    let (_, port) = lab
        .world
        .builder
        .desired(V4)
        .ports
        .first_key_value()
        .unwrap();
    assert!(Arc::ptr_eq(port.answering.as_ref().unwrap(), &port.cluster));
}

#[test]
fn record_all_covers_every_port_and_later_changes_replace_earlier_ones() {
    let mut lab = ConntrackHarness::new();
    lab.record(dns());
    lab.record(two());
    lab.take_cleanup();
    lab.owed.record_all(lab.world.builder.desired(V4));
    let mut cleanup = lab.take_cleanup().unwrap();
    assert_eq!((cleanup.family(), cleanup.targets().count()), (V4, 4));
    assert_eq!(reason(&cleanup, "10.0.0.10:53", "10.1.0.1:5353"), None);
    assert_eq!(
        reason(&cleanup, "198.51.100.10:30053", "10.1.0.1:5353"),
        None
    );
    cleanup.absorb(lab.cleanup_after(one()));
    assert!(targets_of(Some(&cleanup)).contains(&FlowTarget::NodePort(30053)));
    assert!(reason(&cleanup, "10.0.0.10:53", "10.1.0.1:5353").is_some());
    assert!(reason(&cleanup, "198.51.100.10:30053", "10.1.0.1:5353").is_some());
}

#[test]
fn both_families_have_their_own() {
    let mut lab = ConntrackHarness::new();
    let spec = json!({"clusterIPs": ["10.0.0.10", "fd00::10"], "ipFamilies": ["IPv4", "IPv6"],
        "ports": [{"port": 53, "protocol": "UDP"}]});
    lab.record(service("dns", "10.0.0.10", spec));
    let mut pods = pods(json!([endpoint("fd01::1", "n1")]));
    merge(&mut pods, json!({"addressType": "IPv6"}));
    let (deltas, _) = lab.world.apply(pods);
    let mut owed = PendingCleanup::default();
    owed.record(&deltas.v4);
    assert!(
        owed.take_cleanup(lab.world.builder.desired(V4), &[])
            .is_none()
    );
    owed.record(&deltas.v6);
    let cleanup = owed
        .take_cleanup(lab.world.builder.desired(V6), &[])
        .unwrap();
    assert_eq!(
        reason(&cleanup, "[fd00::10]:53", "[fd01::9]:5353"),
        Some(StaleReason::EndpointGone)
    );
    assert_eq!(reason(&cleanup, "[fd00::10]:53", "[fd01::1]:5353"), None);
}

#[test]
fn added_endpoints_need_no_conntrack_walk() {
    let mut lab = ConntrackHarness::new();
    lab.record(dns());
    lab.record(one());
    assert!(
        lab.take_cleanup().unwrap().may_have_stale_flows(),
        "the first endpoint"
    );
    lab.record(two());
    let joined = lab.take_cleanup().unwrap();
    assert!(!joined.may_have_stale_flows());
    assert_eq!(targets_of(Some(&joined)), []);
    // The same endpoints again, in the other order.
    assert_eq!(lab.targets_after(two()), []);
    let replaced = pods(json!([
        endpoint("10.1.0.1", "n1"),
        endpoint("10.1.0.3", "n2")
    ]));
    assert_eq!(lab.targets_after(replaced).len(), 4, "one left as well");
}

#[test]
fn pending_cleanup_keeps_flows_to_added_endpoints() {
    let mut lab = ConntrackHarness::new();
    lab.record(dns());
    lab.record(two());
    lab.take_cleanup();
    let mut pending = lab.cleanup_after(one());
    let joined = lab.cleanup_after(two());
    assert!(!joined.may_have_stale_flows());
    let (service, returned) = ("10.0.0.10:53", "10.1.0.1:5353");
    assert!(reason(&pending, service, returned).is_some());
    assert!(joined.overrules(at(service), at(returned)));
    assert!(!joined.overrules(at(service), at("10.1.0.9:5353")));
    assert!(!joined.overrules(at("10.0.0.99:53"), at(returned)));
    pending.absorb(joined);
    assert!(
        pending.may_have_stale_flows(),
        "an earlier endpoint may still be gone"
    );
    assert_eq!(reason(&pending, service, returned), None);
}

#[test]
fn pending_removal_survives_added_endpoints() {
    let mut lab = ConntrackHarness::new();
    lab.record(dns());
    lab.record(two());
    lab.take_cleanup();
    // The sync for this fails.
    lab.record(one());
    let three = pods(json!([
        endpoint("10.1.0.2", "n2"),
        endpoint("10.1.0.3", "n2")
    ]));
    let cleanup = lab.cleanup_after(three);
    assert_eq!(targets_of(Some(&cleanup)).len(), 4);
    let judged = |by| reason(&cleanup, "10.0.0.10:53", by);
    assert_eq!(judged("10.1.0.1:5353"), Some(StaleReason::EndpointGone));
    assert_eq!(judged("10.1.0.3:5353"), None);
}
