//! Compares the desired rules with the observed ones.

use std::collections::{BTreeMap, HashSet};

use super::added_rules::AddedRules;
use super::base_chains::{self, IptablesChainRules};
use super::context::IptablesContext;
use super::foreign_rules::foreign_rules;
use super::health_check_ports::HealthCheckPorts;
use super::names::CANARY;
use super::observed::{IptablesObserved, ObservedTables};
use super::service_rules::{PortRules, port_rules};
use super::shared_chains::{ChainEdit, DesiredChain, SharedChain};
use super::stale_chains::{KnownPorts, stale};
use super::writer::IptablesWriter;
use crate::desired::{Desired, ServicePort};
use crate::dialect::iptables::{Restore, RuleCount, TableName};
use crate::plan::ObservedPolicy;

/// A comparison under way.
pub(super) struct IptablesFullPlan<'a> {
    context: &'a IptablesContext,
    kernel: ObservedTables<'a>,
    /// Observed chains are kept if they are right; otherwise everything is rewritten.
    is_trusted: bool,
    /// The services that are known, while not all are.
    known: Option<KnownPorts>,
    /// The own chains of all service ports.
    wanted: HashSet<String>,
    added_rules: &'a mut AddedRules,
    writer: IptablesWriter,
    /// How many rules are wanted.
    rules: RuleCount,
}

impl<'a> IptablesFullPlan<'a> {
    pub(super) fn new(
        context: &'a IptablesContext,
        observed: &'a IptablesObserved,
        found: ObservedPolicy,
        desired: &Desired,
        added_rules: &'a mut AddedRules,
    ) -> Self {
        Self {
            context,
            kernel: ObservedTables::read(observed),
            is_trusted: found != ObservedPolicy::Replace,
            known: (found == ObservedPolicy::KeepUnknown).then(|| KnownPorts::new(desired)),
            wanted: HashSet::new(),
            added_rules,
            writer: IptablesWriter::new(context, RuleCount::default()),
            rules: RuleCount::default(),
        }
    }

    /// What has to be written.
    pub(super) fn plan(mut self, desired: &Desired, health: &HealthCheckPorts) -> Restore {
        self.canaries();
        for chain in base_chains::fixed_chains(self.context) {
            self.fixed_chain(&chain);
        }
        for chain in base_chains::common_chains(self.context) {
            self.common_chain(&chain);
        }
        let mut shared: BTreeMap<SharedChain, DesiredChain> = BTreeMap::new();
        for port in desired.ports.values() {
            let rules = self.port(port);
            for chain in SharedChain::ALL {
                let group: Vec<String> = rules.of(chain).into_iter().map(str::to_owned).collect();
                if !group.is_empty() {
                    shared.entry(chain).or_default().groups.push(group);
                }
            }
        }
        shared
            .entry(SharedChain::FilterNodePorts)
            .or_default()
            .groups = health.groups();
        shared.entry(SharedChain::NatServices).or_default().tail = base_chains::tail(self.context);
        for chain in SharedChain::ALL {
            self.shared_chain(chain, shared.remove(&chain).unwrap_or_default());
        }
        self.jumps();
        let stale = stale(&self.kernel, &self.wanted, self.known.as_ref());
        self.writer.drop_chains(&stale.gone, &stale.held);
        let mut plan = self.writer.finish();
        plan.in_force = self.rules;
        plan.notes.extend(foreign_rules(&self.kernel));
        plan
    }

    fn canaries(&mut self) {
        for table in TableName::ALL {
            let found = self.kernel.chain(table, CANARY);
            if found.is_none_or(|found| !found.rules.is_empty()) {
                self.writer.section(table).declare(CANARY);
            }
        }
    }

    /// A chain that is ours alone.
    fn fixed_chain(&mut self, chain: &IptablesChainRules) {
        self.rules.add(chain.table, chain.rules.len());
        if !self.has_chain(chain.table, chain.name, &chain.rules) {
            let section = self.writer.section(chain.table);
            section.fill(chain.name, &chain.rules);
        }
    }

    /// A chain where others have rules too.
    fn common_chain(&mut self, chain: &IptablesChainRules) {
        self.rules.add(chain.table, chain.rules.len());
        let found = self.kernel.chain(chain.table, chain.name);
        let section = self.writer.section(chain.table);
        self.added_rules.complete(chain, found, section);
    }

    fn has_chain(&self, table: TableName, name: &str, rules: &[String]) -> bool {
        let found = self.kernel.chain(table, name);
        self.is_trusted && found.is_some_and(|found| found.is(rules))
    }

    /// A service port's own chains.
    fn port(&mut self, port: &ServicePort) -> PortRules {
        let rules = port_rules(port, self.context);
        self.rules.add(TableName::Nat, rules.own_rules());
        // A chain that was written when there were fewer endpoints, or more, is as good.
        let mut other: Option<PortRules> = None;
        for (n, (name, chain)) in rules.chains.iter().enumerate() {
            if !self.has_chain(TableName::Nat, name, chain) {
                let other = other.get_or_insert_with(|| self.in_other_size(port));
                let same = other.chains.get(n).map(|(_, chain)| chain);
                if !same.is_some_and(|chain| self.has_chain(TableName::Nat, name, chain)) {
                    self.writer.fill_port_chain(name, chain);
                }
            }
            self.wanted.insert(name.clone());
        }
        self.writer.port_done();
        rules
    }

    /// A port's rules with comments that name endpoints, where they are left out now, or the other way round.
    fn in_other_size(&self, port: &ServicePort) -> PortRules {
        let context = IptablesContext {
            is_large: !self.context.is_large,
            ..self.context.clone()
        };
        port_rules(port, &context)
    }

    fn shared_chain(&mut self, chain: SharedChain, wanted: DesiredChain) {
        self.rules.add(chain.table(), wanted.len());
        let found = self.kernel.chain(chain.table(), chain.name());
        let may_go = |rule: &str| {
            self.known
                .as_ref()
                .is_none_or(|known| known.owns_rule(rule))
        };
        let edit = match found {
            Some(found) if self.is_trusted => wanted.compare(&found.rules, may_go),
            _ => ChainEdit::Rewrite(Vec::new()),
        };
        match edit {
            ChainEdit::Single(changes) => self.writer.edit(chain, &changes),
            ChainEdit::Rewrite(kept) => {
                let section = self.writer.section(chain.table());
                section.fill(chain.name(), &wanted.rules(kept));
            }
        }
    }

    /// The ways in, at the head of the built-in chains. Not moved if they are there: others may have put theirs before on purpose.
    fn jumps(&mut self) {
        for jump in base_chains::jumps(self.context) {
            self.rules.add(jump.table, 1);
            let found = self.kernel.chain(jump.table, jump.from);
            let is_there = found.is_some_and(|found| found.has(&jump.rule))
                || (self.added_rules).explains(jump.table, jump.from, found, &jump.rule);
            if !is_there {
                let section = self.writer.section(jump.table);
                section.insert(jump.from, &jump.rule);
            }
        }
    }
}
