//! The iptables tools, for the modes that write rules with them.

use ferrovia_core::family::Family;
use ferrovia_core::plan::iptables::IptablesObserved;
use ferrovia_core::trace::Trace;
use ferrovia_core::trace::in_kernel::{self, KernelObject};
use ferrovia_host::Applier as _;
use ferrovia_host::iptables::{self, Detected, IptablesApplier, Tool};

use crate::sync::backend::SyncError;

/// Finds the tools for a mode that writes rules with them, and logs which these are.
pub(super) fn detect(families: &[Family], purpose: &'static str) -> Result<Detected, SyncError> {
    let detected = iptables::detect(families)?;
    tracing::info!(backend = %detected.backend, reason = detected.reason, purpose, "Found the iptables tools");
    for warning in &detected.warnings {
        tracing::warn!(warning, "The iptables tools may not be the right ones");
    }
    Ok(detected)
}

/// The tool of one family, for commands that only read.
pub(super) fn tool(family: Family) -> Result<Tool, SyncError> {
    let tool = iptables::detect(&[family])?.tools[family].take();
    Ok(tool.ok_or_else(|| format!("there are no {family} iptables tools"))?)
}

/// The rules of one family.
pub(super) fn observe(family: Family) -> Result<IptablesObserved, SyncError> {
    Ok(IptablesApplier::new(tool(family)?).observe()?)
}

/// The rules that a packet meets.
pub(super) fn find_rules(trace: &Trace) -> Result<Vec<KernelObject>, SyncError> {
    let observed = observe(Family::of(trace.packet.destination))?;
    Ok(in_kernel::iptables_objects(trace, &observed.save))
}
