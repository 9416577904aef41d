//! Random sequences of changes: incremental syncs must result in the same kernel state as one full sync.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ferrovia_core::family::Family;
use ferrovia_lab::random::Random;
use ferrovia_lab::{Spec, World};

use crate::engine_node::{EngineNode, ModeVariant};

/// The number of changes in a sequence.
const STEPS: usize = 120;

/// Applies the changes of this seed; returns the problems of the first step that has any.
pub(crate) fn run(seed: u64, variant: ModeVariant) -> Vec<String> {
    let world = World::new(Spec::default()).expect("the lab can be built");
    let options = BTreeMap::from([(
        "cluster-cidr".to_owned(),
        "10.244.0.0/16,fd00:10:244::/48".to_owned(),
    )]);
    let mut node = EngineNode::start(&options, &world, variant);
    let mut random = Random::new(seed);
    let mut applied = Vec::new();
    for step in 0..STEPS {
        let yaml = change(&mut random);
        applied.push(yaml.clone());
        // The deletion of an object that does not exist is not a change.
        let Ok(events) = node.objects.step(&yaml, 0) else {
            continue;
        };
        let mut problems = node.apply(events);
        for family in Family::ALL {
            problems.extend(node.compare_with_scratch(family));
        }
        if !problems.is_empty() {
            problems.push(format!(
                "after step {step} of:\n{}",
                applied.join("\n---\n")
            ));
            return problems;
        }
    }
    Vec::new()
}

fn change(random: &mut Random) -> String {
    let service = random.below(5);
    match random.below(10) {
        0 => format!("# delete Service default/s{service}"),
        1 => format!(
            "# delete EndpointSlice default/s{service}-{}",
            random.below(4)
        ),
        2..5 => service_manifest(random, service),
        _ => slice_manifest(random, service),
    }
}

fn service_manifest(random: &mut Random, service: usize) -> String {
    // Few addresses and node ports, so that Services conflict.
    let shared = random.below(4);
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
        // Age decides which Service holds an address, so it must not depend on the order of changes.
        age = (service * 3) % 5,
        algorithm = random.choose(&["random", "source-hash"]),
        kind = random.choose(&["ClusterIP", "NodePort", "LoadBalancer"]),
        ip = 10 + service,
        external = random.choose(&["", "192.0.2.10", "192.0.2.11, '2001:db8:2::11'"]),
        affinity = random.choose(&["None", "None", "ClientIP"]),
        internal = random.choose(&["Cluster", "Cluster", "Local"]),
        policy = random.choose(&["Cluster", "Local"]),
        ranges = random.choose(&["", "192.0.2.0/24", "10.0.0.0/8, 10.1.0.0/16, '2001:db8::/32'"]),
        node_port = random.choose(&["0", "30001", "30002"]),
    )
}

fn slice_manifest(random: &mut Random, service: usize) -> String {
    let (family, prefix) = if random.below(2) == 0 {
        ("IPv4", "10.244.")
    } else {
        ("IPv6", "fd00:10:244:")
    };
    let number = random.below(2) + if family == "IPv6" { 2 } else { 0 };
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
        weight = random.choose(&["1", "1", "1", "3", "0"]),
    );
    for _ in 0..random.below(6) {
        let node = 1 + random.below(2);
        let separator = if family == "IPv6" { "::" } else { "." };
        let _ = writeln!(
            text,
            "- {{ addresses: ['{prefix}{node}{separator}{host}'], nodeName: node-{node}, conditions: {{ ready: {ready}, serving: {serving}, terminating: {terminating} }} }}",
            host = 10 + random.below(4),
            ready = random.choose(&["true", "true", "false"]),
            serving = random.choose(&["true", "false"]),
            terminating = random.choose(&["false", "true"]),
        );
    }
    text
}
