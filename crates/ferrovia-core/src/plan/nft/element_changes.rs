//! Collects changes to elements by set.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::layout::NftSetId;
use crate::dialect::nft::{Element, ElementKey, NftOp, ObservedElement, ObservedSet};
use crate::family::Family;

/// Elements to take out and to put in.
#[derive(Debug, Default)]
pub(super) struct ElementChanges {
    sets: BTreeMap<NftSetId, SetChanges>,
}

#[derive(Debug, Default)]
struct SetChanges {
    deletes: Vec<Element>,
    adds: Vec<Element>,
}

impl ElementChanges {
    pub(super) fn add(&mut self, set: NftSetId, element: Element) {
        self.sets.entry(set).or_default().adds.push(element);
    }

    pub(super) fn delete(&mut self, set: NftSetId, element: Element) {
        let element = Element {
            data: None,
            comment: None,
            ..element
        };
        self.sets.entry(set).or_default().deletes.push(element);
    }

    /// Adds the changes from the observed elements of a set to the desired ones. Other elements are deleted if `may_go` allows it.
    pub(super) fn compare(
        &mut self,
        set: NftSetId,
        wanted: Vec<Element>,
        observed: Option<&ObservedSet>,
        may_go: impl Fn(&ElementKey) -> bool,
    ) {
        let Some(observed) = observed.filter(|observed| !observed.elements.is_empty()) else {
            self.sets.entry(set).or_default().adds.extend(wanted);
            return;
        };
        let mut leftover: HashSet<&ElementKey> = observed.elements.keys().collect();
        for element in wanted {
            leftover.remove(&element.key);
            match observed.elements.get(&element.key) {
                Some(found) if is_same(&element, found) => continue,
                Some(found) => {
                    let old = Element {
                        key_end: found.key_end.clone(),
                        ..Element::member(element.key.clone())
                    };
                    self.delete(set, old);
                }
                None => {}
            }
            self.add(set, element);
        }
        let mut gone: Vec<Element> = leftover
            .into_iter()
            .filter(|key| may_go(key))
            .filter_map(|key| {
                let found = observed.elements.get(key)?;
                Some(Element {
                    key_end: found.key_end.clone(),
                    ..Element::member(key.clone())
                })
            })
            .collect();
        gone.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        gone.into_iter()
            .for_each(|element| self.delete(set, element));
    }

    /// The operations: in each set, what goes makes room for what comes.
    pub(super) fn into_ops(mut self, family: Family) -> Vec<NftOp> {
        let mut ops = Vec::new();
        for set in NftSetId::ALL {
            let Some(SetChanges { deletes, adds }) = self.sets.remove(&set) else {
                continue;
            };
            let spec = set.spec(family);
            if !deletes.is_empty() {
                ops.push(NftOp::DeleteElements(spec, deletes));
            }
            if !adds.is_empty() {
                ops.push(NftOp::AddElements(spec, adds));
            }
        }
        ops
    }
}

fn is_same(wanted: &Element, found: &ObservedElement) -> bool {
    wanted.data == found.data && wanted.key_end == found.key_end && wanted.comment == found.comment
}

/// Elements that several service ports may ask for, with the number of those that do.
#[derive(Debug, Default)]
pub(super) struct SharedElements {
    users: BTreeMap<NftSetId, HashMap<ElementKey, u32>>,
}

impl SharedElements {
    /// One more user; true for the first.
    pub(super) fn acquire(&mut self, set: NftSetId, key: &ElementKey) -> bool {
        let of_set = self.users.entry(set).or_default();
        let users = of_set.entry(key.clone()).or_default();
        *users += 1;
        *users == 1
    }

    /// One user less; true for the last.
    pub(super) fn release(&mut self, set: NftSetId, key: &ElementKey) -> bool {
        let of_set = self.users.entry(set).or_default();
        match of_set.get_mut(key) {
            Some(users) if *users > 1 => {
                *users -= 1;
                false
            }
            Some(_) => {
                of_set.remove(key);
                true
            }
            None => false,
        }
    }
}
