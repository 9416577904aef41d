//! The doctor's checks of the iptables mode.

use super::DEFAULT;
use crate::inspect::doctor::Facts;
use crate::inspect::doctor::finding::{Area, Finding, In};

const KERNEL: In = In(Area::Kernel);

/// Whether its tools are there.
pub(super) fn kernel(facts: &Facts) -> Option<Finding> {
    let check = "kernel/iptables";
    Some(match facts.kernel.iptables.as_ref()? {
        Ok(tools) => KERNEL.ok(check, format!("the iptables mode has its tools: {tools}")),
        Err(lack) if facts.is_mode(&DEFAULT) => KERNEL.problem(
            check,
            format!("the iptables mode cannot work: {lack}"),
            "The mode writes its rules with these tools, so no Service works.",
            "Install iptables on the node or in the image, or use the nftables mode, which needs no tools.",
        ),
        Err(lack) => KERNEL.note(
            check,
            format!("the iptables mode is not possible here: {lack}"),
            "",
            "",
        ),
    })
}
