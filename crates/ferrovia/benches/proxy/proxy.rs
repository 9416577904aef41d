//! The measured process: the engine with its backends, wired as the daemon wires them, and nothing else.
//!
//! It runs in the node's namespace from its start. Sources are left out: objects are made on the spot, and the clock stops meanwhile.

use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use ferrovia::mode::{InstallContext, Installed, Listen, Mode as _, NftablesMode, Watcher};
use ferrovia::sync::Engine;
use ferrovia_core::desired::{LocalSetting, NodePortSetting, NodeSettings};
use ferrovia_core::family::Family;
use ferrovia_core::store::Event;

use crate::cluster::{self, applied, deleted};
use crate::orders::{self, Cost, Order};

/// Carries out orders until there are no more.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut proxy = Proxy::start()?;
    let mut orders = io::stdin().lock();
    while let Some(order) = orders::read(&mut orders)? {
        let cost = proxy.obey(order)?;
        orders::write(io::stdout().lock(), &cost)?;
    }
    Ok(())
}

struct Proxy {
    engine: Engine,
    /// As in the daemon, someone listens from the first full sync on: the kernel does more for a ruleset that is listened to.
    listen: Option<Listen>,
    watcher: Option<Box<dyn Watcher>>,
}

impl Proxy {
    fn start() -> anyhow::Result<Self> {
        ferrovia_host::memory::keep_small();
        let Installed {
            backends, listen, ..
        } = NftablesMode::default()
            .install(&InstallContext::default())
            .map_err(anyhow::Error::from_boxed)?;
        let mut engine = Engine::new(settings()?, backends);
        engine.set_addresses(ferrovia_host::addr::local_addresses()?);
        Ok(Self {
            engine,
            listen: Some(listen),
            watcher: None,
        })
    }

    fn obey(&mut self, order: Order) -> anyhow::Result<Cost> {
        match order {
            Order::Load(size) => {
                let cost = self.take(size.events())?;
                if let Some(listen) = self.listen.take() {
                    self.watcher = Some(listen().map_err(anyhow::Error::from_boxed)?);
                }
                Ok(cost)
            }
            Order::MoveTo { service, pod } => self.take([applied(cluster::slice_at(service, pod))]),
            Order::Resize {
                size,
                service,
                endpoints,
            } => self.take([applied(size.made_up_slice(service, endpoints))]),
            Order::Add { size, service } => self.take([
                applied(cluster::service(service)),
                applied(size.made_up_slice(service, size.endpoints)),
            ]),
            Order::Remove { size, service } => self.take([
                deleted(&size.made_up_slice(service, 0)),
                deleted(&cluster::service(service)),
            ]),
            Order::Compare => {
                self.engine.suspect(Family::V4);
                self.take([])
            }
        }
    }

    /// Handles events as they come out of the iterator and writes what they change.
    fn take(&mut self, events: impl IntoIterator<Item = Event>) -> anyhow::Result<Cost> {
        let mut store = Duration::ZERO;
        for event in events {
            let start = Instant::now();
            self.engine.handle(event);
            store += start.elapsed();
        }
        let start = Instant::now();
        let outcomes = self.engine.sync();
        let synced = start.elapsed();

        let mut cost = Cost {
            store,
            ..Cost::default()
        };
        for outcome in outcomes {
            let written = outcome
                .result
                .map_err(|error| anyhow!("{}: {error}", outcome.family))?;
            cost.observe += written.observe;
            cost.plan += written.plan;
            cost.apply += written.apply;
        }
        cost.desired = synced.saturating_sub(cost.observe + cost.plan + cost.apply);
        Ok(cost)
    }
}

fn settings() -> anyhow::Result<NodeSettings> {
    let pods = cluster::CLUSTER_CIDR
        .parse()
        .context("the cluster's range of pods")?;
    Ok(NodeSettings {
        local: LocalSetting::ClusterCidr(vec![pods]),
        node_ports: NodePortSetting::Primary,
        ..NodeSettings::of_node(cluster::NODE)
    })
}
