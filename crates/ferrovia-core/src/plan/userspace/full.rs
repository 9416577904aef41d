//! Compares the desired portals with the observed state.

use std::collections::{BTreeSet, HashMap};

use super::chains::{PortalChain, egress, jumps};
use super::context::UserspaceContext;
use super::portals::Portal;
use super::writer::UserspaceWriter;
use super::{ProxyChange, UserspaceObserved, UserspacePlan};
use crate::desired::Desired;
use crate::dialect::iptables::{SavedRule, SavedTable, TableName, canonical, fill_in, parse};
use crate::plan::ObservedPolicy;
use crate::plan::iptables::CANARY;

/// All portals. A chain that differs is rewritten as a whole: after a restart all ports are others, and nothing that an
/// earlier run wrote leads anywhere.
pub(super) fn portals(
    desired: &Desired,
    observed: &UserspaceObserved,
    found: ObservedPolicy,
    context: &UserspaceContext,
) -> UserspacePlan {
    let mut plan = UserspacePlan::default();
    let mut groups: HashMap<PortalChain, Vec<Vec<String>>> = HashMap::new();
    for port in desired.ports.values() {
        let portal = Portal::of(port, context);
        for chain in PortalChain::ALL {
            let rules = portal.rules(chain);
            if !rules.is_empty() {
                groups.entry(chain).or_default().push(rules);
            }
        }
        plan.proxies
            .extend(portal.proxies.into_iter().map(ProxyChange::Set));
    }
    close_others(&mut plan, observed);
    let kernel = ObservedChains {
        tables: parse(&observed.save),
        ports: (observed.open.iter())
            .filter_map(|(name, port)| Some((name.to_string(), (*port)?)))
            .collect(),
    };
    let mut writer = UserspaceWriter::default();
    for chain in PortalChain::ALL {
        let wanted = groups.remove(&chain).unwrap_or_default();
        if found == ObservedPolicy::Replace || !kernel.has(chain, &wanted) {
            let rules: Vec<String> = wanted.into_iter().flatten().collect();
            writer.section(chain.table()).fill(chain.name(), &rules);
        }
    }
    if let Some((chain, rules)) = egress(context)
        && !kernel.is(TableName::Nat, chain, &rules)
    {
        writer.section(TableName::Nat).fill(chain, &rules);
    }
    if !kernel.is(TableName::Mangle, CANARY, &[]) {
        writer.section(TableName::Mangle).declare(CANARY);
    }
    ways_in(&mut writer, &kernel, context);
    plan.rules = writer.finish();
    plan
}

/// Closes the proxies that are open and not in the plan.
pub(super) fn close_others(plan: &mut UserspacePlan, observed: &UserspaceObserved) {
    let wanted: BTreeSet<_> = (plan.proxies.iter())
        .filter_map(|change| match change {
            ProxyChange::Set(proxy) => Some(&proxy.name),
            ProxyChange::Close(_) => None,
        })
        .collect();
    let gone = observed.open.keys().filter(|name| !wanted.contains(name));
    let gone: Vec<_> = gone.cloned().map(ProxyChange::Close).collect();
    plan.proxies.extend(gone);
}

/// The jumps from the built-in chains. Those that are there are not moved: others may have put theirs before on purpose. Others that lead to
/// our chains are of an earlier run with other settings, and go.
fn ways_in(writer: &mut UserspaceWriter, kernel: &ObservedChains<'_>, context: &UserspaceContext) {
    let wanted = jumps(context);
    let is_wanted = |table: TableName, rule: &SavedRule<'_>| {
        let is = |args: &str| canonical(rule.args) == args;
        let mut same = wanted.iter().filter(|jump| jump.table == table);
        same.any(|jump| jump.from == rule.chain && is(&jump.rule))
    };
    for table in TableName::ALL {
        for rule in kernel.built_in_rules(table) {
            let leads_here = rule.targets().any(|target| {
                let mut ours = wanted.iter().filter(|jump| jump.table == table);
                ours.any(|jump| jump.to == target)
            });
            if leads_here && rule.is_repeatable() && !is_wanted(table, &rule) {
                writer.gone(table).delete(rule.chain, rule.args);
            }
        }
    }
    for jump in &wanted {
        let mut there = kernel.built_in_rules(jump.table);
        if !there.any(|rule| rule.chain == jump.from && canonical(rule.args) == jump.rule) {
            writer.add_jump(jump);
        }
    }
}

/// What is in the kernel.
struct ObservedChains<'a> {
    tables: Vec<SavedTable<'a>>,
    /// The numbers of the ports that rules name.
    ports: HashMap<String, u16>,
}

impl<'a> ObservedChains<'a> {
    fn table(&self, table: TableName) -> Option<&SavedTable<'a>> {
        self.tables.iter().find(|t| t.name == table.as_str())
    }

    fn built_in_rules(&self, table: TableName) -> impl Iterator<Item = SavedRule<'a>> {
        self.table(table).into_iter().flat_map(|table| {
            let built_in = table.built_in();
            let rules = table.rules.iter().copied();
            rules.filter(move |rule| built_in.contains(&rule.chain))
        })
    }

    /// The rules of a chain; none if it is not there.
    fn rules(&self, table: TableName, name: &str) -> Option<Vec<&'a str>> {
        let table = self.table(table)?;
        table.chains.iter().find(|chain| chain.name == name)?;
        let rules = table.rules.iter().filter(|rule| rule.chain == name);
        Some(rules.map(|rule| rule.args).collect())
    }

    /// A chain has exactly these rules, in this order.
    fn is(&self, table: TableName, name: &str, rules: &[String]) -> bool {
        self.rules(table, name).is_some_and(|found| {
            found.len() == rules.len()
                && (found.iter().zip(rules)).all(|(found, wanted)| canonical(found) == *wanted)
        })
    }

    /// A chain has the rules of these service ports and no others. The order of services means nothing: no two claim the same address.
    fn has(&self, chain: PortalChain, wanted: &[Vec<String>]) -> bool {
        let Some(found) = self.rules(chain.table(), chain.name()) else {
            return false;
        };
        if found.len() != wanted.iter().map(Vec::len).sum::<usize>() {
            return false;
        }
        let mut places: HashMap<String, usize> = HashMap::with_capacity(found.len());
        for (place, rule) in found.iter().enumerate() {
            places.insert(canonical(rule).into_owned(), place);
        }
        wanted.iter().all(|group| {
            let place = |rule: &String| {
                let filled = fill_in(rule, |name| self.ports.get(name).copied())?;
                places.get(&*filled).copied()
            };
            let mut last = None;
            group.iter().all(|rule| {
                let place = place(rule);
                let follows = place.is_some() && place > last;
                last = place;
                follows
            })
        })
    }
}
