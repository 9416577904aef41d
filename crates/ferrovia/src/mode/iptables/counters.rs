//! What the appliers and the kernel count for the metrics.

use ferrovia_core::dialect::iptables::TableName;
use ferrovia_core::family::Family;
use ferrovia_host::iptables::{AcctCounter, AcctCounters, LockUsage, Rules, RulesWritten};

use crate::serve::metrics::Metrics;

/// What one family's applier counts.
pub(super) struct ApplierCounters {
    pub(super) family: Family,
    pub(super) rules: RulesWritten,
    /// Only the legacy tools have one.
    pub(super) lock: Option<LockUsage>,
}

impl ApplierCounters {
    pub(super) fn report(&self, metrics: &Metrics) {
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

/// Reads the kernel's packet counters. If another process removed them, they come back with the next full sync.
pub(super) fn report_packets(usable: &[AcctCounter], metrics: &Metrics) {
    let mut counters = match AcctCounters::open() {
        Ok(counters) => counters,
        Err(error) => {
            tracing::debug!(%error, "Failed to read the kernel's packet counters");
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

/// The counters that rules may use. Without them only the metrics are missing.
pub(super) fn usable_counters() -> Vec<AcctCounter> {
    let mut counters = match AcctCounters::open() {
        Ok(counters) => counters,
        Err(error) => {
            tracing::debug!(%error, "Failed to open the kernel's packet counters");
            return Vec::new();
        }
    };
    let mut usable = vec![AcctCounter::Invalid, AcctCounter::Localhost];
    usable.retain(|counter| match counters.ensure(*counter) {
        Ok(()) => true,
        Err(error) => {
            tracing::debug!(?counter, %error, "This kernel has no such packet counter; rules do not use it");
            false
        }
    });
    usable
}
