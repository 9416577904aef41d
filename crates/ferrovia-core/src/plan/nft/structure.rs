//! What elements stand in: the table, its sets, and its chains with their rules. What is there and right is left alone.

use std::collections::{BTreeSet, HashMap};

use super::base::ChainRules;
use super::changes::Changes;
use super::layout::SetId;
use super::{NftPlanner, pick_element};
use crate::desired::Desired;
use crate::dialect::nft::bytecode::{Expr, lower};
use crate::dialect::nft::{Data, Hook, Name, Observed, Op, Verdict};

impl NftPlanner {
    /// What is there can be changed into what is wanted: a set or a hook cannot change its nature.
    pub(super) fn structure_fits(&self, desired: &Desired, observed: &Observed) -> bool {
        let sets_fit = observed.sets.iter().all(|(name, found)| {
            let wanted = self.sets().find(|set| set.name() == name);
            wanted.is_some_and(|set| found.is_made_by(&self.spec(set)))
        });
        let hooks: HashMap<Name, Option<Hook>> = self
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
    pub(super) fn make_table(&self, observed: &Observed, fits: bool) -> Vec<Op> {
        let mut ops = Vec::new();
        if !fits {
            if observed.exists {
                ops.push(Op::DeleteTable);
            }
            ops.push(Op::AddTable);
        }
        let missing = self
            .sets()
            .filter(|set| !fits || !observed.sets.contains_key(set.name()));
        ops.extend(missing.map(|set| Op::AddSet(self.spec(set))));
        ops
    }

    /// All chains with their rules; what is there and right is left alone.
    pub(super) fn make_chains(&mut self, desired: &Desired, kernel: &Observed) -> Vec<Op> {
        let mut wanted: Vec<ChainRules> = self.needed_chains().collect();
        self.pick_chains = wanted
            .iter()
            .map(|chain| chain.chain.name.clone())
            .collect();
        wanted.extend(self.base_chains(&desired.node));
        let (mut chains, mut rules) = (Vec::new(), Vec::new());
        for wanted in &wanted {
            match kernel.chains.get(&*wanted.chain.name) {
                None => {
                    chains.push(Op::AddChain(wanted.chain.clone()));
                    rules.extend(add_rules(wanted));
                }
                Some(found) if self.is_same(wanted, &found.rules) => {}
                Some(_) => rules.extend(rewrite(wanted)),
            }
        }
        chains.append(&mut rules);
        chains.extend(self.remove_strangers(&wanted, kernel));
        chains
    }

    /// Removes chains that should not be there: at once, or, if an element leads to them, when that has gone.
    fn remove_strangers(&mut self, wanted: &[ChainRules], kernel: &Observed) -> Vec<Op> {
        let wanted: BTreeSet<&str> = wanted.iter().map(|chain| &*chain.chain.name).collect();
        let picks = kernel
            .sets
            .get(SetId::Picks.name())
            .into_iter()
            .flat_map(|set| set.elements.values());
        let led_to: BTreeSet<&str> = picks
            .filter_map(|element| match &element.data {
                Some(Data::Verdict(Verdict::Goto(chain) | Verdict::Jump(chain))) => Some(&**chain),
                _ => None,
            })
            .collect();
        let strangers = kernel
            .chains
            .keys()
            .filter(|name| !wanted.contains(name.as_str()));
        let (later, now): (Vec<_>, Vec<_>) = strangers
            .map(|name| Name::from(name.clone()))
            .partition(|name| led_to.contains(&**name));
        self.pick_chains.extend(later.iter().cloned());
        self.retired.extend(later);
        remove_chains(now)
    }

    fn is_same(&self, wanted: &ChainRules, found: &[Vec<Expr>]) -> bool {
        wanted.rules.len() == found.len()
            && wanted
                .rules
                .iter()
                .zip(found)
                .all(|(rule, found)| lower(rule, self.family) == *found)
    }

    /// The chains of all ways to pick that are in use.
    pub(super) fn needed_chains(&self) -> impl Iterator<Item = ChainRules> {
        let mut seen = BTreeSet::new();
        self.registry
            .classes
            .iter()
            .flat_map(|(pick, _)| pick.chains())
            .filter(move |chain| seen.insert(chain.chain.name.clone()))
    }

    /// Chains and map elements for ways to pick that have just come up.
    pub(super) fn fresh_picks(&mut self, changes: &mut Changes) -> Vec<Op> {
        let (mut chains, mut rules) = (Vec::new(), Vec::new());
        for (pick, number) in self.registry.classes.take_fresh() {
            changes.add(SetId::Picks, pick_element(pick, number));
            for wanted in pick.chains() {
                let name = &wanted.chain.name;
                let was_retired = self.retired.remove(name);
                if self.pick_chains.insert(name.clone()) {
                    chains.push(Op::AddChain(wanted.chain.clone()));
                    rules.extend(add_rules(&wanted));
                } else if was_retired {
                    // What is in it may be somebody else's, or an older version's.
                    rules.extend(rewrite(&wanted));
                }
            }
        }
        chains.append(&mut rules);
        chains
    }
}

/// They may lead to each other, so all are emptied before the first goes.
pub(super) fn remove_chains(names: Vec<Name>) -> Vec<Op> {
    let mut ops: Vec<Op> = names.iter().cloned().map(Op::FlushChain).collect();
    ops.extend(names.into_iter().map(Op::DeleteChain));
    ops
}

fn add_rules(wanted: &ChainRules) -> impl Iterator<Item = Op> {
    wanted
        .rules
        .iter()
        .map(|rule| Op::AddRule(wanted.chain.name.clone(), rule.clone()))
}

/// A chain with other rules than before.
pub(super) fn rewrite(wanted: &ChainRules) -> impl Iterator<Item = Op> {
    [Op::FlushChain(wanted.chain.name.clone())]
        .into_iter()
        .chain(add_rules(wanted))
}
