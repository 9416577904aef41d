//! Turns `iptables-restore` input into differences.

use std::collections::BTreeMap;

use super::Difference;
use crate::dialect::iptables::{Restore, canonical, parse};
use crate::plan::iptables::IptablesObserved;

/// What a full plan would change in the rules that were found.
pub fn differences(plan: &Restore, observed: &IptablesObserved) -> Vec<Difference> {
    let mut collected = IptablesDifferences::new(observed);
    let text = plan.to_string();
    let mut table = "";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        } else {
            collected.line(table, line);
        }
    }
    collected.differences()
}

/// A table and a chain.
type ChainName<'a> = (&'a str, &'a str);

struct IptablesDifferences<'a> {
    chains: BTreeMap<ChainName<'a>, Vec<String>>,
    changes: BTreeMap<(String, String), ChainChange>,
}

/// What a plan does to a chain.
#[derive(Default)]
struct ChainChange {
    /// It is flushed and refilled, if it exists.
    declared: bool,
    deleted: bool,
    removed: Vec<String>,
    added: Vec<String>,
}

impl<'a> IptablesDifferences<'a> {
    fn new(observed: &'a IptablesObserved) -> Self {
        let mut chains: BTreeMap<ChainName<'a>, Vec<String>> = BTreeMap::new();
        for table in parse(&observed.save) {
            for chain in &table.chains {
                chains.entry((table.name, chain.name)).or_default();
            }
            for rule in &table.rules {
                let rules = chains.entry((table.name, rule.chain)).or_default();
                rules.push(canonical(rule.args).into_owned());
            }
        }
        Self {
            chains,
            changes: BTreeMap::new(),
        }
    }

    fn line(&mut self, table: &str, line: &str) {
        let mut words = line.splitn(3, ' ');
        let (Some(verb), chain, rest) = (words.next(), words.next(), words.next()) else {
            return;
        };
        let name = verb.strip_prefix(':').or(chain);
        let Some(name) = name else { return };
        let change = self
            .changes
            .entry((table.to_owned(), name.to_owned()))
            .or_default();
        let rule = || rest.unwrap_or_default().to_owned();
        match verb {
            "-A" | "-I" => change.added.push(rule()),
            // As it was found, so perhaps in another spelling than ours.
            "-D" => change.removed.push(canonical(&rule()).into_owned()),
            "-X" => change.deleted = true,
            _ if verb.starts_with(':') => change.declared = true,
            _ => {}
        }
    }

    fn differences(self) -> Vec<Difference> {
        let Self { chains, changes } = self;
        let one = |((table, name), change): ((String, String), ChainChange)| {
            let there = chains.get(&(table.as_str(), name.as_str()));
            let place = format!("chain {table} {name}");
            let (mut found, mut wanted) = (change.removed, change.added);
            if change.declared || change.deleted {
                found.extend(there.cloned().unwrap_or_default());
            }
            // A rule that is deleted and added unchanged is no difference.
            wanted.retain(|rule| match found.iter().position(|f| f == rule) {
                Some(same) => {
                    found.remove(same);
                    false
                }
                None => true,
            });
            if there.is_none() && !change.deleted {
                wanted.insert(0, format!(":{name}"));
            }
            if there.is_some() && change.deleted {
                found.insert(0, format!(":{name}"));
            }
            let same = found.is_empty() && wanted.is_empty();
            (!same).then(|| Difference::new(place, found, wanted))
        };
        changes.into_iter().filter_map(one).collect()
    }
}
