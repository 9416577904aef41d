use ferrovia_core::family::Family;
use ferrovia_host::survey::chains::{RuleEffects, Ruleset, of_saved};
use ferrovia_host::survey::processes::Process;

use super::super::tests::found;
use super::*;

fn chain(table: &str, name: &str, point: HookPoint, priority: i32) -> HookedChain {
    HookedChain {
        ruleset: Ruleset::Nftables,
        families: vec![Family::V4],
        table: table.into(),
        name: name.into(),
        point,
        priority,
        is_nat: false,
        refuses_rest: false,
        effects: RuleEffects::default(),
        rules: 1,
        leads_to: BTreeSet::new(),
    }
}

fn findings(chains: Vec<HookedChain>) -> Vec<Finding> {
    check(&Facts {
        chains,
        ..Facts::default()
    })
}

fn severity(chains: Vec<HookedChain>, name: &str) -> Option<Severity> {
    found(&findings(chains), name).map(|finding| finding.severity)
}

#[test]
fn dockers_forward_policy_is_a_warning_that_names_docker() {
    let saved = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n:DOCKER-USER - [0:0]\n\
                 -A FORWARD -j DOCKER-USER\n-A DOCKER-USER -j RETURN\nCOMMIT\n";
    let all = findings(of_saved(Family::V4, saved));
    let forward = found(&all, "rules/forward").unwrap();
    assert_eq!(forward.severity, Severity::Warning);
    assert!(
        forward
            .what
            .contains("chain FORWARD of iptables-legacy filter (rules of Docker)"),
        "{}",
        forward.what
    );
}

#[test]
fn a_network_that_has_rules_there_is_trusted_to_let_pods_through() {
    let saved =
        "*filter\n:FORWARD DROP [0:0]\n:cali-FORWARD - [0:0]\n-A FORWARD -j cali-FORWARD\nCOMMIT\n";
    let all = findings(of_saved(Family::V4, saved));
    assert_eq!(
        found(&all, "rules/forward").unwrap().severity,
        Severity::Note
    );
}

#[test]
fn in_iptables_mode_our_own_rules_let_forwarded_packets_pass() {
    let saved =
        "*filter\n:FORWARD DROP [0:0]\n:KUBE-FORWARD - [0:0]\n-A FORWARD -j KUBE-FORWARD\nCOMMIT\n";
    let mut facts = Facts {
        chains: of_saved(Family::V4, saved),
        ..Facts::default()
    };
    assert!(found(&check(&facts), "rules/forward").is_some());
    facts.mode = crate::mode::find("iptables");
    assert!(found(&check(&facts), "rules/forward").is_none());
}

#[test]
fn firewalld_is_told_by_its_table_and_by_its_process() {
    let mut forward = chain("firewalld", "filter_FORWARD", HookPoint::Forward, 10);
    forward.families = Family::ALL.to_vec();
    forward.refuses_rest = true;
    let all = findings(vec![forward]);
    let what = &found(&all, "rules/forward").unwrap().what;
    assert!(
        what.contains("of inet firewalld (rules of firewalld)"),
        "{what}"
    );
    assert!(found(&all, "rules/firewall").is_some());
    let process = Process {
        pid: 7,
        name: "firewalld".into(),
    };
    let facts = Facts {
        processes: vec![process],
        ..Facts::default()
    };
    assert!(found(&check(&facts), "rules/firewall").is_some());
}

#[test]
fn who_translates_before_us_may_take_our_connections() {
    let name = "rules/translated";
    let nat = |priority, owner: Option<&str>| {
        let mut nat = chain("nat", "PREROUTING", HookPoint::Prerouting, priority);
        nat.is_nat = true;
        nat.effects.translates_destination = true;
        nat.leads_to.extend(owner.map(str::to_owned));
        vec![nat]
    };
    assert_eq!(
        severity(nat(-100, Some("DOCKER")), name),
        Some(Severity::Note)
    );
    assert_eq!(severity(nat(-100, None), name), Some(Severity::Note));
    assert_eq!(severity(nat(-200, None), name), Some(Severity::Warning));
    assert_eq!(severity(nat(-90, None), name), None);
    assert_eq!(severity(nat(-100, Some("KUBE-SERVICES")), name), None);
}

#[test]
fn packets_that_are_not_tracked_or_dropped_early_are_told() {
    let mut raw = chain("raw", "PREROUTING", HookPoint::Prerouting, -300);
    raw.effects.untracks = true;
    assert_eq!(
        severity(vec![raw.clone()], "rules/untracked"),
        Some(Severity::Warning)
    );
    raw.leads_to.insert("cali-PREROUTING".into());
    assert_eq!(severity(vec![raw], "rules/untracked"), Some(Severity::Note));
    let mut mangle = chain("mine", "early", HookPoint::Prerouting, -150);
    mangle.effects.refuses = true;
    assert_eq!(
        severity(vec![mangle.clone()], "rules/early"),
        Some(Severity::Note)
    );
    mangle.point = HookPoint::Forward;
    assert_eq!(severity(vec![mangle], "rules/early"), None);
}

#[test]
fn a_closed_node_is_worth_a_word() {
    let mut input = chain("filter", "INPUT", HookPoint::Input, 0);
    assert_eq!(severity(vec![input.clone()], "rules/input"), None);
    input.refuses_rest = true;
    assert_eq!(severity(vec![input], "rules/input"), Some(Severity::Note));
}

#[test]
fn our_own_rules_do_not_stand_in_our_way() {
    let mut ours = chain("ferrovia", "nat-prerouting", HookPoint::Prerouting, -100);
    ours.effects.translates_destination = true;
    assert_eq!(severity(vec![ours], "rules/none"), Some(Severity::Ok));
    let mut theirs = chain("ferrovia-not", "nat", HookPoint::Prerouting, -100);
    theirs.effects.translates_destination = true;
    assert!(severity(vec![theirs], "rules/translated").is_some());
}
