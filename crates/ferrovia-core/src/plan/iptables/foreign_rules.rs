//! Foreign rules in our chains, which neither we nor a kube-proxy wrote. The next write removes them, so they are reported.

use super::names::{NODE_PORTS, SERVICES};
use super::observed::ObservedTables;
use super::shared_chains::SharedChain;
use crate::dialect::iptables::{SavedRule, TableName, canonical, is_hashed_name};

/// How many rules are quoted; the rest is only counted.
const QUOTED: usize = 5;
/// The most of a rule that is quoted.
const LONGEST: usize = 200;

/// Describes foreign rules in our chains.
pub(super) fn foreign_rules(kernel: &ObservedTables<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    let mut more = 0;
    for table in [TableName::Filter, TableName::Nat] {
        for (chain, found) in kernel.chains(table) {
            if !is_ours(table, chain) {
                continue;
            }
            let rules = found.rules.iter().copied();
            for rule in rules.filter(|args| is_strange(table, &SavedRule { chain, args })) {
                if notes.len() < QUOTED {
                    let rule: String = rule.escape_debug().take(LONGEST).collect();
                    let table = table.as_str();
                    notes.push(format!(
                        "removing a foreign rule from our chain {chain} in table {table}: {rule}"
                    ));
                } else {
                    more += 1;
                }
            }
        }
    }
    if more > 0 {
        notes.push(format!("removing {more} more foreign rules"));
    }
    notes
}

/// The chains that hold nothing but rules for services. In the fixed ones the comparison finds what does not belong there.
fn is_ours(table: TableName, chain: &str) -> bool {
    match table {
        TableName::Nat => chain == SERVICES || chain == NODE_PORTS || is_hashed_name(chain),
        _ => SharedChain::ALL
            .iter()
            .any(|shared| shared.table() == table && shared.name() == chain),
    }
}

fn is_strange(table: TableName, rule: &SavedRule<'_>) -> bool {
    let text = canonical(rule.args);
    if is_of_ipvs_mode(&text) {
        return false;
    }
    let comment = text.split_once("--comment \"").map(|(_, comment)| comment);
    // Every rule that ends in a verdict names the service port it is for.
    let names_a_port = comment.is_some_and(|comment| comment.contains('/'));
    match table {
        TableName::Nat => {
            let mut targets = rule.targets().peekable();
            let is_jump = targets.peek().is_some();
            let is_known = |target: &str| target.starts_with("KUBE-") || target == "DNAT";
            !(names_a_port && !is_jump || is_jump && targets.any(|target| is_known(&target)))
        }
        _ => !names_a_port,
    }
}

/// The ipvs mode, ours or a kube-proxy's, has chains of the same names. Its rules look into sets, but for one.
fn is_of_ipvs_mode(rule: &str) -> bool {
    let set = rule.split_once("--match-set ").map(|(_, set)| set);
    let loopback = ["-s 127.0.0.0/8 -j RETURN", "-s ::1/128 -j RETURN"];
    set.is_some_and(|set| set.starts_with("KUBE-")) || loopback.contains(&rule)
}
