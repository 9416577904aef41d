//! The EndpointSlices of a random Service.

use serde_json::{Value, json};

use super::services::RandomPort;
use super::{DualStack, NODE, NODE_ADDRESSES};
use crate::random::Random;

/// Pods: three on the node under test, two on another one.
const PODS: [(DualStack, &str); 5] = [
    (["10.244.1.10", "fd00:10:244:1::10"], NODE),
    (["10.244.1.11", "fd00:10:244:1::11"], NODE),
    (["10.244.1.12", "fd00:10:244:1::12"], NODE),
    (["10.244.2.10", "fd00:10:244:2::10"], "node-2"),
    (["10.244.2.11", "fd00:10:244:2::11"], "node-2"),
];
/// Endpoints with host network, and the only port that they listen on.
const HOSTS: [(DualStack, &str); 2] = [
    (NODE_ADDRESSES[0], NODE),
    (["198.51.100.20", "2001:db8:51::20"], "node-2"),
];
const HOST_PORT: u16 = 6443;

/// Adds up to four slices of either family. An endpoint may be in several of them with different conditions.
pub(super) fn add(
    objects: &mut Vec<Value>,
    service: &str,
    ports: &[RandomPort],
    random: &mut Random,
) {
    for index in 0..random.below(5) {
        let family = random.below(2);
        let is_host = random.percent(12);
        let (from, target) = if is_host {
            (&HOSTS[..], HOST_PORT)
        } else {
            (&PODS[..], random.choose(&[8080, 9090]))
        };
        // Hints apply only if every endpoint has one.
        let is_hinted = random.percent(40);
        let endpoints: Vec<Value> = (0..random.below(4))
            .map(|_| endpoint(random.choose(from), family, is_hinted, random))
            .collect();
        let mut labels = json!({"kubernetes.io/service-name": service});
        let mut kind = ["IPv4", "IPv6"][family];
        match random.below(40) {
            0 => labels["service.kubernetes.io/headless"] = json!(""),
            1 => kind = "FQDN",
            _ => {}
        }
        objects.push(json!({
            "kind": "EndpointSlice",
            "metadata": {"name": format!("{service}-{index}"), "labels": labels},
            "addressType": kind,
            "ports": ports.iter().map(|port| slice_port(port, target, random)).collect::<Vec<_>>(),
            "endpoints": endpoints,
        }));
    }
}

/// Usually the name of the Service port, sometimes another one or none.
fn slice_port(port: &RandomPort, target: u16, random: &mut Random) -> Value {
    let name = match random.below(20) {
        0 => "another",
        1 => "",
        _ => &port.name,
    };
    json!({"name": name, "protocol": port.protocol, "port": target})
}

fn endpoint(
    (ips, node): (DualStack, &str),
    family: usize,
    is_hinted: bool,
    random: &mut Random,
) -> Value {
    let mut endpoint = json!({"addresses": [ips[family]], "conditions": conditions(random)});
    if random.percent(90) {
        endpoint["nodeName"] = json!(node);
    }
    if is_hinted && random.percent(90) {
        let hints = &mut endpoint["hints"];
        if random.percent(80) {
            hints["forZones"] = json!([{"name": random.choose(&["zone-a", "zone-b"])}]);
        }
        if random.percent(30) {
            hints["forNodes"] = json!([{"name": random.choose(&[NODE, "node-2"])}]);
        }
    }
    endpoint
}

/// Usually ready, otherwise random.
fn conditions(random: &mut Random) -> Value {
    if random.percent(60) {
        return json!({});
    }
    json!({"ready": random.percent(40), "serving": random.percent(60), "terminating": random.percent(50)})
}
