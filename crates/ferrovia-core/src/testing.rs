//! Builders for tests: API objects from short JSON, and a small world that runs them through store and builder; [`ports`] for planners.

pub(crate) mod ports;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::desired::{Builder, Delta, Endpoint, NodeSettings, ServicePort, Update};
use crate::family::{Family, PerFamily};
use crate::model::{PortKey, Warning};
use crate::store::{Event, Store};
use crate::wire::{Kind, Object};

pub(crate) const NODE: &str = "n1";

/// An object of any kind from JSON with a `kind` field.
pub(crate) fn object(value: Value) -> Object {
    let kind = value["kind"].as_str().unwrap().to_owned();
    match kind.as_str() {
        "Service" => Object::Service(serde_json::from_value(value).unwrap()),
        "EndpointSlice" => Object::EndpointSlice(serde_json::from_value(value).unwrap()),
        "Endpoints" => Object::Endpoints(serde_json::from_value(value).unwrap()),
        "Node" => Object::Node(serde_json::from_value(value).unwrap()),
        "ServiceCIDR" => Object::ServiceCidr(serde_json::from_value(value).unwrap()),
        other => panic!("no such kind: {other}"),
    }
}

pub(crate) fn applied(value: Value) -> Event {
    Event::Applied(Box::new(object(value)))
}

/// A Service with one TCP port 80; `spec` overrides and adds fields.
pub(crate) fn service(name: &str, cluster_ip: &str, spec: Value) -> Value {
    let mut whole = json!({"clusterIP": cluster_ip, "ports": [{"port": 80}]});
    merge(&mut whole, spec);
    json!({"kind": "Service", "metadata": {"name": name}, "spec": whole})
}

/// A slice of a Service with port 8080 unnamed; its family is that of its endpoints.
pub(crate) fn slice(name: &str, service: &str, endpoints: impl Into<Value>) -> Value {
    let endpoints = endpoints.into();
    let is_v6 = endpoints[0]["addresses"][0]
        .as_str()
        .is_some_and(|ip| ip.contains(':'));
    json!({
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}},
        "addressType": if is_v6 { "IPv6" } else { "IPv4" },
        "ports": [{"port": 8080}],
        "endpoints": endpoints,
    })
}

/// A ready endpoint on a node.
pub(crate) fn endpoint(ip: &str, node: &str) -> Value {
    json!({"addresses": [ip], "nodeName": node})
}

/// Puts the fields of one JSON object into another, recursively.
pub(crate) fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

pub(crate) fn settings() -> NodeSettings {
    NodeSettings::of_node(NODE)
}

/// A store and a builder, with a check that deltas are complete.
pub(crate) struct TestCluster {
    pub(crate) store: Store,
    pub(crate) builder: Builder,
    pub(crate) local_addresses: Vec<IpAddr>,
    shadow: PerFamily<BTreeMap<PortKey, Arc<ServicePort>>>,
}

impl TestCluster {
    pub(crate) fn new(settings: NodeSettings) -> Self {
        let mut store = Store::with_policy(NODE, settings.services.clone());
        for kind in Kind::ALL {
            store.handle(Event::Listed(kind));
        }
        Self::with_store(store, settings)
    }

    pub(crate) fn with_store(store: Store, settings: NodeSettings) -> Self {
        let builder = Builder::new(settings);
        Self {
            store,
            builder,
            local_addresses: Vec::new(),
            shadow: PerFamily::default(),
        }
    }

    /// Applies an object and updates; all warnings in one list.
    pub(crate) fn apply(&mut self, value: Value) -> (PerFamily<Delta>, Vec<Warning>) {
        self.handle(applied(value))
    }

    pub(crate) fn delete(&mut self, kind: Kind, name: &str) -> (PerFamily<Delta>, Vec<Warning>) {
        self.handle(Event::Deleted {
            kind,
            namespace: "default".into(),
            name: name.into(),
        })
    }

    pub(crate) fn handle(&mut self, event: Event) -> (PerFamily<Delta>, Vec<Warning>) {
        let mut warnings = self.store.handle(event);
        let update = self.sync();
        warnings.extend(update.warnings);
        (update.deltas, warnings)
    }

    pub(crate) fn sync(&mut self) -> Update {
        let touched = self.store.take_touched();
        let update = self
            .builder
            .update(&self.store, touched, &self.local_addresses);
        for family in Family::ALL {
            self.check_delta(&update.deltas[family], family);
        }
        update
    }

    /// The service port that prints as `name`.
    pub(crate) fn port(&self, family: Family, name: &str) -> Option<&ServicePort> {
        let mut ports = self.builder.desired(family).ports.values();
        ports
            .find(|port| port.key.to_string() == name)
            .map(Arc::as_ref)
    }

    /// The frontends of a port as text.
    pub(crate) fn frontends(&self, family: Family, name: &str) -> Vec<String> {
        let port = self
            .port(family, name)
            .unwrap_or_else(|| panic!("no port {name}"));
        port.frontends
            .iter()
            .map(|frontend| format!("{frontend:?}"))
            .collect()
    }

    /// A delta holds only real differences, in order, and all of them.
    fn check_delta(&mut self, delta: &Delta, family: Family) {
        assert!(delta.ports.is_sorted_by(|a, b| a.key < b.key));
        let shadow = &mut self.shadow[family];
        for change in &delta.ports {
            assert_ne!(change.old, change.new);
            assert_eq!(shadow.get(&change.key), change.old.as_ref());
            match &change.new {
                Some(new) => shadow.insert(change.key.clone(), Arc::clone(new)),
                None => shadow.remove(&change.key),
            };
        }
        assert_eq!(*shadow, self.builder.desired(family).ports);
    }
}

/// Endpoints as `ip:port`, a star behind local ones and `xN` behind weights other than 1.
pub(crate) fn show(endpoints: &[Endpoint]) -> Vec<String> {
    let one = |e: &Endpoint| {
        let weight = if e.weight == 1 {
            String::new()
        } else {
            format!("x{}", e.weight)
        };
        let star = if e.is_local { "*" } else { "" };
        format!("{}{star}{weight}", std::net::SocketAddr::new(e.ip, e.port))
    };
    endpoints.iter().map(one).collect()
}
