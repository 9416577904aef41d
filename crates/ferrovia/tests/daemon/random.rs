//! Any chain of changes ends in the same kernel state as one full sync, on the real kernel.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ferrovia_core::family::Family;
use ferrovia_lab::{Spec, World};

use super::common::cluster::{Cluster, Way};

/// A small generator of numbers: the same seed gives the same changes.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn one_of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.roll(choices.len() as u64) as usize]
    }
}

#[test]
fn any_chain_of_changes_ends_like_one_full_sync() {
    for seed in [1, 2, 3] {
        changes(seed, 120);
    }
}

fn changes(seed: u64, steps: usize) {
    let world = World::new(Spec::default()).expect("the lab can be built");
    let options = BTreeMap::from([(
        "cluster-cidr".to_owned(),
        "10.244.0.0/16,fd00:10:244::/48".to_owned(),
    )]);
    let mut cluster = Cluster::start(&options, &world, Way::Nft);
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut log = Vec::new();
    for step in 0..steps {
        let yaml = change(&mut dice);
        log.push(yaml.clone());
        // A deletion of what is not there is no change.
        let Ok(events) = cluster.objects.step(&yaml, 0) else {
            continue;
        };
        let problems = cluster.take(events);
        assert!(
            problems.is_empty(),
            "seed {seed}, step {step}: {problems:?}\n{}",
            log.join("\n---\n")
        );
        for family in Family::ALL {
            let difference = cluster.compare_with_scratch(family);
            assert_eq!(
                difference,
                None,
                "seed {seed}, step {step}, {family}:\n{}",
                log.join("\n---\n")
            );
        }
    }
}

fn change(dice: &mut Dice) -> String {
    let service = dice.roll(5);
    match dice.roll(10) {
        0 => format!("# delete Service default/s{service}"),
        1 => format!("# delete EndpointSlice default/s{service}-{}", dice.roll(4)),
        2..5 => service_manifest(dice, service),
        _ => slice_manifest(dice, service),
    }
}

fn service_manifest(dice: &mut Dice, service: u64) -> String {
    // Few addresses and node ports, so that services fight over them.
    let shared = dice.roll(4);
    format!(
        "kind: Service
metadata: {{ name: s{service}, creationTimestamp: '2026-01-01T00:00:0{age}Z', annotations: {{ ferrovia.io/algorithm: {algorithm} }} }}
spec:
  type: {kind}
  clusterIP: 10.96.0.{ip}
  clusterIPs: [10.96.0.{ip}, 'fd00:10:96::{ip}']
  ipFamilies: [IPv4, IPv6]
  externalIPs: [{external}]
  sessionAffinity: {affinity}
  internalTrafficPolicy: {internal}
  externalTrafficPolicy: {policy}
  loadBalancerSourceRanges: [{ranges}]
  ports:
  - {{ name: a, port: 80, nodePort: {node_port} }}
  - {{ name: b, port: 53, protocol: UDP }}
status: {{ loadBalancer: {{ ingress: [{{ ip: 203.0.113.{shared} }}, {{ ip: '2001:db8:113::{shared}' }}] }} }}
",
        // Who is older must not depend on the order in which they are told: it decides who has an address.
        age = (service * 3) % 5,
        algorithm = dice.one_of(&["random", "source-hash"]),
        kind = dice.one_of(&["ClusterIP", "NodePort", "LoadBalancer"]),
        ip = 10 + service,
        external = dice.one_of(&["", "192.0.2.10", "192.0.2.11, '2001:db8:2::11'"]),
        affinity = dice.one_of(&["None", "None", "ClientIP"]),
        internal = dice.one_of(&["Cluster", "Cluster", "Local"]),
        policy = dice.one_of(&["Cluster", "Local"]),
        ranges = dice.one_of(&["", "192.0.2.0/24", "10.0.0.0/8, 10.1.0.0/16, '2001:db8::/32'"]),
        node_port = dice.one_of(&["0", "30001", "30002"]),
    )
}

fn slice_manifest(dice: &mut Dice, service: u64) -> String {
    let (family, prefix) = if dice.roll(2) == 0 {
        ("IPv4", "10.244.")
    } else {
        ("IPv6", "fd00:10:244:")
    };
    let number = dice.roll(2) + if family == "IPv6" { 2 } else { 0 };
    let mut text = format!(
        "kind: EndpointSlice
metadata:
  name: s{service}-{number}
  labels: {{ kubernetes.io/service-name: s{service} }}
  annotations: {{ ferrovia.io/weight: '{weight}' }}
addressType: {family}
ports: [{{ name: a, port: 8080 }}, {{ name: b, port: 53, protocol: UDP }}]
endpoints:
",
        weight = dice.one_of(&["1", "1", "1", "3", "0"]),
    );
    for _ in 0..dice.roll(6) {
        let node = 1 + dice.roll(2);
        let separator = if family == "IPv6" { "::" } else { "." };
        let _ = writeln!(
            text,
            "- {{ addresses: ['{prefix}{node}{separator}{host}'], nodeName: node-{node}, conditions: {{ ready: {ready}, serving: {serving}, terminating: {terminating} }} }}",
            host = 10 + dice.roll(4),
            ready = dice.one_of(&["true", "true", "false"]),
            serving = dice.one_of(&["true", "false"]),
            terminating = dice.one_of(&["false", "true"]),
        );
    }
    text
}
