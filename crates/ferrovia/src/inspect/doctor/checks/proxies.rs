//! Who else does our work, or did.

use super::super::facts::Facts;
use super::super::finding::{Area, Finding, In};
use super::some_of;
use crate::mode;

const PROXIES: In = In(Area::Proxies);
/// Programs that send connections to Services, by the names of their processes.
const OTHERS: [(&str, &str); 3] = [
    (
        "cilium-agent",
        "Cilium, which can be set to replace kube-proxy",
    ),
    (
        "kube-router",
        "kube-router, which can be set to be a service proxy",
    ),
    ("antrea-agent", "Antrea, whose AntreaProxy does the same"),
];

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let findings = [
        owner(facts),
        two_running(facts),
        others(facts),
        kube_proxy_tables(facts),
        iptables_chains(facts),
        chains_without_tool(facts),
    ];
    let of_modes = mode::ALL.into_iter().filter(|mode| !facts.is_mode(*mode));
    let leftovers = of_modes.flat_map(|mode| mode.leftover_checks(facts));
    let findings = findings.into_iter().flatten();
    findings.chain(leftovers).chain(mix(facts)).collect()
}

fn owner(facts: &Facts) -> Option<Finding> {
    let owner = facts.proxies.owner.as_ref()?;
    Some(PROXIES.ok(
        "proxies/owner",
        format!("one proxy writes the rules: {owner}"),
    ))
}

fn two_running(facts: &Facts) -> Option<Finding> {
    let is_proxy = |name: &str| matches!(name, "kube-proxy" | "ferrovia");
    let running: Vec<String> = facts
        .processes
        .iter()
        .filter(|process| is_proxy(&process.name))
        .map(ToString::to_string)
        .collect();
    let mut processes = facts.processes.iter();
    let is_kube_proxy = processes.any(|process| process.name == "kube-proxy");
    if facts.proxies.owner.is_some() && !is_kube_proxy && running.len() > 1 {
        return Some(PROXIES.note(
            "proxies/two-running",
            format!("more than one Ferrovia runs: {}", some_of(&running, 4)),
            "Only the owner writes; the others wait until it exits, and are not ready until then.",
            "Nothing during an update. Else stop those that are not needed.",
        ));
    }
    (running.len() > 1).then(|| {
        PROXIES.problem(
            "proxies/two-running",
            format!("two proxies run at once: {}", some_of(&running, 4)),
            "Each takes the other's rules for leftovers and removes or repairs them, again and again; which of the two decides about a connection is chance.",
            "Stop one of them, such as the DaemonSet of kube-proxy: kubectl -n kube-system delete daemonset kube-proxy",
        )
    })
}

fn others(facts: &Facts) -> Option<Finding> {
    let mut processes = facts.processes.iter();
    let found = processes.find_map(|process| {
        let mut others = OTHERS.iter();
        others.find(|(name, _)| *name == process.name)
    });
    found.map(|(_, what)| {
        PROXIES.note(
            "proxies/other-program",
            format!("{what}, runs here"),
            "If it does, connections to Services may never reach our rules.",
            "Let one of the two do it: switch its own service proxy off, or do without this one.",
        )
    })
}

fn kube_proxy_tables(facts: &Facts) -> Option<Finding> {
    let check = "proxies/kube-proxy-nftables";
    let proxies = &facts.proxies;
    if proxies.kube_proxy_tables.is_empty() {
        return None;
    }
    let families: Vec<_> = proxies
        .kube_proxy_tables
        .iter()
        .map(ToString::to_string)
        .collect();
    let what = format!(
        "there are nftables rules of a kube-proxy ({})",
        families.join(", ")
    );
    Some(if proxies.ours.is_empty() {
        PROXIES.note(
            check,
            what,
            "They work as long as they are there. The nftables mode replaces them in the step that writes its own.",
            "",
        )
    } else {
        PROXIES.problem(
            check,
            what,
            "Ours are there too. Both decide about the same connections, and theirs are of the moment when that kube-proxy ended.",
            "See that no kube-proxy runs here, then: ferrovia cleanup --kube-proxy, and start Ferrovia again",
        )
    })
}

fn iptables_chains(facts: &Facts) -> Option<Finding> {
    let check = "proxies/kube-proxy-iptables";
    let proxies = &facts.proxies;
    let mode = facts.mode.map(|mode| mode.properties());
    let are_ours = mode.is_some_and(|mode| mode.shares_kube_proxy_chains);
    if proxies.iptables_chains.is_empty() || are_ours {
        return None;
    }
    let tools: Vec<_> = proxies
        .iptables_chains
        .iter()
        .map(|(tool, chains)| format!("{chains} chains in {tool}"))
        .collect();
    let what = format!(
        "there are iptables rules of a kube-proxy: {}",
        some_of(&tools, 4)
    );
    Some(if proxies.ours.is_empty() {
        PROXIES.note(
            check,
            what,
            "They work as long as they are there. The nftables mode removes them once its own are in force.",
            "",
        )
    } else {
        PROXIES.problem(
            check,
            what,
            "Ours are in force too. Both decide about the same connections, and theirs may lead to pods that are gone.",
            "See that no kube-proxy runs here, then: ferrovia cleanup --kube-proxy, and start Ferrovia again",
        )
    })
}

/// These stay when a proxy takes over, and nothing but this says so where there are no tools.
fn chains_without_tool(facts: &Facts) -> Option<Finding> {
    let chains = &facts.proxies.chains_without_tool;
    if chains.is_empty() {
        return None;
    }
    let tools: Vec<_> = chains
        .iter()
        .map(|(tool, chains)| format!("{chains} chains in {tool}"))
        .collect();
    Some(PROXIES.problem(
        "proxies/kube-proxy-legacy",
        format!("there are rules of a kube-proxy that cannot be removed from here: {}", some_of(&tools, 2)),
        "They are in force beside those of any other proxy, and forward connections to Services and pods that may be gone. Only the iptables-legacy tools can remove them, and these are not on PATH.",
        "Where the iptables-legacy tools are: ferrovia cleanup --kube-proxy --force, and start Ferrovia again. Or reboot the node",
    ))
}

fn mix(facts: &Facts) -> Option<Finding> {
    let rulesets = &facts.proxies.rulesets;
    if rulesets.len() < 2 {
        return None;
    }
    let tools: Vec<String> = rulesets.values().flatten().cloned().collect();
    Some(PROXIES.warning(
        "proxies/iptables-mix",
        format!("both of the kernel's iptables rulesets are in use: {}", some_of(&tools, 4)),
        "Packets meet both, in an order that nobody has planned, and each tool shows only its own half.",
        "Find out who writes the legacy one (often an image with old tools), let it use iptables-nft, then flush the legacy rules or reboot.",
    ))
}

#[cfg(test)]
mod tests {
    use ferrovia_core::family::Family;
    use ferrovia_host::survey::chains::Ruleset;
    use ferrovia_host::survey::links::Link;
    use ferrovia_host::survey::processes::Process;

    use super::super::super::finding::Severity;
    use super::super::settings::SERVICE_DEVICE;
    use super::super::tests::found;
    use super::*;

    fn running(names: &[&str]) -> Facts {
        let process = |(pid, name): (usize, &&str)| Process {
            pid: pid as u32 + 100,
            name: (*name).to_owned(),
        };
        Facts {
            processes: names.iter().enumerate().map(process).collect(),
            ..Facts::default()
        }
    }

    fn severity(facts: &Facts, name: &str) -> Option<Severity> {
        found(&check(facts), name).map(|finding| finding.severity)
    }

    #[test]
    fn two_proxies_are_one_too_many() {
        let name = "proxies/two-running";
        assert_eq!(severity(&running(&["kubelet", "kube-proxy"]), name), None);
        let both = running(&["ferrovia", "kube-proxy"]);
        assert_eq!(severity(&both, name), Some(Severity::Problem));
        let cilium = running(&["cilium-agent"]);
        assert_eq!(
            severity(&cilium, "proxies/other-program"),
            Some(Severity::Note)
        );
    }

    #[test]
    fn a_second_ferrovia_that_waits_is_no_fight() {
        let name = "proxies/two-running";
        let mut facts = running(&["ferrovia", "ferrovia"]);
        assert_eq!(
            severity(&facts, name),
            Some(Severity::Problem),
            "older ones"
        );
        facts.proxies.owner = Some("ferrovia 0.1.0, pid 100".to_owned());
        assert_eq!(severity(&facts, name), Some(Severity::Note));
        assert_eq!(severity(&facts, "proxies/owner"), Some(Severity::Ok));
        let mut facts = running(&["ferrovia", "kube-proxy"]);
        facts.proxies.owner = Some("ferrovia 0.1.0, pid 100".to_owned());
        assert_eq!(severity(&facts, name), Some(Severity::Problem));
    }

    #[test]
    fn legacy_rules_without_their_tool_are_a_problem_in_every_mode() {
        let mut facts = Facts::default();
        facts.proxies.chains_without_tool = [("iptables-legacy".to_owned(), 12)].into();
        for mode in [None, mode::find("nftables"), mode::find("iptables")] {
            facts.mode = mode;
            let severity = severity(&facts, "proxies/kube-proxy-legacy");
            assert_eq!(severity, Some(Severity::Problem));
        }
    }

    #[test]
    fn rules_of_a_predecessor_are_a_problem_beside_ours_only() {
        let mut facts = Facts::default();
        facts.proxies.kube_proxy_tables = vec![Family::V4];
        facts.proxies.iptables_chains = [("iptables-nft".to_owned(), 12)].into();
        let both = ["proxies/kube-proxy-nftables", "proxies/kube-proxy-iptables"];
        for name in both {
            assert_eq!(severity(&facts, name), Some(Severity::Note));
        }
        facts.proxies.ours = vec![Family::V4];
        for name in both {
            assert_eq!(severity(&facts, name), Some(Severity::Problem));
        }
        facts.mode = mode::find("iptables");
        assert_eq!(severity(&facts, "proxies/kube-proxy-iptables"), None);
        assert_eq!(
            severity(&facts, "proxies/our-nftables"),
            Some(Severity::Warning)
        );
    }

    #[test]
    fn the_device_of_another_mode_is_a_leftover() {
        let name = "proxies/ipvs-device";
        let device = Link {
            name: SERVICE_DEVICE.into(),
            kind: "dummy".into(),
            mtu: 1500,
            is_up: false,
            is_loopback: false,
            has_master: false,
        };
        let mut facts = Facts {
            links: vec![device],
            ..Facts::default()
        };
        assert_eq!(severity(&facts, name), None, "a kube-proxy may use it");
        facts.mode = mode::find("nftables");
        assert_eq!(severity(&facts, name), Some(Severity::Warning));
        facts.mode = mode::find("ipvs");
        assert_eq!(severity(&facts, name), None);
    }

    #[test]
    fn rules_in_both_rulesets_are_told() {
        let mut facts = Facts::default();
        let nft = (Ruleset::Nftables, vec!["iptables-nft".to_owned()]);
        let legacy = (Ruleset::Legacy, vec!["iptables-legacy".to_owned()]);
        facts.proxies.rulesets = [nft.clone()].into();
        assert_eq!(severity(&facts, "proxies/iptables-mix"), None);
        facts.proxies.rulesets = [nft, legacy].into();
        assert_eq!(
            severity(&facts, "proxies/iptables-mix"),
            Some(Severity::Warning)
        );
    }
}
