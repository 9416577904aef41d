//! The nftables mode: nftables rules, written over netlink.

mod checks;
mod counter_report;
mod counts;
pub(super) mod dynamic_sets;
mod localhost;

use std::sync::Arc;
use std::time::Duration;

use ferrovia_core::desired::{Delta, Desired, Frontend, RefusalAction, ServicePort};
use ferrovia_core::dialect::nft::{NftOp, Transaction};
use ferrovia_core::difference::{self, Difference};
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::plan::nft::NftPlanner;
use ferrovia_core::plan::nft::layout::{PREDECESSORS, TABLE};
use ferrovia_core::plan::nft::packet_lookup::lookup_packet;
use ferrovia_core::plan::{ObservedPolicy, Planner as _};
use ferrovia_core::trace::in_kernel::{self, KernelObject};
use ferrovia_core::trace::{self, Trace, TraceProfile};
use ferrovia_host::nft::{Monitor, Nft, NftApplier, NftConnection, RulesetChange};
use ferrovia_host::portals::Directory;
use ferrovia_host::probe;

use super::remove::take_over;
use super::{
    ConfigSection, InstallContext, Installed, Mode, Properties, Removal, RemovalSteps, Watcher,
    full_plan, listeners, plan_of_change, userspace,
};
use crate::config::Config;
use crate::inspect::counters::Counts;
use crate::inspect::doctor::{Facts, Finding};
use crate::serve::metrics::{FailureMetrics, FailureSeries};
use crate::sync::backend::{Backend, Pair, SyncError};

/// The mode, with its settings.
#[derive(Clone, Copy, Debug)]
pub struct NftablesMode {
    /// The families in which proxies of this process listen for node ports on loopback, where rules cannot lead.
    pub localhost_node_ports: PerFamily<bool>,
    /// How long these keep an idle UDP flow.
    pub udp_idle: Duration,
}

pub(super) const DEFAULT: NftablesMode = NftablesMode {
    localhost_node_ports: PerFamily {
        v4: false,
        v6: false,
    },
    udp_idle: userspace::UDP_IDLE,
};

impl Default for NftablesMode {
    fn default() -> Self {
        DEFAULT
    }
}

const SECTION: ConfigSection = ConfigSection {
    name: trace::NFTABLES.mode,
    sync_period: |document| &mut document.nftables.sync_period,
    min_sync_period: |document| &mut document.nftables.min_sync_period,
    // kube-proxy has no flags for this mode's periods.
    period_flags: |typed| typed.iptables_periods,
    masquerade_all: |document| &mut document.nftables.masquerade_all,
    masquerade_bit_field: "nftables.masqueradeBit",
    masquerade_bit: |document| document.nftables.masquerade_bit,
    drops_by_mark: false,
    defaults_to_primary_addresses: true,
    uses_port_range: false,
};

impl Mode for NftablesMode {
    fn name(&self) -> &'static str {
        trace::NFTABLES.mode
    }

    fn configured(&self, config: &Config) -> Arc<dyn Mode> {
        Arc::new(Self {
            localhost_node_ports: PerFamily::from_fn(|family| {
                config.localhost_node_ports
                    && config.settings.node_ports.cover_loopback(family)
                    // A process that exits after the first sync serves nothing.
                    && !config.once
            }),
            udp_idle: config.modes.userspace.udp_idle,
        })
    }

    fn config_section(&self) -> &'static ConfigSection {
        &SECTION
    }

    fn trace_profile(&self) -> TraceProfile {
        trace::NFTABLES.with_localhost_node_ports(self.localhost_node_ports)
    }

    fn properties(&self) -> Properties {
        Properties {
            needs_iptables_tools: false,
            needs_low_ports: false,
            stops_with_process: false,
            accepts_forwarded_packets: false,
            shares_kube_proxy_chains: false,
            sets_route_localnet: false,
        }
    }

    fn failure_metrics(&self) -> FailureMetrics {
        FailureMetrics {
            full: &[FailureSeries::NftablesSync],
            incremental: &[FailureSeries::NftablesSync],
            cleanup: &[FailureSeries::NftablesCleanup],
        }
    }

    fn check_support(&self) -> Result<(), SyncError> {
        Ok(probe::nftables(&probe::supported_families())?)
    }

    fn install(&self, context: &InstallContext) -> Result<Installed, SyncError> {
        let families = probe::supported_families();
        probe::nftables(&families)?;
        let nft = Nft::open()?;
        let writer = nft.port_id();
        let connection = NftConnection::new(nft);
        let mut backends = PerFamily { v4: None, v6: None };
        for family in families {
            let pair = Pair::new(
                NftPlanner::new(family, context.counters),
                NftApplier::new(family, connection.clone()),
            );
            backends[family] = Some(Box::new(pair) as Box<dyn Backend>);
        }
        let listen = move || Ok(Box::new(Monitor::open(writer, &[TABLE])?) as Box<dyn Watcher>);
        // kube-proxy's nftables tables went in our first transaction.
        let mode = *self;
        let installed = Installed {
            listen: Box::new(listen),
            dynamic_sets: Some(connection),
            ..Installed::new(backends, move |patience| take_over(&mode, None, patience))
        };
        Ok(localhost::add(installed, self, &context.notices))
    }

    /// Removes our tables, and those of kube-proxy's nftables mode.
    fn remove(&self, removal: &Removal, steps: &mut RemovalSteps) {
        steps.add(remove(removal.kube_proxy_names.includes_kube_proxy()));
    }

    fn plan(&self, desired: &Desired) -> String {
        full_plan(NftPlanner::new(desired.family, true), desired)
    }

    fn plan_change(&self, old: &Desired, new: &Desired, delta: &Delta) -> String {
        plan_of_change(NftPlanner::new(new.family, true), old, new, delta)
    }

    fn compare(
        &self,
        desired: &Desired,
        counters: bool,
        _proxies: Option<&Directory>,
    ) -> Result<Vec<Difference>, SyncError> {
        let family = desired.family;
        let observed = Nft::open()?.observe(family, TABLE, &PREDECESSORS)?;
        let plan =
            NftPlanner::new(family, counters).full(desired, &observed, ObservedPolicy::Adopt);
        Ok(difference::nft::differences(&plan, &observed))
    }

    /// The elements and chains that a packet meets. On loopback a proxy of the daemon listens.
    fn find_in_kernel(&self, trace: &Trace) -> Result<Vec<KernelObject>, SyncError> {
        if trace.packet.destination.is_loopback() {
            return listeners::find(trace);
        }
        let family = Family::of(trace.packet.destination);
        let mut nft = Nft::open()?;
        let observed = lookup_packet(family, in_kernel::nft_destination(trace), |set, keys| {
            nft.look_up(family, TABLE, &set.spec(family), keys)
        })?;
        Ok(in_kernel::nft_objects(trace, &observed))
    }

    fn inspect_command(
        &self,
        family: Family,
        port: &ServicePort,
        frontend: Frontend,
    ) -> Option<String> {
        let protocol = port.protocol();
        let prefix = match port.refusal(frontend) {
            None => "",
            Some(RefusalAction::Reject) => "rejected-",
            Some(RefusalAction::Drop) => "dropped-",
        };
        let (set, key) = match frontend {
            Frontend::NodePort(number) => ("nodeports", format!("{protocol} . {number}")),
            Frontend::ClusterIp(at) | Frontend::ExternalIp(at) | Frontend::LoadBalancer(at) => {
                let key = format!("{} . {protocol} . {}", at.ip(), at.port());
                ("services", key)
            }
        };
        let family = match family {
            Family::V4 => "ip",
            Family::V6 => "ip6",
        };
        Some(format!(
            "nft get element {family} {TABLE} {prefix}{set} '{{ {key} }}'"
        ))
    }

    fn counts(&self) -> Result<Option<Box<dyn Counts>>, SyncError> {
        Ok(Some(Box::new(counts::NftCounts::open()?)))
    }

    fn counter_report(&self, service: Option<&str>) -> Result<Option<String>, SyncError> {
        Ok(counter_report::read(service)?)
    }

    fn kernel_checks(&self, facts: &Facts) -> Vec<Finding> {
        checks::kernel(facts).into_iter().collect()
    }

    fn leftover_checks(&self, facts: &Facts) -> Vec<Finding> {
        checks::leftover_tables(facts).into_iter().collect()
    }

    fn is_in_force(&self, facts: &Facts) -> bool {
        !facts.proxies.ours.is_empty()
    }
}

/// Removes our tables, and with `kube_proxy` those of kube-proxy's nftables mode too.
fn remove(kube_proxy: bool) -> Result<Vec<String>, SyncError> {
    // A kernel without nf_tables has no tables, and that must not stop the other steps.
    let Some(mut nft) = Nft::open_if_there()? else {
        return Ok(Vec::new());
    };
    let mut removed = Vec::new();
    let others = PREDECESSORS.into_iter().filter(|_| kube_proxy);
    for table in [TABLE].into_iter().chain(others) {
        for family in Family::ALL {
            let observed = nft.observe(family, table, &[])?;
            if observed.exists {
                nft.apply(&Transaction {
                    family,
                    table: table.into(),
                    ops: vec![NftOp::DeleteTable],
                    notes: Vec::new(),
                })?;
                let chains = observed.chains.len();
                removed.push(format!("{family} table {table} with {chains} chains"));
            }
        }
    }
    Ok(removed)
}

impl Watcher for Monitor {
    fn wait(&mut self) -> Result<Option<Family>, SyncError> {
        match Self::wait(self)? {
            RulesetChange::Table { family, .. } => Ok(Some(family)),
            RulesetChange::Lost => Ok(None),
        }
    }
}
