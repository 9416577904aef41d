//! Which flows go and which stay, from objects to verdicts.

use serde_json::{Value, json};

use super::*;
use crate::desired::NodePortSetting;
use crate::family::Family::{V4, V6};
use crate::testing::{World, endpoint, merge, service, settings, slice};
use crate::wire::Kind;

const LOCAL: &str = "198.51.100.10";

/// A world whose changes are noted, and settled as if every sync succeeded.
struct Lab {
    world: World,
    owed: Owed,
    local: Vec<IpAddr>,
}

impl Lab {
    fn new() -> Self {
        Self {
            world: World::new(settings()),
            owed: Owed::default(),
            local: vec![LOCAL.parse().unwrap(), "127.0.0.1".parse().unwrap()],
        }
    }

    fn note(&mut self, object: Value) {
        let (deltas, _) = self.world.apply(object);
        self.owed.note(&deltas.v4);
    }

    fn note_deleted(&mut self, kind: Kind, name: &str) {
        let (deltas, _) = self.world.delete(kind, name);
        self.owed.note(&deltas.v4);
    }

    fn settle(&mut self) -> Option<Cleanup> {
        self.owed
            .settle(self.world.builder.desired(V4), &self.local)
    }

    /// The targets of what must be cleaned up after an object has changed.
    fn targets_after(&mut self, object: Value) -> Vec<Target> {
        self.note(object);
        targets_of(self.settle().as_ref())
    }

    fn cleanup_after(&mut self, object: Value) -> Cleanup {
        self.note(object);
        self.settle().expect("something to clean up")
    }
}

fn targets_of(cleanup: Option<&Cleanup>) -> Vec<Target> {
    let mut targets: Vec<_> = cleanup.map_or(Vec::new(), |it| it.targets().collect());
    targets.sort_unstable();
    targets
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn to(text: &str) -> Target {
    Target::Address(at(text))
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

fn reason(cleanup: &Cleanup, sent_to: &str, answered_by: &str) -> Option<Reason> {
    cleanup
        .judge(at(sent_to), at(answered_by))
        .map(|verdict| verdict.reason)
}

#[test]
fn every_frontend_is_looked_at() {
    let mut lab = Lab::new();
    lab.note(dns());
    assert!(lab.settle().is_none(), "no endpoints yet");
    let all = [
        to("10.0.0.10:53"),
        to("192.0.2.53:53"),
        to("203.0.113.53:53"),
        Target::NodePort(30053),
    ];
    assert_eq!(lab.targets_after(two()), all);
    assert!(lab.settle().is_none(), "once is enough");
    let cleanup = lab.cleanup_after(one());
    for address in [
        "10.0.0.10:53",
        "192.0.2.53:53",
        "203.0.113.53:53",
        "198.51.100.10:30053",
        "127.0.0.1:30053",
    ] {
        let judged = |by| reason(&cleanup, address, by);
        assert_eq!(judged("10.1.0.1:5353"), Some(Reason::EndpointGone));
        assert_eq!(
            judged("10.1.0.2:53"),
            Some(Reason::EndpointGone),
            "an old port"
        );
        assert_eq!(judged("10.1.0.2:5353"), None);
        assert_eq!(judged(address), Some(Reason::Untranslated));
    }
    assert_eq!(reason(&cleanup, "10.0.0.10:54", "10.1.0.1:5353"), None);
    assert_eq!(
        reason(&cleanup, "8.8.8.8:30053", "8.8.8.8:30053"),
        None,
        "somebody else's port of that number"
    );
}

#[test]
fn node_ports_count_only_where_they_answer() {
    let mut lab = Lab::new();
    let mut settings = settings();
    settings.node_ports = NodePortSetting::Cidrs(vec!["198.51.100.0/24".parse().unwrap()]);
    lab.world = World::new(settings);
    lab.world.local_addresses = lab.local.clone();
    lab.note(dns());
    let cleanup = lab.cleanup_after(two());
    let untranslated = |to| reason(&cleanup, to, to);
    assert!(untranslated("198.51.100.10:30053").is_some());
    assert!(untranslated("127.0.0.1:30053").is_none());
}

#[test]
fn what_new_flows_may_use_is_not_what_old_ones_may_keep() {
    let mut lab = Lab::new();
    let mut local = dns();
    merge(
        &mut local,
        json!({"spec": {"internalTrafficPolicy": "Local", "externalTrafficPolicy": "Local"}}),
    );
    lab.note(local);
    let with = |ip: &str, conditions: Value| json!({"addresses": [ip], "nodeName": "n2", "conditions": conditions, "hints": {"forZones": [{"name": "far"}]}});
    let mut drained = pods(json!([endpoint("10.1.0.9", "n2")]));
    merge(
        &mut drained,
        json!({"metadata": {"name": "dns-2", "annotations": {"ferrovia.io/weight": "0"}}}),
    );
    lab.note(drained);
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
    let mut lab = Lab::new();
    lab.note(dns());
    lab.note(two());
    lab.settle();
    lab.note(pods(json!([])));
    assert!(lab.settle().is_none());
    // Whoever comes back takes them over.
    let cleanup = lab.cleanup_after(one());
    assert_eq!(
        reason(&cleanup, "10.0.0.10:53", "10.1.0.1:5353"),
        Some(Reason::EndpointGone)
    );
    assert_eq!(reason(&cleanup, "10.0.0.10:53", "10.1.0.2:5353"), None);
}

#[test]
fn what_a_failed_sync_left_is_still_owed() {
    let mut lab = Lab::new();
    lab.note(dns());
    lab.note(two());
    lab.settle();
    // This sync fails, and before the next the other endpoint goes as well.
    lab.note(one());
    lab.note(pods(json!([])));
    let cleanup = lab.settle().unwrap();
    assert_eq!(
        reason(&cleanup, "10.0.0.10:53", "10.1.0.1:5353"),
        Some(Reason::EndpointGone)
    );
    assert_eq!(reason(&cleanup, "10.0.0.10:53", "10.1.0.2:5353"), None);
}

#[test]
fn a_service_change_alone_counts() {
    let mut lab = Lab::new();
    let mut plain = service(
        "dns",
        "10.0.0.10",
        json!({"ports": [{"port": 53, "protocol": "UDP"}]}),
    );
    lab.note(plain.clone());
    lab.note(two());
    lab.settle();
    merge(&mut plain, json!({"spec": {"externalIPs": ["192.0.2.53"]}}));
    assert_eq!(lab.targets_after(plain.clone()), [to("192.0.2.53:53")]);
    merge(&mut plain, json!({"spec": {"sessionAffinity": "ClientIP"}}));
    assert_eq!(lab.targets_after(plain), [], "no flow is wrong for that");
}

#[test]
fn weights_and_roles_change_no_flow() {
    let mut lab = Lab::new();
    lab.note(dns());
    lab.note(two());
    lab.settle();
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
fn flows_to_an_address_that_is_no_service_any_more_end() {
    let mut lab = Lab::new();
    lab.note(dns());
    lab.note(two());
    lab.settle();
    let mut closed = dns();
    closed["spec"]["ports"][0]
        .as_object_mut()
        .unwrap()
        .remove("nodePort");
    lab.note(closed);
    let cleanup = lab.settle().unwrap();
    assert_eq!(targets_of(Some(&cleanup)), [Target::NodePort(30053)]);
    let judged = |by| reason(&cleanup, "198.51.100.10:30053", by);
    assert_eq!(judged("10.1.0.1:5353"), Some(Reason::ServiceGone));
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
    assert_eq!(targets_of(lab.settle().as_ref()), all);
}

#[test]
fn an_address_that_moves_belongs_to_its_new_service() {
    // In both orders of the services' names: what comes must not be undone by what goes.
    for (old, new) in [("a", "b"), ("b", "a")] {
        let mut lab = Lab::new();
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
        lab.note(udp(old, "10.0.0.1"));
        lab.note(udp(new, "10.0.0.2"));
        lab.note(pod(old, "10.1.0.1"));
        lab.note(pod(new, "10.1.0.2"));
        lab.settle();
        lab.note_deleted(Kind::Service, old);
        let cleanup = lab.settle().unwrap();
        assert_eq!(
            reason(&cleanup, "192.0.2.53:53", "10.1.0.1:53"),
            Some(Reason::EndpointGone)
        );
        assert_eq!(reason(&cleanup, "192.0.2.53:53", "10.1.0.2:53"), None);
    }
}

#[test]
fn tcp_is_never_looked_at() {
    let mut lab = Lab::new();
    lab.note(service("web", "10.0.0.1", json!({})));
    lab.note(slice("web-1", "web", json!([endpoint("10.1.0.1", "n1")])));
    lab.note_deleted(Kind::EndpointSlice, "web-1");
    lab.note_deleted(Kind::Service, "web");
    assert!(lab.settle().is_none());
    let ports = &lab.world.builder.desired(V4).ports;
    assert!(ports.values().all(|port| port.answering.is_none()));
}

#[test]
fn the_list_of_all_is_shared_where_it_is_the_same() {
    let mut lab = Lab::new();
    lab.note(dns());
    lab.note(two());
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
fn everything_can_be_asked_for_and_later_news_replaces_earlier() {
    let mut lab = Lab::new();
    lab.note(dns());
    lab.note(two());
    lab.settle();
    lab.owed.note_all(lab.world.builder.desired(V4));
    let mut cleanup = lab.settle().unwrap();
    assert_eq!((cleanup.family(), cleanup.targets().count()), (V4, 4));
    assert_eq!(reason(&cleanup, "10.0.0.10:53", "10.1.0.1:5353"), None);
    assert_eq!(
        reason(&cleanup, "198.51.100.10:30053", "10.1.0.1:5353"),
        None
    );
    cleanup.absorb(lab.cleanup_after(one()));
    assert!(targets_of(Some(&cleanup)).contains(&Target::NodePort(30053)));
    assert!(reason(&cleanup, "10.0.0.10:53", "10.1.0.1:5353").is_some());
    assert!(reason(&cleanup, "198.51.100.10:30053", "10.1.0.1:5353").is_some());
}

#[test]
fn both_families_have_their_own() {
    let mut lab = Lab::new();
    let spec = json!({"clusterIPs": ["10.0.0.10", "fd00::10"], "ipFamilies": ["IPv4", "IPv6"],
        "ports": [{"port": 53, "protocol": "UDP"}]});
    lab.note(service("dns", "10.0.0.10", spec));
    let mut pods = pods(json!([endpoint("fd01::1", "n1")]));
    merge(&mut pods, json!({"addressType": "IPv6"}));
    let (deltas, _) = lab.world.apply(pods);
    let mut owed = Owed::default();
    owed.note(&deltas.v4);
    assert!(owed.settle(lab.world.builder.desired(V4), &[]).is_none());
    owed.note(&deltas.v6);
    let cleanup = owed.settle(lab.world.builder.desired(V6), &[]).unwrap();
    assert_eq!(
        reason(&cleanup, "[fd00::10]:53", "[fd01::9]:5353"),
        Some(Reason::EndpointGone)
    );
    assert_eq!(reason(&cleanup, "[fd00::10]:53", "[fd01::1]:5353"), None);
}

#[test]
fn endpoints_that_join_others_need_no_look() {
    let mut lab = Lab::new();
    lab.note(dns());
    lab.note(one());
    assert!(lab.settle().unwrap().needs_look(), "the first endpoint");
    lab.note(two());
    let joined = lab.settle().unwrap();
    assert!(!joined.needs_look());
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
fn pending_cleanup_learns_of_endpoints_that_joined() {
    let mut lab = Lab::new();
    lab.note(dns());
    lab.note(two());
    lab.settle();
    let mut pending = lab.cleanup_after(one());
    let joined = lab.cleanup_after(two());
    assert!(!joined.needs_look());
    let (service, returned) = ("10.0.0.10:53", "10.1.0.1:5353");
    assert!(reason(&pending, service, returned).is_some());
    assert!(joined.overrules(at(service), at(returned)));
    assert!(!joined.overrules(at(service), at("10.1.0.9:5353")));
    assert!(!joined.overrules(at("10.0.0.99:53"), at(returned)));
    pending.absorb(joined);
    assert!(
        pending.needs_look(),
        "an earlier endpoint may still be gone"
    );
    assert_eq!(reason(&pending, service, returned), None);
}

#[test]
fn unsettled_removal_is_not_forgotten_when_endpoints_join() {
    let mut lab = Lab::new();
    lab.note(dns());
    lab.note(two());
    lab.settle();
    // The sync for this fails.
    lab.note(one());
    let three = pods(json!([
        endpoint("10.1.0.2", "n2"),
        endpoint("10.1.0.3", "n2")
    ]));
    let cleanup = lab.cleanup_after(three);
    assert_eq!(targets_of(Some(&cleanup)).len(), 4);
    let judged = |by| reason(&cleanup, "10.0.0.10:53", by);
    assert_eq!(judged("10.1.0.1:5353"), Some(Reason::EndpointGone));
    assert_eq!(judged("10.1.0.3:5353"), None);
}
