//! Services of every shape, and the rules that kube-proxy has in the kernel for each.
//!
//! Used on paper here and with the real tools in the host crate's tests.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ferrovia_core::desired::{Builder, Desired, LocalSetting, NodePortSetting, NodeSettings};
use ferrovia_core::dialect::iptables::{canonical, parse};
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::plan::iptables::IptablesOptions;
use ferrovia_core::store::{Event, Store};
use ferrovia_core::wire::{Kind, Object};
use serde_json::{Value, json};

const EXPECTED: &str = include_str!("expected.txt");

/// The rules of a ruleset's chains, by table and chain.
pub(crate) type Rules = BTreeMap<(String, String), Vec<String>>;

/// A cluster and what must come of it.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Its name in the list of expectations.
    pub(crate) name: &'static str,
    /// The family looked at.
    pub(crate) family: Family,
    /// What is special about the node.
    pub(crate) settings: NodeSettings,
    /// What is special about the mode.
    pub(crate) options: IptablesOptions,
    objects: Vec<Value>,
}

impl Shape {
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

    /// The state its objects make.
    pub(crate) fn desired(&self) -> Desired {
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

    /// The rules that must be in the kernel, but for those of a service that is only there to be many.
    pub(crate) fn expected(&self) -> Rules {
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

/// The rules of what the saving tool prints, without empty chains.
pub(crate) fn rules(save: &str) -> Rules {
    let mut rules = Rules::new();
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

/// Says where two rulesets differ.
pub(crate) fn difference(found: &Rules, expected: &Rules) -> Option<String> {
    let lines = |rules: &Rules| -> Vec<String> {
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

/// A part of the list of expectations.
fn section(name: &str) -> Rules {
    let text = EXPECTED
        .split("\n== ")
        .find_map(|part| part.strip_prefix(name)?.strip_prefix('\n'))
        .unwrap_or_else(|| panic!("nothing is expected of {name}"));
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

/// The same with node port 3001.
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

/// The same with addresses of a load balancer.
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

/// Every shape.
pub(crate) fn all() -> Vec<Shape> {
    let local = json!({
        "externalTrafficPolicy": "Local", "externalIPs": ["192.168.99.22"], "healthCheckNodePort": 30000,
    });
    let local_balancer = || load_balancer(&["1.2.3.4"], local.clone());
    let local_node_port = || node_port(json!({"externalTrafficPolicy": "Local"}));
    let internal = || json!({"internalTrafficPolicy": "Local"});
    let ranges = json!({"loadBalancerSourceRanges": ["192.168.0.0/24", "203.0.113.0/25"]});
    let mut shapes = vec![
        Shape::new("base", vec![]),
        Shape::new("S1", vec![service(json!({})), endpoints(&[HERE])]),
        Shape::new("S2", vec![service(json!({}))]),
        Shape::new(
            "S3",
            vec![service(json!({})), endpoints(&[HERE, THERE, "10.180.3.1"])],
        ),
        Shape::new("S4", vec![sticky(), endpoints(&[HERE, THERE])]),
        Shape::new("S5", vec![node_port(json!({})), endpoints(&[HERE, THERE])])
            .with(|shape| shape.options.count_localhost = true),
        Shape::new("S6", vec![node_port(json!({})), endpoints(&[HERE, THERE])]).with(|shape| {
            shape.options.localhost_node_ports = false;
            shape.settings.node_ports =
                NodePortSetting::Cidrs(vec!["192.168.0.0/24".parse().unwrap()]);
        }),
        Shape::new(
            "S7",
            vec![load_balancer(&["1.2.3.4"], json!({})), endpoints(&[HERE])],
        ),
        Shape::new(
            "S8",
            vec![
                load_balancer(&["1.2.3.4", "5.6.7.8"], ranges),
                endpoints(&[HERE]),
            ],
        ),
        Shape::new("S9", vec![local_balancer(), endpoints(&[HERE, THERE])]),
        Shape::new("S10", vec![local_balancer(), endpoints(&[THERE])]),
        Shape::new("S11", vec![local_balancer()]),
        Shape::new("S12", vec![service(internal()), endpoints(&[HERE, THERE])]),
        Shape::new("S13", vec![service(internal()), endpoints(&[THERE])]),
        Shape::new(
            "S14",
            vec![node_port(internal()), endpoints(&[HERE, THERE])],
        ),
        Shape::new(
            "S15",
            vec![
                service(json!({"externalIPs": ["192.168.99.33"]})),
                endpoints(&[HERE, THERE]),
            ],
        ),
        Shape::new(
            "S16",
            vec![local_node_port(), terminating(endpoints(&[HERE, THERE]))],
        ),
    ];
    shapes.extend(odd_ones(local_node_port));
    shapes
}

fn odd_ones(local_node_port: impl Fn() -> Value) -> Vec<Shape> {
    let mut six = endpoints(&["fd00:10:180::1", "fd00:10:180::2:1"]);
    six["metadata"]["name"] = json!("svc1-b");
    vec![
        Shape::new("S17", kube_dns()),
        Shape::new("S18", sctp()).with(|shape| shape.settings.masquerade_all = true),
        Shape::new(
            "S19",
            [vec![sticky(), endpoints(&[HERE, THERE])], many()].concat(),
        ),
        Shape::new("S20", vec![local_node_port(), endpoints(&[HERE])])
            .with(|shape| shape.settings.local = LocalSetting::InterfacePrefix("veth".into())),
        Shape::new("S21", vec![local_node_port(), endpoints(&[HERE])])
            .with(|shape| shape.settings.local = LocalSetting::ClusterCidr(vec![])),
        Shape::new(
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

/// A service with so many endpoints that comments are left out. Only the rules that name it are identifiable, so its chains are in no
/// expectation and left out of the comparison by its namespace: they hold no comment at all.
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
