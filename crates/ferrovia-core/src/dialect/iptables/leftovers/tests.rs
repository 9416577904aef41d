//! Removals are applied to a small model of what `iptables-restore --noflush` does to a saved ruleset.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

/// A node with one service, a container runtime and a kubelet, saved after kube-proxy ran in iptables mode.
const IPTABLES_MODE: &str = include_str!("tests/iptables-mode.save");
/// The same node without what kube-proxy put there.
const FOREIGN: &str = include_str!("tests/foreign.save");
/// What remains of a kube-proxy in ipvs mode, with nothing else on the node.
const IPVS_MODE: &str = include_str!("tests/ipvs-mode.save");

#[test]
fn iptables_mode_goes_and_everything_else_stays() {
    let removal = leftovers(IPTABLES_MODE).unwrap();
    for commits in [Commits::One, Commits::Many] {
        let after = restored(IPTABLES_MODE, &removal.restore_input(commits));
        assert_eq!(after, normal(FOREIGN));
    }
    assert_eq!((removal.chains(), removal.rules()), (17, 31));
    assert_eq!(removal.kept().count(), 0);
}

#[test]
fn ipvs_mode_goes() {
    let removal = leftovers(IPVS_MODE).unwrap();
    let after = restored(IPVS_MODE, &removal.restore_input(Commits::One));
    assert!(!after.contains("KUBE"), "{after}");
}

#[test]
fn a_modes_own_chains_stay_beside_those_of_others() {
    use crate::plan::{iptables, userspace};

    assert_eq!(
        leftovers_besides(IPTABLES_MODE, iptables::is_own_chain),
        None
    );
    let portals = nat(
        &["KUBE-PORTALS-HOST", "KUBE-SERVICES"],
        &["OUTPUT -j KUBE-PORTALS-HOST", "OUTPUT -j KUBE-SERVICES"],
    );
    for (is_ours, stays, goes) in [
        (
            userspace::is_portal_chain as fn(&str, &str) -> bool,
            "KUBE-PORTALS-HOST",
            "KUBE-SERVICES",
        ),
        (iptables::is_own_chain, "KUBE-SERVICES", "KUBE-PORTALS-HOST"),
    ] {
        let removal = leftovers_besides(&portals, is_ours).unwrap();
        let after = restored(&portals, &removal.restore_input(Commits::One));
        assert!(after.contains(stays) && !after.contains(goes), "{after}");
    }
}

#[test]
fn nothing_to_do_is_none() {
    assert_eq!(leftovers(""), None);
    assert_eq!(leftovers(FOREIGN), None);
}

#[test]
fn the_order_is_jumps_then_flush_then_delete_in_tables_that_need_it() {
    let save = "*raw\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n*nat\n:OUTPUT ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n\
                -A OUTPUT -m comment --comment \"say \\\"hi\\\"\" -j KUBE-SERVICES\n-A KUBE-SERVICES -j KUBE-MARK-MASQ\nCOMMIT\n";
    let wanted = "*nat\n-D OUTPUT -m comment --comment \"say \\\"hi\\\"\" -j KUBE-SERVICES\n\
                  :KUBE-SERVICES - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n-X KUBE-SERVICES\n-X KUBE-MARK-MASQ\nCOMMIT\n";
    assert_eq!(leftovers(save).unwrap().restore_input(Commits::One), wanted);
}

#[test]
fn the_same_rule_twice_is_deleted_twice() {
    let save = nat(
        &["KUBE-SERVICES"],
        &["OUTPUT -j KUBE-SERVICES", "OUTPUT -j KUBE-SERVICES"],
    );
    let removal = leftovers(&save).unwrap();
    assert_eq!((removal.chains(), removal.rules()), (1, 2));
    assert_eq!(
        restored(&save, &removal.restore_input(Commits::One)),
        nat(&[], &[])
    );
}

#[test]
fn a_chain_that_a_users_chain_jumps_to_is_only_emptied() {
    let users = "MINE -j KUBE-SERVICES";
    let chains = ["MINE", "KUBE-SERVICES", "KUBE-MARK-MASQ"];
    let save = nat(
        &chains,
        &[
            users,
            "OUTPUT -j KUBE-SERVICES",
            "KUBE-SERVICES -j KUBE-MARK-MASQ",
        ],
    );
    let removal = leftovers(&save).unwrap();
    assert_eq!(
        removal.kept().collect::<Vec<_>>(),
        [("nat", "KUBE-SERVICES")]
    );
    let after = restored(&save, &removal.restore_input(Commits::One));
    assert_eq!(after, nat(&["MINE", "KUBE-SERVICES"], &[users]));
    assert_eq!(
        leftovers(&after),
        None,
        "done once, there is nothing more to do"
    );
}

#[test]
fn a_jump_that_cannot_be_repeated_stays() {
    for comment in ["two\nlines", "lost \u{fffd}"] {
        let jump = format!("OUTPUT -m comment --comment \"{comment}\" -j KUBE-SERVICES");
        let save = nat(&["KUBE-SERVICES"], &[&jump, "KUBE-SERVICES -j RETURN"]);
        let input = leftovers(&save).unwrap().restore_input(Commits::One);
        assert_eq!(restored(&save, &input), nat(&["KUBE-SERVICES"], &[&jump]));
    }
}

#[test]
fn names_that_only_look_like_kube_proxys_are_not() {
    let nat = [
        "KUBE-FIREWALL",
        "KUBE-MARK-DROP",
        "KUBE-KUBELET-CANARY",
        "KUBE-FW-home",
        "KUBE-SVC-XPGD46QRK7WJZT78",
    ];
    assert!(nat.iter().all(|chain| !is_kube_proxys("nat", chain)));
    assert!(!is_kube_proxys("mangle", "KUBE-IPTABLES-HINT"));
    // In the right table only.
    assert!(is_kube_proxys("nat", "KUBE-SVC-XPGD46QRK7WJZT7O"));
    assert!(!is_kube_proxys("filter", "KUBE-SVC-XPGD46QRK7WJZT7O"));
    assert!(!is_kube_proxys("raw", "KUBE-SERVICES"));
}

#[test]
fn many_commits_keep_the_order() {
    let chains: Vec<String> = (0..1200).map(|n| format!("KUBE-SVC-{}", hash(n))).collect();
    let mut names: Vec<&str> = chains.iter().map(String::as_str).collect();
    names.push("KUBE-SERVICES");
    let jumps: Vec<String> = chains
        .iter()
        .map(|chain| format!("KUBE-SERVICES -j {chain}"))
        .collect();
    let mut rules: Vec<&str> = jumps.iter().map(String::as_str).collect();
    rules.push("OUTPUT -j KUBE-SERVICES");
    let save = nat(&names, &rules);
    let removal = leftovers(&save).unwrap();
    let input = removal.restore_input(Commits::Many);
    assert_eq!(
        input.matches("COMMIT").count(),
        5,
        "2,403 lines of 500 at most"
    );
    assert_eq!(restored(&save, &input), nat(&[], &[]));
}

proptest! {
    /// Whatever others have in the same tables, before, between and after kube-proxy's rules, is there afterwards, in the same order.
    #[test]
    fn foreign_rules_stay(lines in prop::collection::vec(line(), 0..30), many in any::<bool>()) {
        let own = ["KUBE-SERVICES", "KUBE-SEP-SXIVWICOYRO3J4NJ", "KUBE-POSTROUTING"];
        let chains: Vec<&str> = FOREIGN_CHAINS.iter().chain(&own).copied().collect();
        let all: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
        let foreign: Vec<&str> = lines.iter().filter(|line| line.foreign).map(|line| line.text.as_str()).collect();
        let save = nat(&chains, &all);
        let removal = leftovers(&save).unwrap();
        prop_assert_eq!(removal.rules(), all.len() - foreign.len());
        let input = removal.restore_input(if many { Commits::Many } else { Commits::One });
        prop_assert_eq!(restored(&save, &input), nat(&FOREIGN_CHAINS, &foreign));
    }
}

/// Chains of others, some with names that come close.
const FOREIGN_CHAINS: [&str; 5] = [
    "DOCKER",
    "KUBE-FIREWALL",
    "KUBE-FW-home",
    "KUBE-SERVICES-2",
    "quo\"te",
];

/// A rule without its `-A `, and whose it is.
#[derive(Clone, Debug)]
struct Line {
    text: String,
    foreign: bool,
}

fn line() -> impl Strategy<Value = Line> {
    let users = prop::sample::select(vec![
        "PREROUTING",
        "OUTPUT",
        "DOCKER",
        "KUBE-FIREWALL",
        "quo\"te",
    ]);
    let verdicts = prop::sample::select(vec![
        "",
        " -j ACCEPT",
        " -g DOCKER",
        " -j KUBE-FIREWALL",
        " -j quo\"te",
    ]);
    let foreign = (users, comment(true), verdicts).prop_map(|(chain, comment, verdict)| Line {
        text: format!("{chain}{comment}{verdict}"),
        foreign: true,
    });
    let rules = vec![
        ("OUTPUT", " -j KUBE-SERVICES"),
        ("PREROUTING", " -g KUBE-POSTROUTING"),
        ("KUBE-SERVICES", " -j KUBE-SEP-SXIVWICOYRO3J4NJ"),
        (
            "KUBE-SEP-SXIVWICOYRO3J4NJ",
            " -p tcp -m tcp -j DNAT --to-destination 10.180.0.1:80",
        ),
    ];
    let own =
        (prop::sample::select(rules), comment(false)).prop_map(|((chain, rest), comment)| Line {
            text: format!("{chain}{comment}{rest}"),
            foreign: false,
        });
    prop_oneof![foreign, own]
}

/// A comment match as the saving tool prints it, made of the pieces most likely to be misread.
fn comment(line_breaks: bool) -> impl Strategy<Value = String> {
    let mut pieces = vec![
        "-j",
        "-A OUTPUT",
        "KUBE-SERVICES",
        " ",
        "\"",
        "'",
        "\\",
        "COMMIT",
        "*nat",
        "é",
        "#",
        "[1:2] ",
    ];
    pieces.extend(line_breaks.then_some("\n"));
    prop::collection::vec(prop::sample::select(pieces), 0..6)
        .prop_map(|pieces| format!(" -m comment --comment {}", quoted(&pieces.concat())))
}

/// Quotes text that holds anything but letters, digits, `-` and `_`, as the tool does.
fn quoted(text: &str) -> String {
    if !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        quoted.extend("\"'\\".contains(c).then_some('\\'));
        quoted.push(c);
    }
    quoted + "\""
}

/// A saved `nat` table with two built-in chains, these user-defined ones and these rules (without `-A `).
fn nat(chains: &[&str], rules: &[&str]) -> String {
    let mut text = String::from("*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n");
    for chain in chains {
        let _ = writeln!(text, ":{chain} - [0:0]");
    }
    for rule in rules {
        let _ = writeln!(text, "-A {rule}");
    }
    text + "COMMIT\n"
}

/// A distinct service hash for each number.
fn hash(n: u32) -> String {
    (0..16)
        .map(|digit| char::from(b'A' + u8::try_from(n >> (2 * digit) & 3).unwrap()))
        .collect()
}

/// What is saved after the input was restored without flushing. Panics where the tool would refuse.
fn restored(save: &str, input: &str) -> String {
    let mut tables = parse(save);
    let mut current = None;
    for line in input.lines() {
        if let Some(name) = line.strip_prefix('*') {
            current = tables.iter().position(|table| table.name == name);
            assert!(current.is_some(), "no table {name}");
        } else if line != "COMMIT" {
            carry_out(&mut tables[current.unwrap()], line);
        }
    }
    print(&tables)
}

fn carry_out(table: &mut SavedTable<'_>, line: &str) {
    if let Some(chain) = line.strip_prefix(':') {
        let name = chain.split(' ').next().unwrap();
        assert!(
            table.chains.iter().any(|chain| chain.name == name),
            "a removal makes no chain {name}"
        );
        table.rules.retain(|rule| rule.chain != name);
    } else if let Some(name) = line.strip_prefix("-X ") {
        let busy = table
            .rules
            .iter()
            .find(|rule| rule.chain == name || rule.targets().any(|target| target == name));
        assert_eq!(busy, None, "{name} is in use");
        table.chains.retain(|chain| chain.name != name);
    } else {
        let rule = line.strip_prefix("-D ").unwrap();
        let at = table
            .rules
            .iter()
            .position(|found| format!("{} {}", found.chain, found.args) == rule);
        table
            .rules
            .remove(at.unwrap_or_else(|| panic!("no rule {rule}")));
    }
}

/// The tables as they are saved, without the tool's comments.
fn print(tables: &[SavedTable<'_>]) -> String {
    let mut text = String::new();
    for table in tables {
        let _ = writeln!(text, "*{}", table.name);
        for chain in &table.chains {
            let _ = writeln!(
                text,
                ":{} {} [0:0]",
                chain.name,
                if chain.built_in { "ACCEPT" } else { "-" }
            );
        }
        for rule in &table.rules {
            let _ = writeln!(text, "-A {} {}", rule.chain, rule.args);
        }
        text.push_str("COMMIT\n");
    }
    text
}

fn normal(save: &str) -> String {
    print(&parse(save))
}
