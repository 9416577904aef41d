//! Services of every shape, and the iptables rules that kube-proxy writes for each.
//!
//! The core's tests compare them with plans, the host's tests with the kernel's rules.
#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "assertions of tests: they panic with what failed"
)]

use std::collections::BTreeMap;
use std::net::IpAddr;

use ferrovia_core::desired::{Builder, Desired, LocalSetting, NodePortSetting, NodeSettings};
use ferrovia_core::dialect::iptables::{canonical, parse};
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::plan::iptables::IptablesOptions;
use ferrovia_core::store::{Event, Store};
use ferrovia_core::wire::{Kind, Object};
use serde_json::{Value, json};

const EXPECTED: &str = include_str!("kube_proxy_rules/expected.txt");

/// The rules of a ruleset, by table and chain.
pub type ChainRules = BTreeMap<(String, String), Vec<String>>;

/// Services of one shape, and the node's settings.
#[derive(Clone, Debug)]
pub struct ServiceShape {
    /// The name of its section in `expected.txt`.
    pub name: &'static str,
    /// The address family of its rules.
    pub family: Family,
    pub settings: NodeSettings,
    /// Options of the iptables mode.
    pub options: IptablesOptions,
    objects: Vec<Value>,
}

impl ServiceShape {
    fn new(name: &'static str, objects: Vec<Value>) -> Self {
        Self {
            name,
            family: Family::V4,
            settings: settings(),
            options: IptablesOptions {
                count_invalid: true,
                ..IptablesOptions::default()
            },
            objects,
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The desired state of its objects.
    pub fn desired(&self) -> Desired {
        let mut store = Store::new(&self.settings.node_name);
        for object in &self.objects {
            let warnings = store.handle(Event::Applied(Box::new(read(object.clone()))));
            assert!(warnings.is_empty(), "{}: {warnings:?}", self.name);
        }
        for kind in Kind::ALL {
            store.handle(Event::Listed(kind));
        }
        let mut builder = Builder::new(self.settings.clone());
        let addresses = ["192.168.0.2", "127.0.0.1"].map(|ip| ip.parse::<IpAddr>().unwrap());
        let touched = store.take_touched();
        builder.update(&store, touched, &addresses);
        builder.desired(self.family).clone()
    }

    /// The rules that the kernel must have, without those of the Service `many`.
    pub fn expected(&self) -> ChainRules {
        let mut all = section("base");
        if self.name == "base" {
            return all;
        }
        let own = section(self.name);
        let services = ("nat".to_owned(), "KUBE-SERVICES".to_owned());
        let has_tail = |rules: &Vec<String>| rules.iter().any(|rule| rule.contains("NOTE:"));
        if own.get(&services).is_some_and(has_tail) {
            all.remove(&services);
        }
        if self.family == Family::V6 || !self.options.localhost_node_ports {
            all.remove(&("filter".into(), "KUBE-FIREWALL".into()));
        }
        for (chain, mut rules) in own {
            let tail = all.remove(&chain).unwrap_or_default();
            rules.extend(tail);
            all.insert(chain, rules);
        }
        all
    }
}

/// Parses the output of `iptables-save`, without empty chains.
pub fn rules(save: &str) -> ChainRules {
    let mut rules = ChainRules::new();
    for table in parse(save) {
        for rule in &table.rules {
            if rule.args.contains("many/") {
                continue;
            }
            let chain = (table.name.to_owned(), rule.chain.to_owned());
            let text = canonical(rule.args).into_owned();
            rules.entry(chain).or_default().push(text);
        }
    }
    rules
}

/// The difference of two rulesets, if any.
pub fn difference(found: &ChainRules, expected: &ChainRules) -> Option<String> {
    let lines = |rules: &ChainRules| -> Vec<String> {
        let chains = rules.iter();
        chains
            .map(|((table, chain), rules)| {
                format!("{table} {chain}:\n    {}", rules.join("\n    "))
            })
            .collect()
    };
    let (found, expected) = (lines(found), lines(expected));
    let only = |these: &[String], others: &[String]| {
        let only = these.iter().filter(|line| !others.contains(line));
        only.cloned().collect::<Vec<_>>().join("\n  ")
    };
    (found != expected).then(|| {
        format!(
            "found only\n  {}\nexpected only\n  {}",
            only(&found, &expected),
            only(&expected, &found)
        )
    })
}

/// A section of `expected.txt`.
fn section(name: &str) -> ChainRules {
    let text = EXPECTED
        .split("\n== ")
        .find_map(|part| part.strip_prefix(name)?.strip_prefix('\n'))
        .unwrap_or_else(|| panic!("expected.txt has no section {name}"));
    let save = text.trim_end().replace("[filter]", "*filter");
    let save = match save.strip_prefix("*filter") {
        Some(_) => save.replace("[nat]", "COMMIT\n*nat"),
        None => save.replace("[nat]", "*nat"),
    };
    rules(&format!("{save}\nCOMMIT\n"))
}

fn settings() -> NodeSettings {
    let nets = ["10.0.0.0/8", "fd00:10::/64"].map(|net| net.parse().unwrap());
    NodeSettings {
        node_ips: PerFamily {
            v4: Some("192.168.0.2".parse().unwrap()),
            v6: None,
        },
        local: LocalSetting::ClusterCidr(nets.to_vec()),
        ..NodeSettings::of_node("test-node")
    }
}

fn read(value: Value) -> Object {
    if value["kind"] == "Service" {
        Object::Service(serde_json::from_value(value).unwrap())
    } else {
        Object::EndpointSlice(serde_json::from_value(value).unwrap())
    }
}

/// `ns1/svc1` with the port `p80`, and more fields in its spec.
fn service(mut spec: Value) -> Value {
    let mut service = json!({
        "kind": "Service",
        "metadata": {"namespace": "ns1", "name": "svc1"},
        "spec": {"clusterIP": "172.30.0.41", "ports": [{"name": "p80", "port": 80}]},
    });
    if let (Some(all), Some(more)) = (service["spec"].as_object_mut(), spec.as_object_mut()) {
        all.append(more);
    }
    service
}

/// Like [`service`], with node port 3001.
fn node_port(mut spec: Value) -> Value {
    let node_port =
        json!({"type": "NodePort", "ports": [{"name": "p80", "port": 80, "nodePort": 3001}]});
    for (field, value) in node_port.as_object().unwrap() {
        if field != "type" || spec.get("type").is_none() {
            spec[field] = value.clone();
        }
    }
    service(spec)
}

/// Like [`node_port`], of type LoadBalancer with these ingress addresses.
fn load_balancer(ips: &[&str], mut spec: Value) -> Value {
    spec["type"] = json!("LoadBalancer");
    let mut service = node_port(spec);
    let ingress: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
    service["status"] = json!({"loadBalancer": {"ingress": ingress}});
    service
}

/// Endpoints of `ns1/svc1`; the first of the addresses used here is on this node.
fn endpoints(ips: &[&str]) -> Value {
    let endpoints: Vec<Value> = ips
        .iter()
        .map(|ip| {
            json!({
                "addresses": [ip],
                "nodeName": if *ip == "10.180.0.1" { "test-node" } else { "elsewhere" },
            })
        })
        .collect();
    let is_v6 = ips.iter().any(|ip| ip.contains(':'));
    json!({
        "kind": "EndpointSlice",
        "metadata": {"namespace": "ns1", "name": "svc1-a", "labels": {"kubernetes.io/service-name": "svc1"}},
        "addressType": if is_v6 { "IPv6" } else { "IPv4" },
        "ports": [{"name": "p80", "port": 80}],
        "endpoints": endpoints,
    })
}

const HERE: &str = "10.180.0.1";
const THERE: &str = "10.180.2.1";

pub fn all() -> Vec<ServiceShape> {
    let local = json!({
        "externalTrafficPolicy": "Local", "externalIPs": ["192.168.99.22"], "healthCheckNodePort": 30000,
    });
    let local_balancer = || load_balancer(&["1.2.3.4"], local.clone());
    let local_node_port = || node_port(json!({"externalTrafficPolicy": "Local"}));
    let internal = || json!({"internalTrafficPolicy": "Local"});
    let ranges = json!({"loadBalancerSourceRanges": ["192.168.0.0/24", "203.0.113.0/25"]});
    let mut shapes = vec![
        ServiceShape::new("base", vec![]),
        ServiceShape::new("S1", vec![service(json!({})), endpoints(&[HERE])]),
        ServiceShape::new("S2", vec![service(json!({}))]),
        ServiceShape::new(
            "S3",
            vec![service(json!({})), endpoints(&[HERE, THERE, "10.180.3.1"])],
        ),
        ServiceShape::new("S4", vec![sticky(), endpoints(&[HERE, THERE])]),
        ServiceShape::new("S5", vec![node_port(json!({})), endpoints(&[HERE, THERE])])
            .with(|shape| shape.options.count_localhost = true),
        ServiceShape::new("S6", vec![node_port(json!({})), endpoints(&[HERE, THERE])]).with(
            |shape| {
                shape.options.localhost_node_ports = false;
                shape.settings.node_ports =
                    NodePortSetting::Cidrs(vec!["192.168.0.0/24".parse().unwrap()]);
            },
        ),
        ServiceShape::new(
            "S7",
            vec![load_balancer(&["1.2.3.4"], json!({})), endpoints(&[HERE])],
        ),
        ServiceShape::new(
            "S8",
            vec![
                load_balancer(&["1.2.3.4", "5.6.7.8"], ranges),
                endpoints(&[HERE]),
            ],
        ),
        ServiceShape::new("S9", vec![local_balancer(), endpoints(&[HERE, THERE])]),
        ServiceShape::new("S10", vec![local_balancer(), endpoints(&[THERE])]),
        ServiceShape::new("S11", vec![local_balancer()]),
        ServiceShape::new("S12", vec![service(internal()), endpoints(&[HERE, THERE])]),
        ServiceShape::new("S13", vec![service(internal()), endpoints(&[THERE])]),
        ServiceShape::new(
            "S14",
            vec![node_port(internal()), endpoints(&[HERE, THERE])],
        ),
        ServiceShape::new(
            "S15",
            vec![
                service(json!({"externalIPs": ["192.168.99.33"]})),
                endpoints(&[HERE, THERE]),
            ],
        ),
        ServiceShape::new(
            "S16",
            vec![local_node_port(), terminating(endpoints(&[HERE, THERE]))],
        ),
    ];
    shapes.extend(more_shapes(local_node_port));
    shapes
}

fn more_shapes(local_node_port: impl Fn() -> Value) -> Vec<ServiceShape> {
    let mut six = endpoints(&["fd00:10:180::1", "fd00:10:180::2:1"]);
    six["metadata"]["name"] = json!("svc1-b");
    vec![
        ServiceShape::new("S17", kube_dns()),
        ServiceShape::new("S18", sctp()).with(|shape| shape.settings.masquerade_all = true),
        ServiceShape::new(
            "S19",
            [vec![sticky(), endpoints(&[HERE, THERE])], many()].concat(),
        ),
        ServiceShape::new("S20", vec![local_node_port(), endpoints(&[HERE])])
            .with(|shape| shape.settings.local = LocalSetting::InterfacePrefix("veth".into())),
        ServiceShape::new("S21", vec![local_node_port(), endpoints(&[HERE])])
            .with(|shape| shape.settings.local = LocalSetting::ClusterCidr(vec![])),
        ServiceShape::new(
            "S22",
            vec![
                node_port(json!({"clusterIP": "fd00:172:30::41", "ipFamilies": ["IPv6"]})),
                six,
            ],
        )
        .with(|shape| shape.family = Family::V6),
    ]
}

fn sticky() -> Value {
    service(json!({
        "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
    }))
}

fn terminating(mut slice: Value) -> Value {
    slice["endpoints"][0]["conditions"] =
        json!({"ready": false, "serving": true, "terminating": true});
    slice
}

fn kube_dns() -> Vec<Value> {
    let ports = json!([
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]);
    let mut dns = service(json!({"clusterIP": "172.30.0.10", "ports": ports}));
    dns["metadata"] = json!({"namespace": "kube-system", "name": "kube-dns"});
    let mut slice = endpoints(&["10.180.0.9"]);
    slice["metadata"] = json!({
        "namespace": "kube-system", "name": "dns-a", "labels": {"kubernetes.io/service-name": "kube-dns"},
    });
    slice["ports"] = ports;
    vec![dns, slice]
}

fn sctp() -> Vec<Value> {
    let port = json!([{"port": 9999, "protocol": "SCTP"}]);
    let mut slice = endpoints(&[HERE]);
    slice["ports"] = port.clone();
    vec![service(json!({"ports": port})), slice]
}

/// A Service with so many endpoints that kube-proxy omits comments. Comparisons leave it out: rules in its chains do not name it.
fn many() -> Vec<Value> {
    let mut many = service(json!({"clusterIP": "172.30.0.99"}));
    many["metadata"] = json!({"namespace": "many", "name": "endpoints"});
    let slices = (0..11).map(|n| {
        let ips: Vec<String> = (1..=100).map(|m| format!("10.181.{n}.{m}")).collect();
        let mut slice = endpoints(&ips.iter().map(String::as_str).collect::<Vec<_>>());
        slice["metadata"] = json!({
            "namespace": "many", "name": format!("s{n}"), "labels": {"kubernetes.io/service-name": "endpoints"},
        });
        slice
    });
    std::iter::once(many).chain(slices).collect()
}
