//! The ipvs mode: the kernel's load balancer, with kube-proxy's device, sets and chains.

mod checks;
mod counts;
mod leftovers;
mod migration;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use ferrovia_core::desired::{Delta, Desired, Frontend, ServicePort};
use ferrovia_core::dialect::ipvs::{IpvsDestination, IpvsOp, VirtualServerKey};
use ferrovia_core::difference::{self, Difference};
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::model::Protocol;
use ferrovia_core::plan::ipvs::{IpvsOptions, IpvsPlanner, is_own_chain};
use ferrovia_core::plan::{ObservedPolicy, Planner as _};
use ferrovia_core::trace::in_kernel::KernelObject;
use ferrovia_core::trace::{self, Trace, TraceProfile};
use ferrovia_host::ipvs::{Ipvs, IpvsApplier, Timeouts, settings as kernel_settings};
use ferrovia_host::portals::Directory;
use ferrovia_host::sysctl::Files;
use ferrovia_host::{Applier as _, iptables, probe};

pub use self::settings::IpvsSettings;
use super::remove::take_over;
use super::{
    ConfigSection, InstallContext, Installed, KubeProxyNames, Mode, OwnChains, Properties, Removal,
    RemovalSteps, full_plan, iptables_tools, plan_of_change,
};
use crate::config::Config;
use crate::inspect::counters::Counts;
use crate::inspect::doctor::{Facts, Finding};
use crate::inspect::migrate::Migration;
use crate::serve::metrics::{FailureMetrics, FailureSeries};
use crate::sync::backend::{Backend, Pair, SyncError};

/// The mode, with its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IpvsMode(pub IpvsSettings);

pub(super) static DEFAULT: IpvsMode = IpvsMode(settings::DEFAULT);

/// It has no fields of its own for masquerading.
const SECTION: ConfigSection = ConfigSection {
    name: trace::IPVS.mode,
    sync_period: |document| &mut document.ipvs.sync_period,
    min_sync_period: |document| &mut document.ipvs.min_sync_period,
    period_flags: |typed| typed.ipvs_periods,
    ..super::iptables::SECTION
};

impl IpvsMode {
    /// A planner for a kernel that has every scheduler.
    fn planner(&self, family: Family) -> IpvsPlanner {
        let Self(settings) = self;
        let options = IpvsOptions {
            scheduler: settings.scheduler().unwrap_or_default(),
            exclude_cidrs: settings.exclude_cidrs.clone(),
            local_fallback: settings.local_fallback,
            ..IpvsOptions::default()
        };
        IpvsPlanner::new(family, options)
    }
}

impl Mode for IpvsMode {
    fn name(&self) -> &'static str {
        trace::IPVS.mode
    }

    fn configured(&self, config: &Config) -> Arc<dyn Mode> {
        Arc::new(Self(config.modes.ipvs.clone()))
    }

    fn config_section(&self) -> &'static ConfigSection {
        &SECTION
    }

    fn trace_profile(&self) -> TraceProfile {
        trace::IPVS
    }

    fn properties(&self) -> Properties {
        Properties {
            needs_iptables_tools: true,
            needs_low_ports: false,
            stops_with_process: false,
            accepts_forwarded_packets: true,
            shares_kube_proxy_chains: true,
            sets_route_localnet: false,
        }
    }

    fn failure_metrics(&self) -> FailureMetrics {
        FailureMetrics {
            full: &[FailureSeries::IptablesRestore],
            incremental: &[FailureSeries::IptablesRestore],
            cleanup: &[FailureSeries::IptablesRestore],
        }
    }

    /// Changes kernel settings and time-outs.
    fn prepare(&self) -> Result<(), SyncError> {
        let Self(settings) = self;
        // Opening it loads the module, without which its settings do not exist.
        let mut ipvs = Ipvs::open()?;
        let kernel = probe::KernelVersion::running();
        let files = Files::of_this_machine();
        for setting in kernel_settings::make(&files, kernel, settings.strict_arp)? {
            tracing::info!(setting = %setting.path().display(), "Changed a kernel setting that the ipvs mode depends on");
        }
        let seconds = |time: Option<Duration>| {
            let seconds = time.map_or(0, |time| time.as_secs());
            u32::try_from(seconds).unwrap_or(u32::MAX)
        };
        let timeouts = Timeouts {
            tcp: seconds(settings.tcp_timeout),
            tcp_fin: seconds(settings.tcp_fin_timeout),
            udp: seconds(settings.udp_timeout),
        };
        if timeouts != Timeouts::default() {
            ipvs.set_timeouts(timeouts)?;
        }
        Ok(())
    }

    /// Checks the scheduler, changes kernel settings and opens connections to the kernel.
    fn install(&self, _context: &InstallContext) -> Result<Installed, SyncError> {
        self.prepare()?;
        let Self(settings) = self;
        let mut ipvs = Ipvs::open()?;
        let scheduler = settings.scheduler()?;
        ipvs.require_scheduler(scheduler)?;
        let options = IpvsOptions {
            scheduler,
            available: ipvs.schedulers()?.into_iter().collect(),
            exclude_cidrs: settings.exclude_cidrs.clone(),
            local_fallback: settings.local_fallback,
        };
        let families = probe::supported_families();
        tracing::info!(scheduler = scheduler.as_str(), "Using IPVS");
        let mut detected = iptables_tools::detect(&families, "rules around IPVS")?;
        let mut backends = PerFamily { v4: None, v6: None };
        for family in families {
            let Some(tool) = detected.tools[family].take() else {
                continue;
            };
            let planner = IpvsPlanner::new(family, options.clone());
            let pair = Pair::new(planner, IpvsApplier::new(tool)?);
            backends[family] = Some(Box::new(pair) as Box<dyn Backend>);
        }
        // Chains that the iptables mode left in this ruleset went with the first full sync, because both modes share chains.
        let (mode, chains) = (
            self.clone(),
            OwnChains {
                backend: detected.backend,
                is_ours: is_own_chain,
            },
        );
        Ok(Installed::new(backends, move |patience| {
            take_over(&mode, Some(chains), patience)
        }))
    }

    /// Removes virtual servers, the device, sets and chains.
    fn remove(&self, removal: &Removal, steps: &mut RemovalSteps) {
        let is_ours = match &removal.kube_proxy_names {
            KubeProxyNames::All { .. } => Ok(true),
            KubeProxyNames::Marked => iptables::is_any_marked(),
            KubeProxyNames::InUseBy(_) => Ok(false),
        };
        steps.add(match is_ours {
            Ok(true) => leftovers::remove(removal.patience),
            Ok(false) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        });
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
        let observed = IpvsApplier::new(iptables_tools::tool(family)?)?.observe()?;
        let plan = self
            .planner(family)
            .full(desired, &observed, ObservedPolicy::Adopt);
        Ok(difference::ipvs::differences(&plan, &observed))
    }

    /// The virtual server that a packet meets, with its destinations.
    fn find_in_kernel(&self, trace: &Trace) -> Result<Vec<KernelObject>, SyncError> {
        let packet = &trace.packet;
        let key = VirtualServerKey {
            address: packet.destination,
            port: packet.port,
            protocol: packet.protocol,
        };
        let mut ipvs = Ipvs::open()?;
        let servers = ipvs.servers(Family::of(key.address))?;
        let Some(found) = servers.into_iter().find(|found| found.server.key == key) else {
            return Ok(Vec::new());
        };
        let place = format!("virtual server {key}");
        let mut objects = vec![KernelObject {
            place: place.clone(),
            text: IpvsOp::PutServer(found.server).to_string(),
        }];
        objects.extend(ipvs.destinations(&key)?.into_iter().map(|to| {
            let destination = IpvsDestination {
                address: to.address,
                weight: to.weight,
            };
            let put = IpvsOp::PutDestination(key, destination);
            KernelObject {
                place: place.clone(),
                text: format!("{put} ({} connections)", to.active),
            }
        }));
        Ok(objects)
    }

    /// Node ports have a virtual server on each of the node's addresses, so no single command shows them.
    fn inspect_command(
        &self,
        _family: Family,
        port: &ServicePort,
        frontend: Frontend,
    ) -> Option<String> {
        let at = frontend.address()?;
        let option = match port.protocol() {
            Protocol::Tcp => "--tcp-service",
            Protocol::Udp => "--udp-service",
            Protocol::Sctp => "--sctp-service",
        };
        Some(format!("ipvsadm --list --numeric {option} {at}"))
    }

    fn counts(&self) -> Result<Option<Box<dyn Counts>>, SyncError> {
        Ok(Some(Box::new(counts::IpvsCounts::open()?)))
    }

    fn kernel_modules(&self) -> &'static [&'static str] {
        &checks::MODULES
    }

    fn kernel_checks(&self, facts: &Facts) -> Vec<Finding> {
        let findings = [checks::modules(facts), checks::slow_port_reuse(facts)];
        findings.into_iter().flatten().collect()
    }

    fn leftover_checks(&self, facts: &Facts) -> Vec<Finding> {
        checks::leftover_device(facts).into_iter().collect()
    }

    fn migration(&self) -> Option<&'static Migration> {
        Some(&migration::MIGRATION)
    }
}
