//! kube-proxy's iptables leftovers are removed from the real kernel, by the node's own tools, and nothing else is.

use std::fs;

use ferrovia_core::dialect::iptables::parse;
use ferrovia_core::family::Family;
use ferrovia_host::iptables::{RemovedRules, RemovedWith, legacy_tables, remove_leftovers};

use crate::support::{in_namespace, run};

/// A node after kube-proxy ran in iptables mode, with rules of others.
const IPTABLES_MODE: &str =
    include_str!("../../../ferrovia-core/src/dialect/iptables/leftovers/tests/iptables-mode.save");
/// The rules of others on that node.
const FOREIGN: &str =
    include_str!("../../../ferrovia-core/src/dialect/iptables/leftovers/tests/foreign.save");
/// The same two for IPv6, smaller.
const IPTABLES_MODE_V6: &str = "*nat\n:PREROUTING ACCEPT [0:0]\n:DOCKER - [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n\
    -A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n\
    -A PREROUTING -j DOCKER\n-A DOCKER -d fd00::1/128 -j RETURN\n-A KUBE-SERVICES -d fd00:96::1/128 -j KUBE-MARK-MASQ\nCOMMIT\n";
const FOREIGN_V6: &str = "*nat\n:PREROUTING ACCEPT [0:0]\n:DOCKER - [0:0]\n\
    -A PREROUTING -j DOCKER\n-A DOCKER -d fd00::1/128 -j RETURN\nCOMMIT\n";

/// Tests run side by side, and the legacy tools have one lock for all namespaces. The nft tools take the option and have no lock.
const WAIT: [&str; 2] = ["-w", "300"];
const WAIT_NO_FLUSH: [&str; 3] = ["-w", "300", "--noflush"];

const V4_TOOLS: [&str; 2] = ["iptables-nft", "iptables-legacy"];
const V6_TOOLS: [&str; 2] = ["ip6tables-nft", "ip6tables-legacy"];

#[test]
fn only_the_rules_of_others_remain_in_all_four_rulesets() {
    let wanted = in_namespace(|| {
        load(FOREIGN, FOREIGN_V6);
        save_all()
    });
    let (removed, after, again, after_again) = in_namespace(|| {
        load(IPTABLES_MODE, IPTABLES_MODE_V6);
        (
            remove_leftovers().unwrap(),
            save_all(),
            remove_leftovers().unwrap(),
            save_all(),
        )
    });
    assert_eq!(after, wanted);
    let v4 = V4_TOOLS.map(|tool| done(tool, 17, 31, &[]));
    let v6 = V6_TOOLS.map(|tool| done(tool, 2, 2, &[]));
    assert_eq!(
        removed,
        RemovedRules {
            tools: [v4, v6].concat(),
            ..RemovedRules::default()
        }
    );
    assert_eq!(after_again, wanted);
    assert!(
        again
            .tools
            .iter()
            .all(|tool| (tool.chains, tool.rules) == (0, 0)),
        "{again:?}"
    );
}

#[test]
fn a_namespace_without_rules_stays_without_tables() {
    in_namespace(|| {
        let removed = remove_leftovers().unwrap();
        let looked_at: Vec<_> = removed
            .tools
            .iter()
            .map(|done| done.tool.as_str())
            .collect();
        assert_eq!(looked_at, [V4_TOOLS, V6_TOOLS].concat());
        for list in ["ip_tables_names", "ip6_tables_names"] {
            let names = fs::read_to_string(format!("/proc/thread-self/net/{list}"));
            assert_eq!(names.unwrap_or_default(), "");
        }
        assert_eq!(run("nft", &["list", "tables"], ""), "");
    });
}

#[test]
fn hostile_comments_neither_hide_a_jump_nor_make_one() {
    for tool in V4_TOOLS {
        in_namespace(|| {
            run(
                &format!("{tool}-restore"),
                &WAIT_NO_FLUSH,
                "*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n",
            );
            let texts = [
                "-j",
                "a\"b\\",
                "it's $(x) `y`",
                "",
                "tab\there",
                "#",
                "é -D OUTPUT -j KUBE-SERVICES",
            ];
            for text in texts {
                append(tool, text, "ACCEPT");
            }
            append(
                tool,
                "break\n-A OUTPUT -j KUBE-SERVICES\nCOMMIT\n*filter",
                "ACCEPT",
            );
            let wanted = save(tool).replace(":KUBE-SERVICES - [0:0]\n", "");
            for text in texts {
                append(tool, text, "KUBE-SERVICES");
            }
            let removed = remove_leftovers().unwrap();
            assert!(
                removed.tools.contains(&done(tool, 1, texts.len(), &[])),
                "{removed:?}"
            );
            assert_eq!(save(tool), wanted);
        });
    }
}

#[test]
fn what_rules_of_others_hold_is_emptied_and_kept() {
    for tool in V4_TOOLS {
        in_namespace(|| {
            let chains = "*nat\n:MINE - [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-POSTROUTING - [0:0]\n-A MINE -j KUBE-SERVICES\nCOMMIT\n";
            run(&format!("{tool}-restore"), &WAIT_NO_FLUSH, chains);
            // A jump whose comment has a line break cannot be given back to the tool.
            append(tool, "line\nbreak", "KUBE-POSTROUTING");
            // Over netlink any rule can be named.
            let is_nft = tool == "iptables-nft";
            let mut wanted = save(tool);
            if is_nft {
                wanted = without(&wanted, "KUBE-POSTROUTING");
            }
            let rules = "*nat\n-A OUTPUT -j KUBE-SERVICES\n-A KUBE-SERVICES -j RETURN\n-A KUBE-POSTROUTING -j RETURN\nCOMMIT\n";
            run(&format!("{tool}-restore"), &WAIT_NO_FLUSH, rules);
            let removed = remove_leftovers().unwrap();
            let wanted_report = if is_nft {
                done(tool, 1, 4, &["nat KUBE-SERVICES"])
            } else {
                done(tool, 0, 3, &["nat KUBE-POSTROUTING", "nat KUBE-SERVICES"])
            };
            let mut report = removed
                .tools
                .into_iter()
                .find(|done| done.tool == tool)
                .unwrap();
            // The tools list chains in different orders.
            report.kept.sort();
            assert_eq!(report, wanted_report);
            assert_eq!(save(tool), wanted);
            assert!(
                remove_leftovers()
                    .unwrap()
                    .tools
                    .contains(&done(tool, 0, 0, &[]))
            );
        });
    }
}

/// A saved ruleset without a chain and without the rule that leads to it, whose comment has a line break.
fn without(save: &str, chain: &str) -> String {
    let lines = save.split_inclusive('\n');
    let kept = lines.filter(|line| !line.contains(chain) && !line.contains("\"line"));
    kept.collect()
}

#[test]
fn elements_of_others_keep_a_chain_too() {
    in_namespace(|| {
        let chains = "*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -j RETURN\nCOMMIT\n";
        run("iptables-nft-restore", &WAIT_NO_FLUSH, chains);
        let map = "add map ip nat m { type inet_service : verdict; }\n\
            add element ip nat m { 80 : jump KUBE-SERVICES }\n";
        run("nft", &["-f", "-"], map);
        let removed = remove_leftovers().unwrap();
        let wanted = done("iptables-nft", 0, 1, &["nat KUBE-SERVICES"]);
        assert!(removed.tools.contains(&wanted), "{removed:?}");
    });
}

/// The chains of the legacy tools are found with a system call, as their tool prints them.
#[test]
fn legacy_chains_are_read_without_the_tool() {
    in_namespace(|| {
        for family in Family::ALL {
            assert_eq!(legacy_tables(family).unwrap(), []);
        }
        load(IPTABLES_MODE, IPTABLES_MODE_V6);
        for (family, tool) in Family::ALL
            .into_iter()
            .zip(["iptables-legacy", "ip6tables-legacy"])
        {
            let text = save(tool);
            let printed = parse(&text);
            let mut printed: Vec<_> = printed
                .iter()
                .flat_map(|table| {
                    let chains = table.chains.iter().filter(|chain| !chain.built_in);
                    chains.map(move |chain| {
                        let rules = table.rules.iter();
                        let rules = rules.filter(|rule| rule.chain == chain.name).count();
                        (table.name.to_owned(), chain.name.to_owned(), rules)
                    })
                })
                .collect();
            let tables = legacy_tables(family).unwrap();
            let mut read: Vec<_> = tables
                .into_iter()
                .flat_map(|table| {
                    let name = table.name;
                    let chains = table.chains.into_iter();
                    chains.map(move |(chain, rules)| (name.clone(), chain, rules))
                })
                .collect();
            printed.sort();
            read.sort();
            assert!(printed.len() > 2, "{text}");
            assert_eq!(read, printed, "{text}");
        }
    });
}

/// Loads a ruleset a family into both its backends.
fn load(v4: &str, v6: &str) {
    for (tools, text) in [(V4_TOOLS, v4), (V6_TOOLS, v6)] {
        for tool in tools {
            run(&format!("{tool}-restore"), &WAIT, text);
        }
    }
}

fn save_all() -> Vec<String> {
    [V4_TOOLS, V6_TOOLS]
        .concat()
        .into_iter()
        .map(save)
        .collect()
}

/// What a tool saves, without its comments: they hold the time of day.
fn save(tool: &str) -> String {
    let text = run(&format!("{tool}-save"), &[], "");
    text.split_inclusive('\n')
        .filter(|line| !line.starts_with("# "))
        .collect()
}

/// Adds a rule with a comment to the `nat` table. Not by the restore tool, which cannot take every comment.
fn append(tool: &str, comment: &str, target: &str) {
    let rule = format!("-w 300 -t nat -A OUTPUT -j {target} -m comment --comment");
    let args: Vec<&str> = rule.split(' ').chain([comment]).collect();
    run(tool, &args, "");
}

fn done(tool: &str, chains: usize, rules: usize, kept: &[&str]) -> RemovedWith {
    let kept = kept.iter().map(|&chain| chain.to_owned()).collect();
    RemovedWith {
        tool: tool.to_owned(),
        chains,
        rules,
        kept,
    }
}
