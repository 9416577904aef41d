//! What this kernel can do, mode by mode.

use ferrovia_host::survey::modules::ModulePresence;

use super::super::facts::Facts;
use super::super::finding::{Area, Finding, In, Severity};
use crate::config::ModeName;

const KERNEL: In = In(Area::Kernel);
/// Kernels of these versions answer a reused port of an ipvs connection with a delay of a second.
const SLOW_REUSE: std::ops::Range<(u32, u32)> = (4, 1)..(5, 9);
/// Before this, the kernel cannot be asked for some flows only.
const FLOW_FILTERS: (u32, u32) = (5, 8);

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let findings = [
        nftables(facts),
        iptables(facts),
        ipvs(facts),
        slow_reuse(facts),
        flow_filters(facts),
    ];
    findings.into_iter().flatten().collect()
}

fn nftables(facts: &Facts) -> Option<Finding> {
    let check = "kernel/nftables";
    let release = &facts.kernel.release;
    Some(match facts.kernel.nftables.as_ref()? {
        Ok(()) => KERNEL.ok(
            check,
            format!("Linux {release} has all that the nftables mode needs"),
        ),
        Err(lack) => KERNEL.finding(
            needed_by(facts, ModeName::Nftables),
            check,
            format!("the nftables mode cannot work: {lack}"),
            "Without it no rule of the nftables mode can be written, and no Service works.",
            "Use a kernel with these options (modules may be in a package of their own), or set mode: iptables.",
        ),
    })
}

fn iptables(facts: &Facts) -> Option<Finding> {
    let check = "kernel/iptables";
    Some(match facts.kernel.iptables.as_ref()? {
        Ok(tools) => KERNEL.ok(check, format!("the iptables mode has its tools: {tools}")),
        Err(lack) if facts.mode == Some(ModeName::Iptables) => KERNEL.problem(
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

fn ipvs(facts: &Facts) -> Option<Finding> {
    let check = "kernel/ipvs";
    let modules = &facts.kernel.modules;
    let missing: Vec<&str> = modules
        .iter()
        .filter(|(_, presence)| **presence == ModulePresence::Missing)
        .map(|(name, _)| *name)
        .collect();
    let is_wanted = facts.mode == Some(ModeName::Ipvs);
    if missing.is_empty() {
        let usable =
            |presence| matches!(presence, ModulePresence::There | ModulePresence::Loadable);
        let all = !modules.is_empty() && modules.values().all(|presence| usable(*presence));
        return (all && is_wanted).then(|| KERNEL.ok(check, "the kernel has what ipvs needs"));
    }
    let missing = missing.join(", ");
    Some(if is_wanted {
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

/// A mode that is asked for and cannot work is a problem; one that is not only closes a way.
fn needed_by(facts: &Facts, mode: ModeName) -> Severity {
    if facts.may_be(mode) {
        Severity::Problem
    } else {
        Severity::Note
    }
}

fn slow_reuse(facts: &Facts) -> Option<Finding> {
    let is_ipvs = facts.mode == Some(ModeName::Ipvs);
    let version = version(&facts.kernel.release)?;
    (is_ipvs && SLOW_REUSE.contains(&version)).then(|| {
        KERNEL.warning(
            "kernel/ipvs-port-reuse",
            format!("Linux {} handles reused ports badly in ipvs", facts.kernel.release),
            "A client that uses a port again within two minutes is delayed by a second, or sent to an endpoint that has gone.",
            "Use Linux 5.9 or newer, or the nftables mode.",
        )
    })
}

fn flow_filters(facts: &Facts) -> Option<Finding> {
    let version = version(&facts.kernel.release)?;
    (version < FLOW_FILTERS).then(|| {
        KERNEL.note(
            "kernel/flow-filters",
            format!("Linux {} cannot be asked for single UDP flows", facts.kernel.release),
            "When a UDP endpoint goes, the whole table of connections has to be read, which takes processor time where it is large.",
            "Use Linux 5.8 or newer.",
        )
    })
}

/// Major and minor of a release such as `6.1.0-13-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;

    fn facts(mode: Option<ModeName>) -> Facts {
        let mut facts = Facts {
            mode,
            ..Facts::default()
        };
        facts.kernel.release = "6.1.0-13-amd64".into();
        facts.kernel.nftables = Some(Ok(()));
        facts
    }

    #[test]
    fn a_mode_that_cannot_work_is_a_problem_only_if_it_is_wanted() {
        let severity = |mode, wanted: &str| {
            let mut facts = facts(mode);
            facts.kernel.nftables = Some(Err("this kernel lacks CONFIG_NFT_FIB_IPV6".into()));
            facts.kernel.iptables = Some(Err("none was found on PATH".into()));
            facts.kernel.modules = [
                ("ip_vs", ModulePresence::Missing),
                ("dummy", ModulePresence::There),
            ]
            .into();
            found(&check(&facts), wanted).unwrap().severity
        };
        use ModeName::{Iptables, Ipvs, Nftables};
        assert_eq!(severity(None, "kernel/nftables"), Severity::Problem);
        assert_eq!(
            severity(Some(Nftables), "kernel/nftables"),
            Severity::Problem
        );
        assert_eq!(severity(Some(Iptables), "kernel/nftables"), Severity::Note);
        assert_eq!(
            severity(Some(Iptables), "kernel/iptables"),
            Severity::Problem
        );
        assert_eq!(severity(None, "kernel/iptables"), Severity::Note);
        assert_eq!(severity(Some(Ipvs), "kernel/ipvs"), Severity::Problem);
        assert_eq!(severity(None, "kernel/ipvs"), Severity::Note);
    }

    #[test]
    fn what_cannot_be_seen_is_not_judged() {
        let mut facts = facts(Some(ModeName::Ipvs));
        facts.kernel.nftables = None;
        facts.kernel.modules = [("ip_vs", ModulePresence::Unknown)].into();
        assert_eq!(check(&facts), []);
    }

    #[test]
    fn old_kernels_have_their_traps() {
        let mut facts = facts(Some(ModeName::Ipvs));
        facts.kernel.release = "5.4.0-1".into();
        let findings = check(&facts);
        assert!(found(&findings, "kernel/ipvs-port-reuse").is_some());
        assert!(found(&findings, "kernel/flow-filters").is_some());
        facts.kernel.release = "5.15.0".into();
        assert_eq!(check(&facts).len(), 1, "nothing but that it works");
    }
}
