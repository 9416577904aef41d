//! Turns a transaction into differences.

use std::collections::BTreeMap;

use super::Difference;
use crate::dialect::nft::{Element, ElementKey, NftObserved, NftOp, SetSpec, Transaction, keyword};

/// What a full plan would change in the table that was found.
pub fn differences(plan: &Transaction, observed: &NftObserved) -> Vec<Difference> {
    let mut collected = NftDifferences {
        plan,
        observed,
        family: keyword(plan.family),
        entries: BTreeMap::new(),
    };
    plan.ops.iter().for_each(|op| collected.op(op));
    let entries = collected.entries.into_iter();
    let made = entries.map(|((place, _), (found, wanted))| Difference::new(place, found, wanted));
    made.collect()
}

/// By place, then by what is the same on both sides: the key of an element, nothing for a chain.
type DifferenceEntries = BTreeMap<(String, Option<ElementKey>), (Vec<String>, Vec<String>)>;

struct NftDifferences<'a> {
    plan: &'a Transaction,
    observed: &'a NftObserved,
    family: &'static str,
    entries: DifferenceEntries,
}

impl NftDifferences<'_> {
    fn op(&mut self, op: &NftOp) {
        match op {
            // Harmless where the table is there, and then no difference.
            NftOp::AddTable if self.observed.exists => {}
            NftOp::AddTable => self.wanted("table".into(), None, self.text(op)),
            NftOp::DeleteTable => {
                let odd = self.observed.oddities.join("; ");
                let why = if odd.is_empty() {
                    "structure differs from ours".into()
                } else {
                    odd
                };
                self.found("table".into(), None, why);
            }
            NftOp::DeleteOtherTable(name) => {
                self.found(format!("table {} {name}", self.family), None, self.text(op));
            }
            NftOp::AddSet(set) => self.wanted(self.set(set), None, self.text(op)),
            NftOp::AddChain(chain) if self.observed.chains.contains_key(&*chain.name) => {}
            NftOp::AddChain(chain) => self.wanted(self.chain(&chain.name), None, self.text(op)),
            NftOp::FlushChain(name) => self.flushed(name),
            NftOp::DeleteChain(name) => self.found(self.chain(name), None, self.text(op)),
            NftOp::AddRule(name, _) => self.wanted(self.chain(name), None, self.text(op)),
            NftOp::AddElements(set, elements) => {
                for element in elements {
                    let op = NftOp::AddElements(*set, vec![element.clone()]);
                    self.wanted(self.set(set), Some(&element.key), self.text(&op));
                }
            }
            NftOp::DeleteElements(set, elements) => {
                for element in elements {
                    self.found(self.set(set), Some(&element.key), self.gone(set, element));
                }
            }
        }
    }

    /// The rules of a chain that is rewritten. Only their number is shown: bytecode is not readable.
    fn flushed(&mut self, name: &str) {
        let rules = self
            .observed
            .chains
            .get(name)
            .map_or(0, |chain| chain.rules.len());
        if rules > 0 {
            self.found(
                self.chain(name),
                None,
                format!("{rules} rules, some of them foreign"),
            );
        }
    }

    /// An element as it was found, with the value that a plan to remove it need not name.
    fn gone(&self, set: &SetSpec, element: &Element) -> String {
        let there = self.observed.sets.get(set.name);
        let there = there.and_then(|set| set.elements.get(&element.key));
        let whole = match there {
            Some(there) => Element {
                data: there.data.clone(),
                comment: there.comment.clone(),
                ..element.clone()
            },
            None => element.clone(),
        };
        self.text(&NftOp::AddElements(*set, vec![whole]))
    }

    fn found(&mut self, place: String, key: Option<&ElementKey>, text: String) {
        self.entries
            .entry((place, key.cloned()))
            .or_default()
            .0
            .push(text);
    }

    fn wanted(&mut self, place: String, key: Option<&ElementKey>, text: String) {
        self.entries
            .entry((place, key.cloned()))
            .or_default()
            .1
            .push(text);
    }

    fn set(&self, set: &SetSpec) -> String {
        let kind = if set.data.is_some() { "map" } else { "set" };
        format!("{kind} {} {} {}", self.family, self.plan.table, set.name)
    }

    fn chain(&self, name: &str) -> String {
        format!("chain {} {} {name}", self.family, self.plan.table)
    }

    /// An operation's text without the verb.
    fn text(&self, op: &NftOp) -> String {
        let alone = Transaction {
            family: self.plan.family,
            table: self.plan.table.clone(),
            ops: vec![op.clone()],
            notes: Vec::new(),
        };
        let text = alone.to_string();
        let text = text.trim_end();
        text.split_once(' ')
            .map_or(text, |(_, rest)| rest)
            .to_owned()
    }
}
