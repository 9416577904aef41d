//! A stand-in for the kernel: runs transactions on a table in memory and refuses what the kernel would refuse.
//!
//! It is strict on purpose, so that planners are tested without root: unknown names, elements that are missing or there already,
//! chains that are still in use are all errors, and an error leaves the table as it was.

use std::collections::BTreeMap;

use super::bytecode::{Expr, lower};
use super::{
    Element, ElementData, NftName, NftObserved, NftOp, NftVerdict, ObservedChain, ObservedElement,
    ObservedSet, SetSpec, Transaction,
};
use crate::family::Family;

/// A table in memory.
#[derive(Clone, Debug, Default)]
pub struct NftSim {
    table: NftObserved,
}

impl NftSim {
    pub fn observe(&self) -> NftObserved {
        self.table.clone()
    }

    /// Changes the table behind everybody's back.
    #[cfg(test)]
    pub(crate) fn damage(&mut self, damage: impl FnOnce(&mut NftObserved)) {
        damage(&mut self.table);
    }

    /// Applies a transaction, all of it or nothing.
    pub fn apply(&mut self, transaction: &Transaction) -> Result<(), String> {
        if transaction.is_empty() {
            return Ok(());
        }
        let mut next = self.table.clone();
        for op in &transaction.ops {
            apply(&mut next, op, transaction.family)
                .map_err(|problem| format!("{op:?}: {problem}"))?;
        }
        check_references(&next)?;
        self.table = next;
        Ok(())
    }
}

fn apply(table: &mut NftObserved, op: &NftOp, family: Family) -> Result<(), &'static str> {
    if !table.exists && !matches!(op, NftOp::AddTable | NftOp::DeleteOtherTable(_)) {
        return Err("no such table");
    }
    match op {
        NftOp::AddTable => table.exists = true,
        NftOp::DeleteTable => {
            *table = NftObserved {
                predecessors: std::mem::take(&mut table.predecessors),
                ..NftObserved::default()
            }
        }
        NftOp::DeleteOtherTable(name) => {
            let at = table
                .predecessors
                .iter()
                .position(|other| other == name)
                .ok_or("no such table")?;
            table.predecessors.remove(at);
        }
        NftOp::AddSet(spec) => add_set(table, spec)?,
        NftOp::AddChain(chain) => {
            let new = ObservedChain {
                hook: chain.hook,
                rules: Vec::new(),
            };
            let found = table.chains.entry(chain.name.to_string()).or_insert(new);
            if found.hook != chain.hook {
                return Err("there already with another hook");
            }
        }
        NftOp::FlushChain(name) => chain(table, name)?.rules.clear(),
        NftOp::DeleteChain(name) => {
            if !chain(table, name)?.rules.is_empty() {
                return Err("has rules");
            }
            table.chains.remove(&**name);
        }
        NftOp::AddRule(name, rule) => chain(table, name)?.rules.push(lower(rule, family)),
        NftOp::AddElements(spec, elements) => {
            let set = table.sets.get_mut(spec.name).ok_or("no such set")?;
            elements
                .iter()
                .try_for_each(|element| add_element(set, spec, element))?;
        }
        NftOp::DeleteElements(spec, elements) => {
            let set = table.sets.get_mut(spec.name).ok_or("no such set")?;
            for element in elements {
                set.elements.remove(&element.key).ok_or("no such element")?;
            }
        }
    }
    Ok(())
}

fn chain<'a>(
    table: &'a mut NftObserved,
    name: &NftName,
) -> Result<&'a mut ObservedChain, &'static str> {
    table.chains.get_mut(&**name).ok_or("no such chain")
}

fn add_set(table: &mut NftObserved, spec: &SetSpec) -> Result<(), &'static str> {
    let set = ObservedSet::of(spec);
    match table.sets.insert(spec.name.to_owned(), set) {
        None => Ok(()),
        Some(_) => Err("there already"),
    }
}

fn add_element(
    set: &mut ObservedSet,
    spec: &SetSpec,
    element: &Element,
) -> Result<(), &'static str> {
    if element.key.as_bytes().len() != spec.key_len() {
        return Err("key has the wrong length");
    }
    if let Some(ElementData::Value(value)) = &element.data
        && value.as_bytes().len() != spec.data_len()
    {
        return Err("data have the wrong length");
    }
    if element.data.is_some() != spec.data.is_some() || element.key_end.is_some() != spec.interval {
        return Err("element of another kind than its set");
    }
    let new = ObservedElement {
        key_end: element.key_end.clone(),
        data: element.data.clone(),
        comment: element.comment.clone(),
    };
    match set.elements.insert(element.key.clone(), new) {
        None => Ok(()),
        Some(_) => Err("element is there already"),
    }
}

/// Every chain and set that is referred to is there.
fn check_references(table: &NftObserved) -> Result<(), String> {
    let chains: &BTreeMap<String, ObservedChain> = &table.chains;
    for (name, chain) in chains {
        for expr in chain.rules.iter().flatten() {
            let missing = match expr {
                Expr::Verdict(NftVerdict::Goto(to) | NftVerdict::Jump(to)) => {
                    (!chains.contains_key(&**to)).then_some(to)
                }
                Expr::Lookup { set, .. } | Expr::Dynset { set, .. } => {
                    (!table.sets.contains_key(&**set)).then_some(set)
                }
                _ => None,
            };
            if let Some(missing) = missing {
                return Err(format!(
                    "chain {name} refers to {missing}, which is not there"
                ));
            }
        }
    }
    for (name, set) in &table.sets {
        for element in set.elements.values() {
            if let Some(ElementData::Verdict(NftVerdict::Goto(to) | NftVerdict::Jump(to))) =
                &element.data
                && !chains.contains_key(&**to)
            {
                return Err(format!(
                    "map {name} refers to chain {to}, which is not there"
                ));
            }
        }
    }
    Ok(())
}
