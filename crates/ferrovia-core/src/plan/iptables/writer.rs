//! A plan in the making.

use std::collections::{BTreeSet, HashMap};

use super::base_chains;
use super::context::IptablesContext;
use super::sections::Sections;
use super::service_rules::{PortRules, port_rules};
use super::shared_chains::{RuleChanges, SharedChain};
use crate::desired::ServicePort;
use crate::dialect::iptables::{Restore, RestoreSection, RuleCount, TableName};

/// Sections that are right at every moment between them.
pub(super) struct IptablesWriter {
    mangle: RestoreSection,
    filter: RestoreSection,
    nat: Sections,
    /// Chains to remove when nothing leads to them any more.
    gone: Vec<String>,
    /// Chains to empty then, because rules of others lead to them.
    held: Vec<String>,
    /// What is removed from filter, after nat is as it should be.
    filter_gone: RestoreSection,
    /// How many rules of ours there are once all is written.
    in_force: RuleCount,
    notes: Vec<String>,
}

impl IptablesWriter {
    /// Nothing to write yet, where there are so many rules of ours.
    pub(super) fn new(context: &IptablesContext, in_force: RuleCount) -> Self {
        Self {
            mangle: RestoreSection::new(TableName::Mangle),
            filter: RestoreSection::new(TableName::Filter),
            nat: Sections::new(TableName::Nat, context.options.commits),
            gone: Vec::new(),
            held: Vec::new(),
            filter_gone: RestoreSection::new(TableName::Filter),
            in_force,
            notes: Vec::new(),
        }
    }

    /// Where additions to a table go.
    pub(super) fn section(&mut self, table: TableName) -> &mut RestoreSection {
        match table {
            TableName::Filter => &mut self.filter,
            TableName::Nat => self.nat.open(),
            TableName::Mangle => &mut self.mangle,
        }
    }

    /// Changes a shared chain.
    pub(super) fn edit(&mut self, chain: SharedChain, changes: &RuleChanges) {
        let table = chain.table();
        self.in_force
            .add(table, changes.insert.len() + changes.append.len());
        self.in_force
            .remove(table, changes.moved.len() + changes.delete.len());
        changes.add(chain.name(), self.section(table));
        let gone = match table {
            TableName::Filter => &mut self.filter_gone,
            _ => self.section(table),
        };
        changes.remove(chain.name(), gone);
    }

    /// Changes the fixed chains to what other settings make of them.
    pub(super) fn change_base(&mut self, old: &IptablesContext, new: &IptablesContext) {
        let before = base_chains::fixed_chains(old);
        for chain in &before {
            self.in_force.remove(chain.table, chain.rules.len());
        }
        for chain in base_chains::fixed_chains(new) {
            self.in_force.add(chain.table, chain.rules.len());
            if !before.contains(&chain) {
                self.section(chain.table).fill(chain.name, &chain.rules);
            }
        }
        let (before, after) = (base_chains::tail(old), base_chains::tail(new));
        if before != after {
            let changes = RuleChanges {
                append: after,
                delete: before,
                ..RuleChanges::default()
            };
            self.edit(SharedChain::NatServices, &changes);
        }
    }

    /// Changes a service port's rules; it appears or goes if there is no old or no new state.
    pub(super) fn change_port(
        &mut self,
        old: Option<(&ServicePort, &IptablesContext)>,
        new: Option<(&ServicePort, &IptablesContext)>,
    ) {
        let rules = |state: Option<(&ServicePort, &IptablesContext)>| {
            state.map_or_else(PortRules::default, |(port, context)| {
                port_rules(port, context)
            })
        };
        let (old, new) = (rules(old), rules(new));
        self.in_force.remove(TableName::Nat, old.own_rules());
        self.in_force.add(TableName::Nat, new.own_rules());
        for chain in SharedChain::ALL {
            self.edit(chain, &RuleChanges::between(&old.of(chain), &new.of(chain)));
        }
        let mut before: HashMap<String, Vec<String>> = old.chains.into_iter().collect();
        for (name, rules) in &new.chains {
            if before.remove(name).as_ref() != Some(rules) {
                self.fill_port_chain(name, rules);
            }
        }
        self.port_done();
        let gone = before.into_keys().collect::<BTreeSet<String>>();
        self.gone.extend(gone);
    }

    /// Makes one of a service port's own chains.
    pub(super) fn fill_port_chain(&mut self, name: &str, rules: &[String]) {
        self.nat.open().fill(name, rules);
        self.nat.wrote(rules.len());
    }

    /// A service port is written completely: here a big change may be cut.
    pub(super) fn port_done(&mut self) {
        self.nat.may_cut();
    }

    /// Removes some chains at the end and empties others.
    pub(super) fn drop_chains(&mut self, gone: &[&str], held: &[&str]) {
        let owned =
            |names: &[&str]| -> Vec<String> { names.iter().map(|&n| n.to_owned()).collect() };
        self.gone.extend(owned(gone));
        self.held.extend(owned(held));
        self.notes.extend(held.iter().map(|chain| {
            format!("flushing the stale chain {chain} but keeping it, because a foreign rule jumps to it")
        }));
    }

    pub(super) fn finish(mut self) -> Restore {
        self.nat.remove_chains(&self.held, &self.gone);
        let mut plan = Restore::default();
        plan.notes = self.notes;
        plan.in_force = self.in_force;
        plan.push(self.mangle);
        plan.push(self.filter);
        self.nat
            .finish()
            .into_iter()
            .for_each(|section| plan.push(section));
        plan.push(self.filter_gone);
        plan
    }
}
