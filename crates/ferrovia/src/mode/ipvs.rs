//! The ipvs mode, put together for this machine.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use ferrovia_core::desired::Desired;
use ferrovia_core::dialect::ipvs::{IpvsOp, Scheduler, VirtualServerKey};
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::plan::ipvs::{
    DEVICE, IpvsObserved, IpvsOptions, IpvsPlan, IpvsPlanner, IpvsStep, cleanup, is_own_chain,
};
use ferrovia_core::plan::{ObservedPolicy, Plan, Planner};
use ferrovia_host::ipvs::{Ipvs, IpvsApplier, Timeouts, settings};
use ferrovia_host::link::{self, DummyDevice};
use ferrovia_host::portals::Directory;
use ferrovia_host::sysctl::Files;
use ferrovia_host::{Applier, addr, iptables, probe};

use super::remove::{Steps, TakenOver};
use super::{Deaf, Installed};
use crate::config::IpvsSettings;
use crate::sync::backend::{Backend, Pair, SyncError, tell};

/// How often connections are looked at that a removal waits for.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// What the mode would write into an empty kernel, as text.
pub(super) fn plan(settings: &IpvsSettings, desired: &Desired) -> String {
    planner(settings, desired.family)
        .full(desired, &IpvsObserved::default(), ObservedPolicy::Adopt)
        .to_string()
}

/// A planner for a kernel that has every scheduler.
pub(super) fn planner(settings: &IpvsSettings, family: Family) -> IpvsPlanner {
    let options = IpvsOptions {
        scheduler: scheduler(settings).unwrap_or_default(),
        exclude_cidrs: settings.exclude_cidrs.clone(),
        local_fallback: settings.local_fallback,
        ..IpvsOptions::default()
    };
    IpvsPlanner::new(family, options)
}

/// What is to be done once with full privileges: kernel settings and time-outs.
pub(super) fn prepare(settings: &IpvsSettings) -> Result<(), SyncError> {
    // Opening it loads the module, and without that there are no settings of it.
    let mut ipvs = Ipvs::open()?;
    let kernel = probe::KernelVersion::running();
    for setting in settings::make(&Files::of_this_machine(), kernel, settings.strict_arp)? {
        tracing::info!(setting = %setting.path().display(), "changed a kernel setting that the ipvs mode depends on");
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

/// Checks the scheduler, makes kernel settings and opens the ways into the kernel.
pub(super) fn install(settings: &IpvsSettings) -> Result<Installed, SyncError> {
    prepare(settings)?;
    let mut ipvs = Ipvs::open()?;
    let scheduler = scheduler(settings)?;
    ipvs.require_scheduler(scheduler)?;
    let options = IpvsOptions {
        scheduler,
        available: ipvs.schedulers()?.into_iter().collect(),
        exclude_cidrs: settings.exclude_cidrs.clone(),
        local_fallback: settings.local_fallback,
    };
    let families = probe::supported_families();
    tracing::info!(scheduler = scheduler.as_str(), "using IPVS");
    let mut detected = super::detect_tools(&families, "writing iptables rules round IPVS")?;
    let mut backends = PerFamily { v4: None, v6: None };
    for family in families {
        let Some(tool) = detected.tools[family].take() else {
            continue;
        };
        let planner = IpvsPlanner::new(family, options.clone());
        let pair = Pair::new(planner, IpvsApplier::new(tool)?);
        backends[family] = Some(Box::new(pair) as Box<dyn Backend>);
    }
    let backend = detected.backend;
    Ok(Installed {
        backends,
        listen: Box::new(|| Ok(Box::new(Deaf))),
        read: None,
        take_over: Box::new(move |_| take_over(backend)),
        proxies: Directory::default(),
        filled_sets: None,
    })
}

/// Removes what would be in force beside this mode: nftables tables, rules of the other iptables backend, and addresses of bound portals.
/// What the iptables mode left on this backend went with the first full sync, because both modes share chains.
fn take_over(backend: iptables::Backend) -> Result<TakenOver, SyncError> {
    let mut steps = Steps::default();
    steps.add(super::mark(backend));
    steps.add(super::nftables::remove(true));
    steps.add_chains(iptables::remove_leftovers_beside(backend, is_own_chain));
    steps.add(super::userspace::remove());
    steps.end()
}

/// Removes what this mode or a kube-proxy's left, and answers with what that was, in words. Chains that other modes have too stay.
///
/// Connections that go through a virtual server end with it, so it is waited for them, but not longer than `patience`. New ones do not
/// come: what another mode translates never gets as far as IPVS.
pub(super) fn remove(patience: Duration) -> Result<Vec<String>, SyncError> {
    // Without the device there is nothing of ours, and nobody's modules need to be loaded to find that out.
    if !has_device()? {
        return Ok(Vec::new());
    }
    let mut leftovers = Leftovers::read()?;
    let connections = leftovers.wait_for_connections(patience)?;
    if connections > 0 {
        tracing::warn!(
            connections,
            "removing virtual servers with connections, which end with them"
        );
    }
    leftovers.remove()
}

/// Whether the mode's device is there. With one of another kind by its name the mode cannot have run.
fn has_device() -> Result<bool, SyncError> {
    match DummyDevice::open(DEVICE)?.find() {
        Ok(number) => Ok(number.is_some()),
        Err(link::Error::Foreign { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What the mode left, of both families. All is read before anything is removed, because the device tells which servers are ours.
struct Leftovers {
    ipvs: Ipvs,
    families: Vec<(IpvsApplier, IpvsPlan)>,
}

impl Leftovers {
    fn read() -> Result<Self, SyncError> {
        let ipvs = Ipvs::open()?;
        let node: BTreeSet<IpAddr> = addr::local_addresses()?.into_iter().collect();
        let mut detected = iptables::detect(&probe::supported_families())?;
        let mut families = Vec::new();
        for family in Family::ALL {
            let Some(tool) = detected.tools[family].take() else {
                continue;
            };
            let mut applier = IpvsApplier::new(tool)?;
            let plan = cleanup(family, &applier.observe()?, &node);
            families.push((applier, plan));
        }
        Ok(Self { ipvs, families })
    }

    /// Waits until no connection is left, or for as long as it may. Answers with how many are.
    fn wait_for_connections(&mut self, patience: Duration) -> Result<u64, SyncError> {
        let begin = Instant::now();
        let mut is_told = false;
        loop {
            let left = patience.saturating_sub(begin.elapsed());
            let connections = self.connections()?;
            if connections == 0 || left.is_zero() {
                return Ok(connections);
            }
            if !std::mem::replace(&mut is_told, true) {
                tracing::info!(
                    connections,
                    at_most = ?patience,
                    "keeping the virtual servers of the ipvs mode for their connections; new ones do not go through them"
                );
            }
            thread::sleep(LOOK_AGAIN.min(left));
        }
    }

    fn connections(&mut self) -> Result<u64, SyncError> {
        let mut connections = 0;
        let servers: Vec<VirtualServerKey> = self.servers().collect();
        for server in servers {
            for to in self.ipvs.destinations(&server)? {
                connections += u64::from(to.active);
            }
        }
        Ok(connections)
    }

    /// The servers that go.
    fn servers(&self) -> impl Iterator<Item = VirtualServerKey> {
        let steps = self.families.iter().flat_map(|(_, plan)| &plan.steps);
        let ops = steps.filter_map(|step| match step {
            IpvsStep::Servers(ops) => Some(ops),
            _ => None,
        });
        ops.flatten().filter_map(|op| match op {
            IpvsOp::DeleteServer(key) => Some(*key),
            _ => None,
        })
    }

    fn remove(mut self) -> Result<Vec<String>, SyncError> {
        let servers = self.servers().count();
        for (applier, plan) in &mut self.families {
            tell(plan.notes());
            applier.apply(plan)?;
        }
        Ok(vec![format!(
            "{servers} virtual servers, the device {DEVICE}, and the chains and sets of the ipvs mode"
        )])
    }
}

/// The scheduler that is asked for, whether or not the kernel has it.
fn scheduler(settings: &IpvsSettings) -> Result<Scheduler, SyncError> {
    Scheduler::new(&settings.scheduler).ok_or_else(|| {
        let names = Scheduler::NAMES.join(", ");
        format!(
            "ipvs.scheduler: {:?} cannot be the name of a scheduler; Linux has {names}",
            settings.scheduler
        )
        .into()
    })
}
