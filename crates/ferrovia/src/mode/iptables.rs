//! The iptables mode: kube-proxy's own chains, written by the iptables tools.

mod checks;
mod counters;
mod migration;

use std::sync::Arc;

use ferrovia_core::desired::{Delta, Desired, Frontend, ServicePort};
use ferrovia_core::difference::{self, Difference};
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::plan::iptables::{IptablesOptions, IptablesPlanner, is_own_chain};
use ferrovia_core::plan::{ObservedPolicy, Planner as _};
use ferrovia_core::trace::in_kernel::KernelObject;
use ferrovia_core::trace::{self, Trace, TraceProfile};
use ferrovia_host::iptables::{
    self, AcctCounter, AcctCounters, Backend as Ruleset, IptablesApplier,
};
use ferrovia_host::portals::Directory;
use ferrovia_host::probe;

use self::counters::{ApplierCounters, report_packets, usable_counters};
use super::remove::take_over;
use super::{
    ConfigSection, InstallContext, Installed, KubeProxyNames, Mode, OwnChains, Properties, Removal,
    RemovalSteps, full_plan, iptables_tools, plan_of_change,
};
use crate::config::Config;
use crate::inspect::doctor::{Facts, Finding};
use crate::inspect::migrate::Migration;
use crate::serve::metrics::{FailureMetrics, FailureSeries};
use crate::sync::backend::{Backend, Pair, SyncError};

/// The mode, with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IptablesMode {
    /// Node ports answer on 127.0.0.1 too. Only to be set where the addresses node ports answer on include it.
    pub localhost_node_ports: bool,
}

pub(super) const DEFAULT: IptablesMode = IptablesMode {
    localhost_node_ports: true,
};

impl Default for IptablesMode {
    fn default() -> Self {
        DEFAULT
    }
}

pub(super) const SECTION: ConfigSection = ConfigSection {
    name: trace::IPTABLES.mode,
    sync_period: |document| &mut document.iptables.sync_period,
    min_sync_period: |document| &mut document.iptables.min_sync_period,
    period_flags: |typed| typed.iptables_periods,
    masquerade_all: |document| &mut document.iptables.masquerade_all,
    masquerade_bit_field: "iptables.masqueradeBit",
    masquerade_bit: |document| document.iptables.masquerade_bit,
    drops_by_mark: true,
    defaults_to_primary_addresses: false,
    uses_port_range: false,
};

impl IptablesMode {
    fn of(config: &Config) -> Self {
        Self {
            localhost_node_ports: config.localhost_node_ports
                && config.settings.node_ports.cover_loopback(Family::V4),
        }
    }

    fn options(self) -> IptablesOptions {
        IptablesOptions {
            localhost_node_ports: self.localhost_node_ports,
            ..IptablesOptions::default()
        }
    }

    /// A planner that knows nothing of this machine.
    fn planner(self, family: Family) -> IptablesPlanner {
        IptablesPlanner::new(family, self.options())
    }
}

impl Mode for IptablesMode {
    fn name(&self) -> &'static str {
        trace::IPTABLES.mode
    }

    fn configured(&self, config: &Config) -> Arc<dyn Mode> {
        Arc::new(Self::of(config))
    }

    fn config_section(&self) -> &'static ConfigSection {
        &SECTION
    }

    fn trace_profile(&self) -> TraceProfile {
        trace::IPTABLES.with_localhost_node_ports(PerFamily {
            v4: self.localhost_node_ports,
            v6: false,
        })
    }

    fn properties(&self) -> Properties {
        Properties {
            needs_iptables_tools: true,
            needs_low_ports: false,
            stops_with_process: false,
            accepts_forwarded_packets: true,
            shares_kube_proxy_chains: true,
            sets_route_localnet: true,
        }
    }

    fn failure_metrics(&self) -> FailureMetrics {
        FailureMetrics {
            full: &[FailureSeries::IptablesRestore],
            incremental: &[
                FailureSeries::IptablesRestore,
                FailureSeries::IptablesPartialRestore,
            ],
            cleanup: &[FailureSeries::IptablesRestore],
        }
    }

    fn install(&self, _context: &InstallContext) -> Result<Installed, SyncError> {
        let families = probe::supported_families();
        let mut detected = iptables_tools::detect(&families, "rules")?;
        let counters = usable_counters();
        let options = IptablesOptions {
            drop_invalid: !iptables::is_liberal(),
            count_invalid: counters.contains(&AcctCounter::Invalid),
            count_localhost: counters.contains(&AcctCounter::Localhost),
            commits: detected.backend.commits(),
            ..self.options()
        };
        let mut backends = PerFamily { v4: None, v6: None };
        let mut applied = Vec::new();
        for family in families {
            let Some(tool) = detected.tools[family].take() else {
                continue;
            };
            let mut applier = IptablesApplier::new(tool).with_counters(&counters);
            if self.localhost_node_ports {
                applier = applier.with_localhost_node_ports();
            }
            applied.push(ApplierCounters {
                family,
                rules: applier.rules_written(),
                lock: (detected.backend == Ruleset::Legacy).then(|| applier.lock_usage()),
            });
            let pair = Pair::new(IptablesPlanner::new(family, options), applier);
            backends[family] = Some(Box::new(pair) as Box<dyn Backend>);
        }
        let (mode, chains) = (*self, own_chains(detected.backend));
        Ok(Installed {
            read: Some(Box::new(move |metrics| {
                applied.iter().for_each(|counters| counters.report(metrics));
                report_packets(&counters, metrics);
            })),
            ..Installed::new(backends, move |patience| {
                take_over(&mode, Some(chains), patience)
            })
        })
    }

    /// Removes chains with kube-proxy's names, whichever mode wrote them.
    fn remove(&self, removal: &Removal, steps: &mut RemovalSteps) {
        match &removal.kube_proxy_names {
            KubeProxyNames::All { except: None } => {
                steps.add_chains(iptables::remove_leftovers());
            }
            KubeProxyNames::All {
                except: Some(OwnChains { backend, is_ours }),
            } => steps.add_chains(iptables::remove_leftovers_beside(*backend, *is_ours)),
            KubeProxyNames::Marked => steps.add_chains(iptables::remove_marked()),
            KubeProxyNames::InUseBy(_) => steps.add_in_use(iptables::find_leftovers()),
        }
    }

    /// Removes chains of the other ruleset, and those of other modes beside ours.
    fn remove_own_leftovers(&self, removal: &Removal, steps: &mut RemovalSteps) {
        self.remove(removal, steps);
    }

    fn plan(&self, desired: &Desired) -> String {
        full_plan(self.planner(desired.family), desired)
    }

    fn plan_change(&self, old: &Desired, new: &Desired, delta: &Delta) -> String {
        plan_of_change(self.planner(new.family), old, new, delta)
    }

    fn compare(
        &self,
        desired: &Desired,
        _counters: bool,
        _proxies: Option<&Directory>,
    ) -> Result<Vec<Difference>, SyncError> {
        let family = desired.family;
        let observed = iptables_tools::observe(family)?;
        let has = |counter| AcctCounters::open().is_ok_and(|mut c| c.packets(counter).is_ok());
        let options = IptablesOptions {
            drop_invalid: !iptables::is_liberal(),
            // The daemon created the counters before it wrote the rules; this only reads.
            count_invalid: has(AcctCounter::Invalid),
            count_localhost: has(AcctCounter::Localhost),
            ..self.options()
        };
        let plan =
            IptablesPlanner::new(family, options).full(desired, &observed, ObservedPolicy::Adopt);
        Ok(difference::iptables::differences(&plan, &observed))
    }

    fn find_in_kernel(&self, trace: &Trace) -> Result<Vec<KernelObject>, SyncError> {
        iptables_tools::find_rules(trace)
    }

    fn inspect_command(
        &self,
        family: Family,
        port: &ServicePort,
        _frontend: Frontend,
    ) -> Option<String> {
        let ip = match family {
            Family::V4 => "ip",
            Family::V6 => "ip6",
        };
        Some(format!("{ip}tables-save | grep -F '{} '", port.key))
    }

    fn kernel_checks(&self, facts: &Facts) -> Vec<Finding> {
        checks::kernel(facts).into_iter().collect()
    }

    fn migration(&self) -> Option<&'static Migration> {
        Some(&migration::MIGRATION)
    }
}

fn own_chains(backend: Ruleset) -> OwnChains {
    OwnChains {
        backend,
        is_ours: is_own_chain,
    }
}
