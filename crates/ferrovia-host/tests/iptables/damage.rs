//! What others do to our rules, and what must not happen to theirs.

use std::collections::BTreeMap;

use ferrovia_core::dialect::iptables::parse;
use ferrovia_core::family::Family;
use ferrovia_core::plan::ObservedPolicy;
use ferrovia_host::Applier;
use ferrovia_host::iptables::Backend;
use ferrovia_lab::kube_proxy_rules;

use crate::support::{BACKENDS, Node, in_namespace, restore, run, shape, tool};

/// What others have on a node where a kube-proxy ran.
const FOREIGN: &str =
    include_str!("../../../ferrovia-core/src/dialect/iptables/leftovers/tests/foreign.save");

/// A load balancer with all kinds of rules.
const RICH: &str = "S9";

/// All rules, each with its table and its chain.
fn all_rules(save: &str) -> Vec<(String, String, String)> {
    let tables = parse(save).into_iter();
    tables
        .flat_map(|table| {
            let name = table.name.to_owned();
            table
                .rules
                .into_iter()
                .map(move |rule| (name.clone(), rule.chain.to_owned(), rule.args.to_owned()))
        })
        .collect()
}

#[test]
fn any_rule_that_is_removed_comes_back() {
    for backend in BACKENDS {
        in_namespace(|| {
            let mut node = Node::written(&shape(RICH), backend);
            let whole = kube_proxy_rules::rules(&node.save());
            for (table, chain, rule) in all_rules(&node.save()) {
                restore(
                    Family::V4,
                    backend,
                    &format!("*{table}\n-D {chain} {rule}\nCOMMIT\n"),
                );
                let plan = node.full(ObservedPolicy::Adopt).unwrap();
                assert!(!plan.is_empty());
                let now = kube_proxy_rules::rules(&node.save());
                // A jump comes back at the head of a built-in chain, where it was put in the first place.
                let sorted = |rules: &kube_proxy_rules::ChainRules| -> BTreeMap<_, Vec<String>> {
                    let mut rules = rules.clone();
                    let built_in = rules
                        .iter_mut()
                        .filter(|(chain, _)| !chain.1.starts_with("KUBE-"));
                    built_in.for_each(|(_, rules)| rules.sort());
                    rules
                };
                assert_eq!(
                    sorted(&now),
                    sorted(&whole),
                    "{backend}: {table} {chain} {rule}"
                );
            }
        });
    }
}

#[test]
fn removes_foreign_rules_from_our_chains() {
    for backend in BACKENDS {
        in_namespace(|| {
            let mut node = Node::written(&shape(RICH), backend);
            let whole = node.save();
            let chains = all_rules(&whole)
                .into_iter()
                .map(|(table, chain, _)| (table, chain));
            let ours =
                chains.filter(|(_, chain)| chain.starts_with("KUBE-") && chain != "KUBE-FIREWALL");
            for (n, (table, chain)) in ours.enumerate() {
                let command = if n % 2 == 0 { "-I" } else { "-A" };
                let rule =
                    format!("-s 192.0.2.{n}/32 -m comment --comment \"it's mine\" -j RETURN");
                restore(
                    Family::V4,
                    backend,
                    &format!("*{table}\n{command} {chain} {rule}\nCOMMIT\n"),
                );
                node.full(ObservedPolicy::Adopt).unwrap();
                assert_eq!(
                    all_rules(&node.save()),
                    all_rules(&whole),
                    "{backend}: {table} {chain}"
                );
            }
        });
    }
}

#[test]
fn a_rule_that_cannot_be_repeated_goes_with_its_chain() {
    for backend in BACKENDS {
        in_namespace(|| {
            let mut node = Node::written(&shape(RICH), backend);
            let whole = node.save();
            for chain in ["KUBE-SERVICES", "KUBE-MARK-MASQ"] {
                let rule = [
                    "-w",
                    "300",
                    "-t",
                    "nat",
                    "-A",
                    chain,
                    "-m",
                    "comment",
                    "--comment",
                ];
                run(
                    &tool(Family::V4, backend),
                    &[&rule[..], &["line\nbreak"]].concat(),
                    "",
                );
            }
            node.full(ObservedPolicy::Adopt).unwrap();
            assert_eq!(all_rules(&node.save()), all_rules(&whole));
        });
    }
}

#[test]
fn missing_canary_means_that_all_rules_were_removed() {
    for backend in BACKENDS {
        in_namespace(|| {
            let mut node = Node::written(&shape(RICH), backend);
            let whole = kube_proxy_rules::rules(&node.save());
            assert!(node.applier.is_untouched().unwrap(), "{backend}");
            for table in ["mangle", "nat", "filter"] {
                run(
                    &tool(Family::V4, backend),
                    &["-w", "300", "-t", table, "-F"],
                    "",
                );
                run(
                    &tool(Family::V4, backend),
                    &["-w", "300", "-t", table, "-X"],
                    "",
                );
            }
            assert!(!node.applier.is_untouched().unwrap(), "{backend}");
            node.full(ObservedPolicy::Adopt).unwrap();
            assert_eq!(kube_proxy_rules::rules(&node.save()), whole);
            assert!(node.applier.is_untouched().unwrap(), "{backend}");
        });
    }
}

#[test]
fn rules_of_others_are_never_touched() {
    let foreign = |save: &str| -> Vec<_> {
        let rules = all_rules(save).into_iter();
        rules
            .filter(|(_, chain, rule)| !chain.starts_with("KUBE-S") && !rule.contains("-j KUBE-"))
            .filter(|(_, chain, _)| {
                ![
                    "KUBE-FORWARD",
                    "KUBE-MARK-MASQ",
                    "KUBE-POSTROUTING",
                    "KUBE-NODEPORTS",
                ]
                .contains(&chain.as_str())
            })
            .filter(|(_, chain, _)| {
                !chain.starts_with("KUBE-E") && !chain.starts_with("KUBE-FIREWALL")
            })
            .collect()
    };
    for backend in BACKENDS {
        in_namespace(|| {
            restore(Family::V4, backend, FOREIGN);
            let before = foreign(&run(
                &format!("{}-save", tool(Family::V4, backend)),
                &[],
                "",
            ));
            assert!(before.len() > 3, "{before:?}");
            let mut node = Node::written(&shape(RICH), backend);
            for other in kube_proxy_rules::all()
                .into_iter()
                .filter(|other| other.family == Family::V4)
            {
                node.change(other.desired()).unwrap();
            }
            node.full(ObservedPolicy::Replace).unwrap();
            assert_eq!(foreign(&node.save()), before, "{backend}");
        });
    }
}

/// nft's own rules in a table of iptables, which its tool cannot print.
#[test]
fn a_rule_that_is_not_one_of_iptables_does_not_stop_us() {
    let odd = |chain: &str| {
        let rule = [
            "add", "rule", "ip", "nat", chain, "ct", "mark", "set", "numgen", "random", "mod", "3",
        ];
        run("nft", &rule, "");
    };
    in_namespace(|| {
        let mut node = Node::written(&shape(RICH), Backend::Nft);
        let whole = kube_proxy_rules::rules(&node.save());
        run("nft", &["add", "chain", "ip", "nat", "odd"], "");
        odd("odd");
        restore(
            Family::V4,
            Backend::Nft,
            "*nat\n:KUBE-MARK-MASQ - [0:0]\nCOMMIT\n",
        );
        node.full(ObservedPolicy::Adopt).unwrap();
        // Once for all: nothing of ours is there twice.
        node.full(ObservedPolicy::Adopt).unwrap();
        run("nft", &["flush", "chain", "ip", "nat", "odd"], "");
        assert_eq!(kube_proxy_rules::rules(&node.save()), whole);

        odd("PREROUTING");
        let error = node.full(ObservedPolicy::Adopt).unwrap_err().to_string();
        assert!(error.contains("PREROUTING of table nat"), "{error}");
    });
}
