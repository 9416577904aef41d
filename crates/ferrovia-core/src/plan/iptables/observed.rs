//! The observed rules, as `iptables-save` prints them.

use std::collections::HashMap;

use crate::dialect::iptables::{SavedTable, TableName, canonical, parse};

/// The output of `iptables-save`, kept as text so that a large ruleset exists once in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IptablesObserved {
    /// All tables, or those that concern us.
    pub save: String,
}

/// The output parsed by table and chain.
#[derive(Debug, Default)]
pub(in crate::plan) struct ObservedTables<'a> {
    tables: HashMap<&'a str, ObservedChainMap<'a>>,
}

type ObservedChainMap<'a> = HashMap<&'a str, ObservedRules<'a>>;

/// The rules of an observed chain.
#[derive(Debug, Default)]
pub(in crate::plan) struct ObservedRules<'a> {
    /// It is a built-in chain.
    pub(in crate::plan) built_in: bool,
    /// Its rules as printed.
    pub(in crate::plan) rules: Vec<&'a str>,
}

impl<'a> ObservedTables<'a> {
    pub(in crate::plan) fn read(observed: &'a IptablesObserved) -> Self {
        let tables = parse(&observed.save)
            .into_iter()
            .map(|table| (table.name, chains(&table)))
            .collect();
        Self { tables }
    }

    /// A chain, if it is there.
    pub(in crate::plan) fn chain(
        &self,
        table: TableName,
        name: &str,
    ) -> Option<&ObservedRules<'a>> {
        self.tables.get(table.as_str())?.get(name)
    }

    /// All chains of a table, in the order of their names.
    pub(in crate::plan) fn chains(&self, table: TableName) -> Vec<(&'a str, &ObservedRules<'a>)> {
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

fn chains<'a>(table: &SavedTable<'a>) -> ObservedChainMap<'a> {
    let mut chains: ObservedChainMap<'a> = HashMap::with_capacity(table.chains.len());
    for chain in &table.chains {
        chains.entry(chain.name).or_default().built_in = chain.built_in;
    }
    for rule in &table.rules {
        chains.entry(rule.chain).or_default().rules.push(rule.args);
    }
    chains
}

impl ObservedRules<'_> {
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
