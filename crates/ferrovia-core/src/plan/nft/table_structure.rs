//! What elements stand in: the table, its sets, and its chains with their rules. What is there and right is left alone.

use std::collections::{BTreeSet, HashMap};

use super::base_chains::NftChainRules;
use super::element_changes::ElementChanges;
use super::layout::NftSetId;
use super::{NftPlanner, pick_element};
use crate::desired::Desired;
use crate::dialect::nft::bytecode::{Expr, lower};
use crate::dialect::nft::{ElementData, Hook, NftName, NftObserved, NftOp, NftVerdict};

impl NftPlanner {
    /// The observed table can be changed in place: the kernel cannot change the type of a set or the hook of a chain.
    pub(super) fn structure_fits(&self, desired: &Desired, observed: &NftObserved) -> bool {
        let sets_fit = observed.sets.iter().all(|(name, found)| {
            let wanted = self.sets().find(|set| set.name() == name);
            wanted.is_some_and(|set| found.is_made_by(&self.spec(set)))
        });
        let hooks: HashMap<NftName, Option<Hook>> = self
            .base_chains(&desired.node)
            .into_iter()
            .map(|wanted| (wanted.chain.name, wanted.chain.hook))
            .collect();
        let hooks_fit = observed
            .chains
            .iter()
            .all(|(name, found)| found.hook == hooks.get(name.as_str()).copied().flatten());
        observed.exists && observed.oddities.is_empty() && sets_fit && hooks_fit
    }

    /// The table with its sets. One that does not fit goes, in the same transaction.
    pub(super) fn make_table(&self, observed: &NftObserved, fits: bool) -> Vec<NftOp> {
        let mut ops = Vec::new();
        if !fits {
            if observed.exists {
                ops.push(NftOp::DeleteTable);
            }
            ops.push(NftOp::AddTable);
        }
        let missing = self
            .sets()
            .filter(|set| !fits || !observed.sets.contains_key(set.name()));
        ops.extend(missing.map(|set| NftOp::AddSet(self.spec(set))));
        ops
    }

    /// All chains with their rules; what is there and right is left alone.
    pub(super) fn make_chains(&mut self, desired: &Desired, kernel: &NftObserved) -> Vec<NftOp> {
        let mut wanted: Vec<NftChainRules> = self.needed_chains().collect();
        self.pick_chains = wanted
            .iter()
            .map(|chain| chain.chain.name.clone())
            .collect();
        wanted.extend(self.base_chains(&desired.node));
        let (mut chains, mut rules) = (Vec::new(), Vec::new());
        for wanted in &wanted {
            match kernel.chains.get(&*wanted.chain.name) {
                None => {
                    chains.push(NftOp::AddChain(wanted.chain.clone()));
                    rules.extend(add_rules(wanted));
                }
                Some(found) if self.is_same(wanted, &found.rules) => {}
                Some(_) => rules.extend(rewrite(wanted)),
            }
        }
        chains.append(&mut rules);
        chains.extend(self.remove_foreign_chains(&wanted, kernel));
        chains
    }

    /// Removes chains that should not be there: at once, or, if an element leads to them, when that has gone.
    fn remove_foreign_chains(
        &mut self,
        wanted: &[NftChainRules],
        kernel: &NftObserved,
    ) -> Vec<NftOp> {
        let wanted: BTreeSet<&str> = wanted.iter().map(|chain| &*chain.chain.name).collect();
        let picks = kernel
            .sets
            .get(NftSetId::Picks.name())
            .into_iter()
            .flat_map(|set| set.elements.values());
        let led_to: BTreeSet<&str> = picks
            .filter_map(|element| match &element.data {
                Some(ElementData::Verdict(NftVerdict::Goto(chain) | NftVerdict::Jump(chain))) => {
                    Some(&**chain)
                }
                _ => None,
            })
            .collect();
        let foreign = kernel
            .chains
            .keys()
            .filter(|name| !wanted.contains(name.as_str()));
        let (later, now): (Vec<_>, Vec<_>) = foreign
            .map(|name| NftName::from(name.clone()))
            .partition(|name| led_to.contains(&**name));
        self.pick_chains.extend(later.iter().cloned());
        self.retired.extend(later);
        remove_chains(now)
    }

    fn is_same(&self, wanted: &NftChainRules, found: &[Vec<Expr>]) -> bool {
        wanted.rules.len() == found.len()
            && wanted
                .rules
                .iter()
                .zip(found)
                .all(|(rule, found)| lower(rule, self.family) == *found)
    }

    /// The chains of all selectors in use.
    pub(super) fn needed_chains(&self) -> impl Iterator<Item = NftChainRules> {
        let mut seen = BTreeSet::new();
        self.registry
            .classes
            .iter()
            .flat_map(|(pick, _)| pick.chains())
            .filter(move |chain| seen.insert(chain.chain.name.clone()))
    }

    /// Chains and map elements for new selector classes.
    pub(super) fn fresh_picks(&mut self, changes: &mut ElementChanges) -> Vec<NftOp> {
        let (mut chains, mut rules) = (Vec::new(), Vec::new());
        for (pick, number) in self.registry.classes.take_fresh() {
            changes.add(NftSetId::Picks, pick_element(pick, number));
            for wanted in pick.chains() {
                let name = &wanted.chain.name;
                let was_retired = self.retired.remove(name);
                if self.pick_chains.insert(name.clone()) {
                    chains.push(NftOp::AddChain(wanted.chain.clone()));
                    rules.extend(add_rules(&wanted));
                } else if was_retired {
                    // It may hold rules of another process or of an older version.
                    rules.extend(rewrite(&wanted));
                }
            }
        }
        chains.append(&mut rules);
        chains
    }
}

/// They may lead to each other, so all are emptied before the first goes.
pub(super) fn remove_chains(names: Vec<NftName>) -> Vec<NftOp> {
    let mut ops: Vec<NftOp> = names.iter().cloned().map(NftOp::FlushChain).collect();
    ops.extend(names.into_iter().map(NftOp::DeleteChain));
    ops
}

fn add_rules(wanted: &NftChainRules) -> impl Iterator<Item = NftOp> {
    wanted
        .rules
        .iter()
        .map(|rule| NftOp::AddRule(wanted.chain.name.clone(), rule.clone()))
}

/// A chain with other rules than before.
pub(super) fn rewrite(wanted: &NftChainRules) -> impl Iterator<Item = NftOp> {
    [NftOp::FlushChain(wanted.chain.name.clone())]
        .into_iter()
        .chain(add_rules(wanted))
}
