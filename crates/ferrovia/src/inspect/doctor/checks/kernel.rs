//! What this kernel supports, mode by mode.

use super::super::facts::Facts;
use super::super::finding::{Area, Finding, In};
use crate::mode;

const KERNEL: In = In(Area::Kernel);
/// Before this, the kernel cannot be asked for some flows only.
const FLOW_FILTERS: (u32, u32) = (5, 8);

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let of_modes = mode::ALL.into_iter();
    let of_modes = of_modes.flat_map(|mode| mode.kernel_checks(facts));
    of_modes.chain(flow_filters(facts)).collect()
}

fn flow_filters(facts: &Facts) -> Option<Finding> {
    let version = facts.kernel.version()?;
    (version < FLOW_FILTERS).then(|| {
        KERNEL.note(
            "kernel/flow-filters",
            format!("Linux {} cannot be asked for single UDP flows", facts.kernel.release),
            "When a UDP endpoint goes, the whole table of connections has to be read, which takes processor time where it is large.",
            "Use Linux 5.8 or newer.",
        )
    })
}

#[cfg(test)]
mod tests {
    use ferrovia_host::survey::modules::ModulePresence;

    use super::super::super::finding::Severity;
    use super::super::tests::found;
    use super::*;
    use crate::mode::ModeRef;

    fn named(mode: &str) -> ModeRef {
        mode::find(mode).unwrap()
    }

    fn facts(mode: Option<&str>) -> Facts {
        let mut facts = Facts {
            mode: mode.map(named),
            ..Facts::default()
        };
        facts.kernel.release = "6.1.0-13-amd64".into();
        facts.kernel.nftables = Some(Ok(()));
        facts
    }

    #[test]
    fn a_mode_that_is_not_supported_is_a_problem_only_if_it_is_used() {
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
        assert_eq!(severity(None, "kernel/nftables"), Severity::Problem);
        assert_eq!(
            severity(Some("nftables"), "kernel/nftables"),
            Severity::Problem
        );
        assert_eq!(
            severity(Some("iptables"), "kernel/nftables"),
            Severity::Note
        );
        assert_eq!(
            severity(Some("iptables"), "kernel/iptables"),
            Severity::Problem
        );
        assert_eq!(severity(None, "kernel/iptables"), Severity::Note);
        assert_eq!(severity(Some("ipvs"), "kernel/ipvs"), Severity::Problem);
        assert_eq!(severity(None, "kernel/ipvs"), Severity::Note);
    }

    #[test]
    fn what_cannot_be_seen_is_not_judged() {
        let mut facts = facts(Some("ipvs"));
        facts.kernel.nftables = None;
        facts.kernel.modules = [("ip_vs", ModulePresence::Unknown)].into();
        assert_eq!(check(&facts), []);
    }

    #[test]
    fn old_kernels_have_their_traps() {
        let mut facts = facts(Some("ipvs"));
        facts.kernel.release = "5.4.0-1".into();
        let findings = check(&facts);
        assert!(found(&findings, "kernel/ipvs-port-reuse").is_some());
        assert!(found(&findings, "kernel/flow-filters").is_some());
        facts.kernel.release = "5.15.0".into();
        assert_eq!(check(&facts).len(), 1, "nothing but that it works");
    }
}
