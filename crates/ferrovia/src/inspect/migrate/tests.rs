//! What changes for made-up clusters.

use ferrovia_core::desired::Builder;
use ferrovia_core::family::Family;
use ferrovia_core::store::{Event, Store};
use ferrovia_core::wire::Object;
use serde_json::{Value, json};

use super::*;
use crate::config::flags;

/// A cluster, its configuration and what the kernel shows.
struct Cluster {
    from: OldMode,
    old: Config,
    new: Config,
    evidence: Evidence,
    store: Store,
}

impl Cluster {
    fn new(from: &str, typed: &[&str]) -> Self {
        let from = OldMode::of(mode::find(from).unwrap()).unwrap();
        let load = |mode| {
            let typed = typed.iter().map(|flag| (*flag).to_owned());
            let typed = typed.chain(["--hostname-override=node-1".to_owned()]);
            Config::load_in(flags::parse(typed).unwrap(), Some(mode)).unwrap()
        };
        let nothing = Evidence {
            localhost_packets: Some(0),
            invalid_packets: Some(0),
            forward_refused: Some(Vec::new()),
            input_refused: Some(Vec::new()),
            hooks: Vec::new(),
        };
        Self {
            from,
            old: load(from.mode),
            new: load(mode::DEFAULT),
            evidence: nothing,
            store: Store::new("node-1"),
        }
    }

    fn with(mut self, name: &str, spec: &Value, status: &Value) -> Self {
        let object = json!({"metadata": {"name": name, "namespace": "shop"}, "spec": spec, "status": status});
        let service = serde_json::from_value(object).unwrap();
        let warnings = self
            .store
            .handle(Event::Applied(Box::new(Object::Service(service))));
        assert!(warnings.is_empty(), "{warnings:?}");
        self
    }

    fn changes(mut self) -> Vec<Change> {
        let mut touched = self.store.take_touched();
        touched.node = true;
        let keys = touched.services.iter();
        let services: Vec<_> = keys
            .filter_map(|key| self.store.service(key).cloned())
            .collect();
        let mut builder = Builder::new(self.old.settings.clone());
        builder.update(&self.store, touched, &[]);
        changes(&Node {
            from: self.from,
            old: &self.old,
            new: &self.new,
            services: &services,
            desired: &Family::ALL.map(|family| builder.desired(family)),
            evidence: &self.evidence,
        })
    }

    /// The names of the changes.
    fn names(self) -> Vec<&'static str> {
        self.changes().iter().map(|change| change.change).collect()
    }
}

/// Periods and node port addresses as the nftables mode has them too, so that only what a test is about differs.
const ALIKE: [&str; 1] = ["--nodeport-addresses=10.0.0.0/8"];

fn plain() -> Value {
    json!({"clusterIP": "10.96.0.10", "ports": [{"port": 80}]})
}

fn node_port() -> Value {
    json!({"type": "NodePort", "clusterIP": "10.96.0.11", "ports": [{"port": 80, "nodePort": 30080}]})
}

fn none() -> Value {
    json!({})
}

#[test]
fn a_plain_cluster_does_not_notice() {
    for from in ["iptables", "ipvs"] {
        let cluster = Cluster::new(from, &ALIKE).with("web", &plain(), &none());
        assert_eq!(cluster.names(), [""; 0], "{from:?}");
    }
}

#[test]
fn node_ports_lose_loopback_and_other_addresses() {
    let changes = Cluster::new("iptables", &[])
        .with("web", &node_port(), &none())
        .with("plain", &plain(), &none())
        .changes();
    let names: Vec<_> = changes.iter().map(|change| change.change).collect();
    assert_eq!(names, ["localhost-node-ports", "node-port-addresses"]);
    assert!(changes.iter().all(|change| change.services == ["shop/web"]));
    assert!(changes[0].what.contains("counted no such connection"));
    // ipvs never had them on loopback.
    let ipvs = Cluster::new("ipvs", &[]).with("web", &node_port(), &none());
    assert_eq!(ipvs.names(), ["node-port-addresses"]);
}

#[test]
fn localhost_node_ports_that_were_off_are_not_missed() {
    let off = Cluster::new("iptables", &["--iptables-localhost-nodeports=false"]);
    assert_eq!(
        off.with("web", &node_port(), &none()).names(),
        ["node-port-addresses"]
    );
    let elsewhere = Cluster::new("iptables", &ALIKE).with("web", &node_port(), &none());
    assert_eq!(elsewhere.names(), [""; 0]);
}

#[test]
fn localhost_node_ports_stay_where_node_ports_answer_everywhere() {
    let everywhere = Cluster::new("iptables", &["--nodeport-addresses=0.0.0.0/0,::/0"]);
    let names = everywhere.with("web", &node_port(), &none()).names();
    assert!(!names.contains(&"localhost-node-ports"), "{names:?}");
}

#[test]
fn use_that_the_kernel_counted_is_told() {
    let mut cluster = Cluster::new("iptables", &[]).with("web", &node_port(), &none());
    cluster.evidence.localhost_packets = Some(17);
    cluster.evidence.invalid_packets = Some(4);
    let changes = cluster.changes();
    assert!(
        changes[0].what.contains("counted 17 connections"),
        "{changes:?}"
    );
    let invalid = changes
        .iter()
        .find(|change| change.change == "invalid-packets")
        .unwrap();
    assert!(invalid.what.contains("counted 4 "), "{invalid:?}");
    assert_eq!(invalid.setting, Some("conntrack.tcpBeLiberal"));
}

#[test]
fn ipvs_settings_lose_their_meaning() {
    let flags = [
        ALIKE[0],
        "--ipvs-scheduler=lc",
        "--ipvs-strict-arp",
        "--ipvs-exclude-cidrs=192.0.2.0/24",
        "--ipvs-tcp-timeout=30s",
    ];
    let names = Cluster::new("ipvs", &flags).names();
    assert_eq!(
        names,
        ["scheduler", "strict-arp", "exclude-cidrs", "timeouts"]
    );
    let rr = [ALIKE[0], "--ipvs-scheduler=rr"];
    assert_eq!(Cluster::new("ipvs", &rr).names(), [""; 0]);
}

#[test]
fn ipvs_falls_back_where_others_drop() {
    let local = json!({
        "type": "LoadBalancer", "clusterIP": "10.96.0.12", "externalTrafficPolicy": "Local",
        "healthCheckNodePort": 31000, "ports": [{"port": 80, "nodePort": 30081}],
    });
    let status = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}});
    let changes = Cluster::new("ipvs", &ALIKE)
        .with("lb", &local, &status)
        .changes();
    let names: Vec<_> = changes.iter().map(|change| change.change).collect();
    assert_eq!(names, ["local-fallback", "addresses-on-the-node"]);
    let iptables = Cluster::new("iptables", &ALIKE).with("lb", &local, &status);
    assert_eq!(iptables.names(), [""; 0]);
}

#[test]
fn affinity_starts_anew_and_is_shared() {
    let sticky = json!({
        "type": "NodePort", "clusterIP": "10.96.0.13", "sessionAffinity": "ClientIP",
        "ports": [{"port": 80, "nodePort": 30082}],
    });
    let ipvs = Cluster::new("ipvs", &ALIKE).with("sticky", &sticky, &none());
    assert_eq!(ipvs.names(), ["affinity-per-address", "affinity-restarts"]);
    let iptables = Cluster::new("iptables", &ALIKE).with("sticky", &sticky, &none());
    assert_eq!(iptables.names(), ["affinity-restarts"]);
}

#[test]
fn a_closed_firewall_was_opened_by_the_old_mode() {
    let checked = json!({
        "type": "LoadBalancer", "clusterIP": "10.96.0.12", "externalTrafficPolicy": "Local",
        "healthCheckNodePort": 31000, "ports": [{"port": 80, "nodePort": 30081}],
    });
    let mut cluster = Cluster::new("iptables", &ALIKE).with("lb", &checked, &none());
    cluster.evidence.forward_refused = Some(vec!["chain FORWARD of ip filter".into()]);
    cluster.evidence.input_refused = Some(vec!["chain INPUT of ip filter".into()]);
    cluster.evidence.hooks = vec!["iptables-nft -t nat -A X -j KUBE-MARK-MASQ".into()];
    assert_eq!(
        cluster.names(),
        ["health-check-ports", "forwarding", "rules-of-others"]
    );
}

#[test]
fn sections_of_other_modes_are_not_read() {
    let flags = [
        ALIKE[0],
        "--iptables-masquerade-bit=20",
        "--iptables-sync-period=77s",
    ];
    let changes = Cluster::new("iptables", &flags).changes();
    let bit = changes
        .iter()
        .find(|change| change.change == "masquerade-bit");
    assert!(bit.unwrap().remedy.contains("nftables.masqueradeBit: 20"));
}

#[test]
fn the_steps_name_the_mode_and_the_way_back() {
    for from in OldMode::all() {
        let steps = steps::steps(from);
        assert!(
            steps.contains(&format!("set mode: {} again", from.name())),
            "{steps}"
        );
        assert!(
            steps.lines().all(|line| line.chars().count() <= 100),
            "{steps}"
        );
    }
    assert!(steps::steps(OldMode::of(mode::find("ipvs").unwrap()).unwrap()).contains("kube-ipvs0"));
}
