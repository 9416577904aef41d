//! The iptables mode, put together for this machine.

use std::time::Duration;

use ferrovia_core::desired::Desired;
use ferrovia_core::dialect::iptables::TableName;
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::plan::iptables::{
    IptablesObserved, IptablesOptions, IptablesPlanner, is_own_chain,
};
use ferrovia_core::plan::{ObservedPolicy, Planner};
use ferrovia_host::iptables::{
    self, AcctCounter, AcctCounters, IptablesApplier, LockUsage, Rules, RulesWritten,
};
use ferrovia_host::portals::Directory;
use ferrovia_host::probe;

use super::remove::{Steps, TakenOver};
use super::{Deaf, Installed};
use crate::config::Config;
use crate::serve::metrics::Metrics;
use crate::sync::backend::{Backend, Pair, SyncError};

/// What is asked of the iptables mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IptablesSettings {
    /// Node ports answer on 127.0.0.1 too. Only to be set where the addresses node ports answer on include it.
    pub localhost_node_ports: bool,
}

impl Default for IptablesSettings {
    fn default() -> Self {
        Self {
            localhost_node_ports: true,
        }
    }
}

impl IptablesSettings {
    /// What the configuration asks for.
    pub fn of(config: &Config) -> Self {
        Self {
            localhost_node_ports: config.localhost_node_ports
                && config.settings.node_ports.cover_loopback(Family::V4),
        }
    }

    pub(super) fn options(self) -> IptablesOptions {
        IptablesOptions {
            localhost_node_ports: self.localhost_node_ports,
            ..IptablesOptions::default()
        }
    }
}

/// A planner that knows nothing of this machine.
pub(super) fn planner(settings: IptablesSettings, family: Family) -> IptablesPlanner {
    IptablesPlanner::new(family, settings.options())
}

/// What the mode would write into an empty kernel, as text.
pub(super) fn plan(settings: IptablesSettings, desired: &Desired) -> String {
    planner(settings, desired.family)
        .full(desired, &IptablesObserved::default(), ObservedPolicy::Adopt)
        .to_string()
}

/// Finds the tools and what the kernel can count.
pub(super) fn install(settings: IptablesSettings) -> Result<Installed, SyncError> {
    let families = probe::supported_families();
    let mut detected = super::detect_tools(&families, "writing iptables rules")?;
    let counters = usable_counters();
    let options = IptablesOptions {
        drop_invalid: !iptables::is_liberal(),
        count_invalid: counters.contains(&AcctCounter::Invalid),
        count_localhost: counters.contains(&AcctCounter::Localhost),
        commits: detected.backend.commits(),
        ..settings.options()
    };
    let mut backends = PerFamily { v4: None, v6: None };
    let mut figures = Vec::new();
    for family in families {
        let Some(tool) = detected.tools[family].take() else {
            continue;
        };
        let mut applier = IptablesApplier::new(tool).with_counters(&counters);
        if settings.localhost_node_ports {
            applier = applier.with_localhost_node_ports();
        }
        figures.push(Figures {
            family,
            rules: applier.rules_written(),
            lock: (detected.backend == iptables::Backend::Legacy).then(|| applier.lock_usage()),
        });
        let pair = Pair::new(IptablesPlanner::new(family, options), applier);
        backends[family] = Some(Box::new(pair) as Box<dyn Backend>);
    }
    Ok(Installed {
        backends,
        proxies: Directory::default(),
        filled_sets: None,
        listen: Box::new(|| Ok(Box::new(Deaf))),
        read: Some(Box::new(move |metrics| {
            figures.iter().for_each(|figures| figures.tell(metrics));
            tell_packets(&counters, metrics);
        })),
        take_over: Box::new(move |patience| take_over(detected.backend, patience)),
    })
}

/// Removes what would be in force beside this mode's rules: our own and kube-proxy's nftables, and kube-proxy's rules of the other iptables
/// backend and of other modes. To be called when this mode's rules are in force.
///
/// The backend is the one they were written to. It must not be found out anew: a kubelet that has come up since may have named the other one,
/// and ours would be taken for a predecessor's.
fn take_over(backend: iptables::Backend, patience: Duration) -> Result<TakenOver, SyncError> {
    let mut steps = Steps::default();
    steps.add(super::mark(backend));
    steps.add(super::nftables::remove(true));
    steps.add(super::ipvs::remove(patience));
    steps.add_chains(iptables::remove_leftovers_beside(backend, is_own_chain));
    steps.add(super::userspace::remove());
    steps.end()
}

/// What one family's applier counts.
struct Figures {
    family: Family,
    rules: RulesWritten,
    /// Only the legacy tools have one.
    lock: Option<LockUsage>,
}

impl Figures {
    fn tell(&self, metrics: &Metrics) {
        if let Some(Rules { in_force, written }) = self.rules.get() {
            for (table, in_force, written) in [
                (TableName::Filter, in_force.filter, written.filter),
                (TableName::Nat, in_force.nat, written.nat),
            ] {
                metrics.iptables_rules(self.family, table.as_str(), in_force, written);
            }
        }
        if let Some(lock) = &self.lock {
            let usage = lock.get();
            metrics.iptables_lock(self.family, usage.times, usage.held, usage.waited);
        }
    }
}

/// Reads the kernel's counters for whoever scrapes. They are gone if somebody removed them, and come back with the next full sync.
fn tell_packets(usable: &[AcctCounter], metrics: &Metrics) {
    let mut counters = match AcctCounters::open() {
        Ok(counters) => counters,
        Err(error) => {
            tracing::debug!(%error, "the kernel's packet counters cannot be read");
            return;
        }
    };
    let mut packets = |counter: AcctCounter| {
        let is_used = usable.contains(&counter);
        is_used.then(|| counters.packets(counter).ok()).flatten()
    };
    metrics.iptables_packets(
        packets(AcctCounter::Invalid),
        packets(AcctCounter::Localhost),
    );
}

/// The counters that rules may count into. A kernel without them is no worse, only quieter.
fn usable_counters() -> Vec<AcctCounter> {
    let mut counters = match AcctCounters::open() {
        Ok(counters) => counters,
        Err(error) => {
            tracing::debug!(%error, "the kernel's packet counters cannot be reached");
            return Vec::new();
        }
    };
    let mut usable = vec![AcctCounter::Invalid, AcctCounter::Localhost];
    usable.retain(|counter| match counters.ensure(*counter) {
        Ok(()) => true,
        Err(error) => {
            tracing::debug!(?counter, %error, "this kernel has no such packet counter; rules do without");
            false
        }
    });
    usable
}
