//! `services/NAMESPACE/NAME`: one service, with every endpoint and the reason why it is used or not.

use std::net::SocketAddr;
use std::sync::Arc;

use ferrovia_core::desired::{Explained, ExplainedEndpoint, Frontend, RefusalAction, ServicePort};
use ferrovia_core::family::Family;
use ferrovia_core::model::{Algorithm, ServiceKey, TrafficPolicy, Warning};
use ferrovia_core::trace::{in_words, topology_in_words};
use serde::Serialize;
use serde_json::{Value, json};

use super::overview::blocking;
use super::problem::Problem;
use super::rates::{Count, Sample};
use super::snapshot::{Snapshot, kind};
use super::{Admin, VERSION};
use crate::mode::Mode;
use crate::sync::Engine;

/// What the sync loop knows of a service.
struct Known {
    ports: Vec<(Family, Arc<ServicePort>, Option<Explained>)>,
    health_check_port: Option<u16>,
    warnings: Vec<Warning>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PortView {
    name: String,
    protocol: String,
    family: &'static str,
    frontends: Vec<FrontendView>,
    internal_policy: &'static str,
    external_policy: &'static str,
    affinity_seconds: Option<u32>,
    algorithm: &'static str,
    source_ranges: Vec<String>,
    /// What became of topology hints, in words.
    topology: Option<String>,
    endpoints: Vec<EndpointView>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FrontendView {
    r#type: &'static str,
    /// The address with its port; of a node port the number.
    address: String,
    port: u16,
    policy: &'static str,
    /// `endpoints`, `refused` or `dropped`.
    outcome: &'static str,
    endpoints: usize,
    /// A command that shows where the kernel keeps it.
    kernel: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EndpointView {
    address: SocketAddr,
    node: Option<String>,
    is_local: bool,
    weight: u16,
    zones: Vec<String>,
    cluster: Place,
    local: Place,
    connections: Option<u64>,
    per_second: Option<f64>,
}

/// What an endpoint is to the list of a policy.
#[derive(Debug, Serialize)]
struct Place {
    r#in: bool,
    /// The part of the list's connections it gets, 0 to 1.
    share: f64,
    reason: String,
}

impl Admin {
    pub(super) async fn service(
        self: &Arc<Self>,
        namespace: &str,
        name: &str,
    ) -> Result<Value, Problem> {
        let missing = || {
            Problem::missing(
                format!("there is no service {namespace}/{name} on this node"),
                "look at services?filter=; a headless or ExternalName Service has no rules",
            )
        };
        let key = ServiceKey::new(namespace, name).ok_or_else(missing)?;
        let (asked, profile) = (key.clone(), self.about.mode.trace_profile());
        let known = self.ask(move |engine| Known::of(engine, &asked, profile));
        let known = known.await?.ok_or_else(missing)?;
        let admin = Arc::clone(self);
        blocking(move || admin.describe(&key, &known)).await
    }

    fn describe(&self, key: &ServiceKey, known: &Known) -> Value {
        let sample = self.rates.sample();
        let counting = self.rates.is_counting() && sample.error().is_none();
        let ports = known
            .ports
            .iter()
            .map(|(family, port, _)| (*family, Arc::clone(port)));
        let snapshot = Snapshot::new(ports.collect());
        let group = snapshot.services().next();
        let counted = sample.service(key);
        let view = |(family, port, explained): &(Family, Arc<ServicePort>, Option<Explained>)| {
            let counts = Counts {
                key,
                sample: &sample,
                counting,
            };
            PortView::new(
                *family,
                port,
                explained.as_ref(),
                &*self.about.mode,
                &counts,
            )
        };
        let warnings = known.warnings.iter();
        let warnings = warnings.map(
            |it| json!({ "object": it.object, "field": it.field, "problem": it.problem_in_full() }),
        );
        json!({
            "version": VERSION,
            "namespace": key.namespace(),
            "name": key.name(),
            "types": group.map(|group| group.kinds()),
            "state": group.map(|group| group.standing().name()),
            "counting": self.rates.is_counting(),
            "connections": counting.then_some(counted.connections.total),
            "perSecond": counted.connections.per_second,
            "refused": counting.then_some(counted.refused.total),
            "refusedPerSecond": counted.refused.per_second,
            "healthCheckNodePort": known.health_check_port,
            "ports": known.ports.iter().map(view).collect::<Vec<_>>(),
            "warnings": warnings.collect::<Vec<_>>(),
        })
    }
}

impl Known {
    fn of(
        engine: &Engine,
        key: &ServiceKey,
        profile: ferrovia_core::trace::TraceProfile,
    ) -> Option<Self> {
        let context = engine.trace_context(profile);
        let mut ports = Vec::new();
        for family in Family::ALL {
            let Some(desired) = engine.desired(family) else {
                continue;
            };
            for (port, wanted) in desired.ports_of(key) {
                let explained = context.builder.explain(context.store, port, family);
                ports.push((family, Arc::clone(wanted), explained));
            }
        }
        if ports.is_empty() {
            return None;
        }
        let mut objects = vec![format!("Service {key}"), format!("Endpoints {key}")];
        let slices = context.store.slices(key);
        objects.extend(slices.map(|slice| format!("EndpointSlice {}", slice.key)));
        let warned = engine.warned().latest();
        Some(Self {
            ports,
            health_check_port: context
                .store
                .service(key)
                .and_then(|it| it.health_check_port),
            warnings: warned
                .filter(|warning| objects.contains(&warning.object))
                .cloned()
                .collect(),
        })
    }
}

/// What was counted of the service.
struct Counts<'a> {
    key: &'a ServiceKey,
    sample: &'a Sample,
    counting: bool,
}

impl PortView {
    fn new(
        family: Family,
        port: &ServicePort,
        explained: Option<&Explained>,
        mode: &dyn Mode,
        counts: &Counts<'_>,
    ) -> Self {
        let total = |policy| -> u32 {
            let list = port.endpoints(policy).iter();
            list.map(|endpoint| u32::from(endpoint.weight)).sum()
        };
        let totals = (total(TrafficPolicy::Cluster), total(TrafficPolicy::Local));
        let endpoints = explained.map_or(&[][..], |explained| &explained.endpoints);
        Self {
            name: port.key.name.to_string(),
            protocol: port.protocol().to_string(),
            family: family.name(),
            frontends: port
                .frontends
                .iter()
                .map(|frontend| FrontendView::new(family, port, *frontend, mode))
                .collect(),
            internal_policy: policy_name(port.internal_policy),
            external_policy: policy_name(port.external_policy),
            affinity_seconds: port.affinity,
            algorithm: match port.algorithm {
                Algorithm::Random => "random",
                Algorithm::SourceHash => "source-hash",
            },
            source_ranges: port.source_ranges.iter().map(ToString::to_string).collect(),
            topology: explained.and_then(topology_in_words),
            endpoints: endpoints
                .iter()
                .map(|endpoint| EndpointView::new(endpoint, totals, counts))
                .collect(),
        }
    }
}

impl FrontendView {
    fn new(family: Family, port: &ServicePort, frontend: Frontend, mode: &dyn Mode) -> Self {
        let policy = port.policy(frontend);
        let (address, number) = match frontend {
            Frontend::NodePort(number) => (number.to_string(), number),
            Frontend::ClusterIp(at) | Frontend::ExternalIp(at) | Frontend::LoadBalancer(at) => {
                (at.to_string(), at.port())
            }
        };
        Self {
            r#type: kind(frontend),
            address,
            port: number,
            policy: policy_name(policy),
            outcome: match port.refusal(frontend) {
                None => "endpoints",
                Some(RefusalAction::Reject) => "refused",
                Some(RefusalAction::Drop) => "dropped",
            },
            endpoints: port.endpoints(policy).len(),
            kernel: mode.inspect_command(family, port, frontend),
        }
    }
}

impl EndpointView {
    fn new(of: &ExplainedEndpoint, totals: (u32, u32), counts: &Counts<'_>) -> Self {
        let endpoint = of.endpoint;
        let address = SocketAddr::new(endpoint.ip, endpoint.port);
        let place = |policy, total: u32| {
            let standing = of.selection(policy);
            let share = f64::from(endpoint.weight) / f64::from(total.max(1));
            Place {
                r#in: standing.is_selected(),
                share: if standing.is_selected() { share } else { 0.0 },
                reason: in_words(of, standing),
            }
        };
        let Count { total, per_second } = counts.sample.endpoint(counts.key, address);
        Self {
            address,
            node: of.node.as_deref().map(str::to_owned),
            is_local: endpoint.is_local,
            weight: endpoint.weight,
            zones: of.zones.iter().map(ToString::to_string).collect(),
            cluster: place(TrafficPolicy::Cluster, totals.0),
            local: place(TrafficPolicy::Local, totals.1),
            connections: counts.counting.then_some(total),
            per_second,
        }
    }
}

fn policy_name(policy: TrafficPolicy) -> &'static str {
    match policy {
        TrafficPolicy::Cluster => "Cluster",
        TrafficPolicy::Local => "Local",
    }
}
