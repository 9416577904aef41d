//! The doctor's checks of the ipvs mode.

use ferrovia_core::plan::ipvs::DEVICE;
use ferrovia_host::survey::modules::ModulePresence;

use super::DEFAULT;
use crate::inspect::doctor::Facts;
use crate::inspect::doctor::finding::{Area, Finding, In};

const KERNEL: In = In(Area::Kernel);
/// The parts of the kernel that the mode needs.
pub(super) const MODULES: [&str; 5] = ["ip_vs", "ip_vs_rr", "ip_set", "xt_set", "dummy"];
/// Kernels of these versions answer a reused port with a delay of a second.
const SLOW_REUSE: std::ops::Range<(u32, u32)> = (4, 1)..(5, 9);

/// Whether the kernel has them.
pub(super) fn modules(facts: &Facts) -> Option<Finding> {
    let check = "kernel/ipvs";
    let modules = facts.kernel.modules.iter();
    let modules: Vec<_> = modules.filter(|(name, _)| MODULES.contains(name)).collect();
    let missing: Vec<&str> = modules
        .iter()
        .filter(|(_, presence)| **presence == ModulePresence::Missing)
        .map(|(name, _)| **name)
        .collect();
    let is_used = facts.is_mode(&DEFAULT);
    if missing.is_empty() {
        let usable =
            |presence| matches!(presence, ModulePresence::There | ModulePresence::Loadable);
        let all = !modules.is_empty() && modules.iter().all(|(_, presence)| usable(**presence));
        return (all && is_used).then(|| KERNEL.ok(check, "the kernel has what ipvs needs"));
    }
    let missing = missing.join(", ");
    Some(if is_used {
        KERNEL.problem(
            check,
            format!("the ipvs mode cannot work: this kernel lacks {missing}"),
            "The mode is made of these parts of the kernel, so no Service works.",
            "Use a kernel that has them, or the nftables mode.",
        )
    } else {
        KERNEL.note(
            check,
            format!("the ipvs mode is not possible here: this kernel lacks {missing}"),
            "",
            "",
        )
    })
}

/// A fault of old kernels.
pub(super) fn slow_port_reuse(facts: &Facts) -> Option<Finding> {
    let version = facts.kernel.version()?;
    (facts.is_mode(&DEFAULT) && SLOW_REUSE.contains(&version)).then(|| {
        KERNEL.warning(
            "kernel/ipvs-port-reuse",
            format!("Linux {} handles reused ports badly in ipvs", facts.kernel.release),
            "A client that uses a port again within two minutes is delayed by a second, or sent to an endpoint that has gone.",
            "Use Linux 5.9 or newer, or the nftables mode.",
        )
    })
}

/// The device, although the node runs another mode of ours. Without a known mode a kube-proxy may use it.
pub(super) fn leftover_device(facts: &Facts) -> Option<Finding> {
    let mut links = facts.links.iter();
    let is_there = links.any(|link| link.name == DEVICE);
    let may_be_used = facts.mode.is_none() && facts.proxies.ours.is_empty();
    (is_there && !may_be_used).then(|| {
        In(Area::Proxies).warning(
            "proxies/ipvs-device",
            format!("the device {DEVICE} of the ipvs mode is still there"),
            "The addresses on it are the node's own as far as the kernel is concerned: other nodes' traffic to them may end here, and ipvs may still answer.",
            "ferrovia cleanup --kube-proxy, which leaves virtual servers of others alone",
        )
    })
}
