//! What is in the kernel, as the saving tool prints it.

use std::collections::HashMap;

use crate::dialect::iptables::{Table, TableName, canonical, parse};

/// What the saving tool printed. Kept as that text: of a big ruleset there should be one copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// All tables, or those that concern us.
    pub save: String,
}

/// A view of it that can be asked for chains.
#[derive(Debug, Default)]
pub(in crate::plan) struct Kernel<'a> {
    tables: HashMap<&'a str, Chains<'a>>,
}

type Chains<'a> = HashMap<&'a str, Found<'a>>;

/// A chain that is there.
#[derive(Debug, Default)]
pub(in crate::plan) struct Found<'a> {
    /// The kernel sends packets here by itself.
    pub(in crate::plan) built_in: bool,
    /// Its rules as they were printed.
    pub(in crate::plan) rules: Vec<&'a str>,
}

impl<'a> Kernel<'a> {
    pub(in crate::plan) fn read(observed: &'a Observed) -> Self {
        let tables = parse(&observed.save)
            .into_iter()
            .map(|table| (table.name, chains(&table)))
            .collect();
        Self { tables }
    }

    /// A chain, if it is there.
    pub(in crate::plan) fn chain(&self, table: TableName, name: &str) -> Option<&Found<'a>> {
        self.tables.get(table.as_str())?.get(name)
    }

    /// All chains of a table, in the order of their names.
    pub(in crate::plan) fn chains(&self, table: TableName) -> Vec<(&'a str, &Found<'a>)> {
        let chains = self.tables.get(table.as_str());
        let mut all: Vec<_> = chains
            .into_iter()
            .flatten()
            .map(|(name, found)| (*name, found))
            .collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        all
    }
}

fn chains<'a>(table: &Table<'a>) -> Chains<'a> {
    let mut chains: Chains<'a> = HashMap::with_capacity(table.chains.len());
    for chain in &table.chains {
        chains.entry(chain.name).or_default().built_in = chain.built_in;
    }
    for rule in &table.rules {
        chains.entry(rule.chain).or_default().rules.push(rule.args);
    }
    chains
}

impl Found<'_> {
    /// It has these rules and no others, in this order.
    pub(in crate::plan) fn is(&self, rules: &[String]) -> bool {
        self.rules.len() == rules.len()
            && self
                .rules
                .iter()
                .zip(rules)
                .all(|(found, wanted)| canonical(found) == wanted.as_str())
    }

    /// It has this rule among others.
    pub(in crate::plan) fn has(&self, rule: &str) -> bool {
        self.rules.iter().any(|found| canonical(found) == rule)
    }
}
