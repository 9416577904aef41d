//! The doctor's checks of the nftables mode.

use super::DEFAULT;
use crate::inspect::doctor::Facts;
use crate::inspect::doctor::finding::{Area, Finding, In, Severity};

/// Whether the kernel supports it. A problem if it is the mode or may be chosen, otherwise only good to know.
pub(super) fn kernel(facts: &Facts) -> Option<Finding> {
    let check = "kernel/nftables";
    let release = &facts.kernel.release;
    let severity = if facts.may_be(&DEFAULT) {
        Severity::Problem
    } else {
        Severity::Note
    };
    Some(match facts.kernel.nftables.as_ref()? {
        Ok(()) => In(Area::Kernel).ok(
            check,
            format!("Linux {release} has all that the nftables mode needs"),
        ),
        Err(lack) => In(Area::Kernel).finding(
            severity,
            check,
            format!("the nftables mode cannot work: {lack}"),
            "Without it no rule of the nftables mode can be written, and no Service works.",
            "Use a kernel with these options (modules may be in a package of their own), or set mode: iptables.",
        ),
    })
}

/// Our tables, while another mode is configured.
pub(super) fn leftover_tables(facts: &Facts) -> Option<Finding> {
    let mode = facts.mode?;
    (!facts.proxies.ours.is_empty()).then(|| {
        In(Area::Proxies).warning(
            "proxies/our-nftables",
            format!("there are rules of our nftables mode, but the mode is {}", mode.name()),
            "Both are in force until the new mode has taken over, which it does when it first writes.",
            "If Ferrovia has run in the new mode since, see its log; else start it, or: ferrovia cleanup",
        )
    })
}
