//! Store, builder and planners without a kernel: objects in, texts of plans out.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;

use ferrovia_core::desired::{Builder, Desired, Frontend, NodeSettings};
use ferrovia_core::dialect::nft::{NftObserved, Transaction};
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::model::TrafficPolicy;
use ferrovia_core::plan::iptables::{IptablesOptions, IptablesPlanner};
use ferrovia_core::plan::nft::NftPlanner;
use ferrovia_core::plan::{ObservedPolicy, Planner, iptables};
use ferrovia_core::store::{Event, Store};

use crate::objects::Objects;
use crate::options::{iptables_mode, settings};

/// The proxy without a kernel.
pub(crate) struct OfflineProxy {
    store: Store,
    builder: Builder,
    planners: PerFamily<NftPlanner>,
    iptables: PerFamily<IptablesPlanner>,
    addresses: Vec<IpAddr>,
}

impl OfflineProxy {
    /// A proxy that has planned an empty cluster.
    pub(crate) fn new(options: &BTreeMap<String, String>, addresses: &[IpAddr]) -> Self {
        let iptables = iptables_mode(options);
        let iptables = IptablesOptions {
            localhost_node_ports: iptables.localhost_node_ports,
            ..IptablesOptions::default()
        };
        let mut proxy = Self::bare(settings(options), addresses, iptables);
        proxy.feed(Objects::default().start());
        for family in Family::ALL {
            let desired = proxy.builder.desired(family);
            proxy.planners[family].full(desired, &NftObserved::default(), ObservedPolicy::Adopt);
            let nothing = iptables::IptablesObserved::default();
            proxy.iptables[family].full(desired, &nothing, ObservedPolicy::Adopt);
        }
        proxy
    }

    fn bare(settings: NodeSettings, addresses: &[IpAddr], options: IptablesOptions) -> Self {
        Self {
            store: Store::with_policy(&settings.node_name, settings.services.clone()),
            builder: Builder::new(settings),
            planners: PerFamily::from_fn(|family| NftPlanner::new(family, true)),
            iptables: PerFamily::from_fn(|family| IptablesPlanner::new(family, options)),
            addresses: addresses.to_vec(),
        }
    }

    /// The full plan of these objects for an empty kernel.
    pub(crate) fn scratch(
        settings: NodeSettings,
        addresses: &[IpAddr],
        objects: &Objects,
        family: Family,
    ) -> Transaction {
        let mut proxy = Self::bare(settings, addresses, IptablesOptions::default());
        proxy.feed(objects.replay());
        let desired = proxy.builder.desired(family);
        proxy.planners[family].full(desired, &NftObserved::default(), ObservedPolicy::Adopt)
    }

    fn feed(&mut self, events: Vec<Event>) -> ferrovia_core::desired::Update {
        let warnings: Vec<_> = events
            .into_iter()
            .flat_map(|event| self.store.handle(event))
            .collect();
        let mut touched = self.store.take_touched();
        touched.node = true;
        let mut update = self.builder.update(&self.store, touched, &self.addresses);
        update.warnings.splice(..0, warnings);
        update
    }

    /// Handles events; returns the texts of the sections that a case may expect, by name.
    pub(crate) fn apply(&mut self, events: Vec<Event>) -> BTreeMap<&'static str, String> {
        let update = self.feed(events);
        let mut texts = BTreeMap::new();
        for (family, desired, nft, iptables) in [
            (Family::V4, "desired.v4", "nft.v4", "iptables.v4"),
            (Family::V6, "desired.v6", "nft.v6", "iptables.v6"),
        ] {
            let state = self.builder.desired(family);
            let plan = self.planners[family].incremental(state, &update.deltas[family]);
            texts.insert(desired, describe(state));
            texts.insert(nft, plan.to_string());
            let plan = self.iptables[family].incremental(state, &update.deltas[family]);
            texts.insert(iptables, plan.to_string());
        }
        let warnings: String = update
            .warnings
            .iter()
            .map(|warning| format!("{warning}\n"))
            .collect();
        texts.insert("warnings", warnings);
        texts
    }
}

/// The desired state as text, a few lines per service port.
fn describe(desired: &Desired) -> String {
    let mut text = String::new();
    for port in desired.ports.values() {
        let policy = |policy| {
            if policy == TrafficPolicy::Local {
                "Local"
            } else {
                "Cluster"
            }
        };
        let _ = write!(text, "{} {}", port.key, port.protocol());
        let _ = write!(
            text,
            " internal={} external={}",
            policy(port.internal_policy),
            policy(port.external_policy)
        );
        if let Some(timeout) = port.affinity {
            let _ = write!(text, " affinity={timeout}s");
        }
        let _ = writeln!(text);
        for frontend in &port.frontends {
            let at = match frontend {
                Frontend::ClusterIp(at) => format!("cluster IP {at}"),
                Frontend::ExternalIp(at) => format!("external IP {at}"),
                Frontend::LoadBalancer(at) => format!("load balancer {at}"),
                Frontend::NodePort(port) => format!("node port {port}"),
            };
            let _ = writeln!(text, "  {at}");
        }
        for (name, list) in [("cluster", &port.cluster), ("local", &port.local)] {
            for e in list.iter() {
                let local = if e.is_local { " (this node)" } else { "" };
                let at = std::net::SocketAddr::new(e.ip, e.port);
                let _ = writeln!(text, "    {name} {at} weight {}{local}", e.weight);
            }
        }
    }
    text
}
