//! The nftables mode: flat maps, a handful of shared chains, one transaction a change.
//!
//! Read [`layout`] first: it says which maps there are and what an id in `meta priority` is. `base.rs` holds the fixed chains, `pick.rs` the
//! shared ones that choose an endpoint, `service.rs`, `lists.rs` and `slots.rs` turn a service port into elements, `share.rs` keeps namespaces from taking each other's classes, `adopt.rs` takes over what
//! an earlier run left and `known.rs` says what of it to spare, `structure.rs` makes table, sets and chains, `changes.rs` gathers the elements
//! that differ, `count.rs` counts connections, `sweep.rs` decides what goes from the sets that packets fill, `view.rs` and `walk.rs` read it all back. This file is the order of work.

mod adopt;
mod base;
mod changes;
pub mod count;
mod known;
pub mod layout;
mod lists;
mod pick;
mod service;
mod share;
mod slots;
mod structure;
pub mod sweep;
#[cfg(test)]
mod tests;
pub mod view;
pub mod walk;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use self::base::ChainRules;
use self::changes::{Changes, Shared};
use self::known::Known;
use self::layout::{SetId, TABLE};
use self::lists::{Lists, Registry};
use self::structure::{remove_chains, rewrite};
use super::{Found, Plan, Planner};
use crate::desired::{Delta, Desired, NodePortAddresses, NodeRules, PortChange, ServicePort};
use crate::dialect::nft::{
    Element, Key, KeyBuilder, Name, Observed, Op, SetSpec, Transaction, Verdict,
};
use crate::family::Family;
use crate::model::{PortKey, Warning};

/// Plans one family's table.
#[derive(Debug)]
pub struct NftPlanner {
    family: Family,
    counters: bool,
    node: Option<NodeRules>,
    registry: Registry,
    lists: HashMap<PortKey, Lists>,
    shared: Shared,
    /// Chains for ways to pick that are in the kernel.
    pick_chains: BTreeSet<Name>,
    /// Those of them that nothing leads to any more.
    retired: BTreeSet<Name>,
}

impl Plan for Transaction {
    fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl Planner for NftPlanner {
    type Observed = Observed;
    type Plan = Transaction;

    fn full(&mut self, desired: &Desired, observed: &Observed, found: Found) -> Transaction {
        let fits = found != Found::Replace && self.structure_fits(desired, observed);
        let nothing = Observed::default();
        let kernel = if fits { observed } else { &nothing };
        let keep = found == Found::Keep;
        let (registry, adopted) = adopt::adopt(desired, kernel, keep);
        *self = Self {
            registry,
            ..Self::new(self.family, self.counters)
        };
        self.node = Some(NodeRules::clone(&desired.node));

        let mut numbers: HashSet<u32> = adopted.values().filter_map(|lists| lists.number).collect();
        let mut notes = Vec::new();
        let mut wanted = self.all_elements(desired, adopted, &mut notes);
        numbers.extend(self.lists.values().filter_map(|lists| lists.number));
        let known = keep.then(|| Known::new(desired, numbers));
        // All ways to pick are written below, also those that nobody uses any more: removing them is left to `tidy`.
        self.registry.classes.take_fresh();
        wanted.insert(SetId::Picks, self.pick_elements());

        let mut ops = self.make_table(observed, fits);
        ops.extend(self.make_chains(desired, kernel));
        let mut changes = Changes::default();
        for set in self.sets() {
            let wanted = wanted.remove(&set).unwrap_or_default();
            let may_go = |key: &Key| known.as_ref().is_none_or(|known| known.owns(set, key));
            changes.compare(set, wanted, kernel.sets.get(set.name()), may_go);
        }
        ops.extend(changes.into_ops(self.family));
        let predecessors = observed.predecessors.iter();
        ops.extend(predecessors.map(|table| Op::DeleteOtherTable(table.clone().into())));
        self.transaction(ops, notes)
    }

    fn partial(&mut self, desired: &Desired, delta: &Delta) -> Transaction {
        let mut changes = Changes::default();
        let mut notes = Vec::new();
        let mut ops = if delta.node {
            self.change_node(&desired.node, &mut changes)
        } else {
            Vec::new()
        };
        // What goes before what comes: a frontend may pass from one service to another.
        let before: Vec<_> = delta
            .ports
            .iter()
            .map(|change| self.elements_before(change))
            .collect();
        for (change, before) in delta.ports.iter().zip(before) {
            let after = self.elements_after(change, &mut notes);
            self.compare(before, after, &mut changes);
        }
        ops.extend(self.fresh_picks(&mut changes));
        ops.extend(changes.into_ops(self.family));
        self.transaction(ops, notes)
    }

    fn has_leftovers(&self) -> bool {
        self.registry.classes.has_unused() || !self.retired.is_empty()
    }

    /// Removes what no list needs any more. Kernels before 6.2 count a map element's hold on a chain until the transaction that deleted it
    /// is over, so elements go in one step and chains in the next.
    fn tidy(&mut self) -> Transaction {
        let retired = std::mem::take(&mut self.retired);
        self.pick_chains.retain(|chain| !retired.contains(chain));
        let mut ops = remove_chains(retired.into_iter().collect());
        let mut changes = Changes::default();
        for (pick, number) in self.registry.classes.take_unused() {
            changes.delete(
                SetId::Picks,
                Element::member(KeyBuilder::new().number(number).build()),
            );
            self.retired.insert(pick.chain());
        }
        let needed: BTreeSet<Name> = self.needed_chains().map(|chain| chain.chain.name).collect();
        self.retired.extend(
            self.pick_chains
                .iter()
                .filter(|chain| !needed.contains(*chain))
                .cloned(),
        );
        ops.extend(changes.into_ops(self.family));
        self.transaction(ops, Vec::new())
    }

    fn take_warnings(&mut self) -> Vec<Warning> {
        std::mem::take(&mut self.registry.warnings)
    }
}

impl NftPlanner {
    /// A planner that knows nothing yet. `counters`: connections and refusals are counted.
    pub fn new(family: Family, counters: bool) -> Self {
        Self {
            family,
            counters,
            node: None,
            registry: Registry::default(),
            lists: HashMap::new(),
            shared: Shared::default(),
            pick_chains: BTreeSet::new(),
            retired: BTreeSet::new(),
        }
    }

    fn transaction(&mut self, ops: Vec<Op>, mut notes: Vec<String>) -> Transaction {
        notes.append(&mut self.registry.notes);
        Transaction {
            family: self.family,
            table: TABLE.into(),
            ops,
            notes,
        }
    }

    fn spec(&self, set: SetId) -> SetSpec {
        set.spec(self.family)
    }

    /// The sets that are wanted.
    fn sets(&self) -> impl Iterator<Item = SetId> {
        let counters = self.counters;
        SetId::ALL
            .into_iter()
            .filter(move |set| counters || !set.counts())
    }

    /// The fixed chains that are wanted.
    fn base_chains(&self, node: &NodeRules) -> Vec<ChainRules> {
        base::chains(node, self.family, self.counters)
    }

    fn all_elements(
        &mut self,
        desired: &Desired,
        mut adopted: HashMap<PortKey, Lists>,
        notes: &mut Vec<String>,
    ) -> BTreeMap<SetId, Vec<Element>> {
        let mut wanted: BTreeMap<SetId, Vec<Element>> = BTreeMap::new();
        for port in desired.ports.values() {
            let lists = adopted.remove(&port.key).unwrap_or_default();
            for (set, element) in self.place(lists, port, notes) {
                if !set.is_shared() || self.shared.acquire(set, &element.key) {
                    wanted.entry(set).or_default().push(element);
                }
            }
        }
        let node_port_ips = node_port_ips(&desired.node).iter();
        wanted.insert(
            SetId::NodePortIps,
            node_port_ips.map(|ip| ip_element(*ip)).collect(),
        );
        wanted
    }

    /// Gives a port the lists it needs and answers with all its elements.
    fn place(
        &mut self,
        lists: Lists,
        port: &ServicePort,
        notes: &mut Vec<String>,
    ) -> Vec<(SetId, Element)> {
        let lists = lists
            .update(port, &mut self.registry)
            .unwrap_or_else(|_exhausted| {
                notes.push(format!(
                    "{}: more service ports than there are numbers for; it has no endpoints",
                    port.key
                ));
                Lists::default()
            });
        let elements = lists.all_elements(port);
        self.lists.insert(port.key.clone(), lists);
        elements
    }

    fn pick_elements(&self) -> Vec<Element> {
        self.registry
            .classes
            .iter()
            .map(|(pick, number)| pick_element(pick, number))
            .collect()
    }

    fn elements_before(&self, change: &PortChange) -> Vec<(SetId, Element)> {
        match (&change.old, self.lists.get(&change.key)) {
            (Some(port), Some(lists)) => lists.all_elements(port),
            _ => Vec::new(),
        }
    }

    fn elements_after(
        &mut self,
        change: &PortChange,
        notes: &mut Vec<String>,
    ) -> Vec<(SetId, Element)> {
        let lists = self.lists.remove(&change.key).unwrap_or_default();
        match &change.new {
            Some(port) => self.place(lists, port, notes),
            None => {
                self.registry.release(&change.key, &lists);
                Vec::new()
            }
        }
    }

    /// Notes the difference between two states of a port.
    fn compare(
        &mut self,
        before: Vec<(SetId, Element)>,
        after: Vec<(SetId, Element)>,
        changes: &mut Changes,
    ) {
        let mut gone: HashMap<(SetId, Key), Element> = before
            .into_iter()
            .map(|(set, element)| ((set, element.key.clone()), element))
            .collect();
        for (set, element) in after {
            match gone.remove(&(set, element.key.clone())) {
                Some(old) if old == element => continue,
                Some(old) => changes.delete(set, old),
                None if set.is_shared() && !self.shared.acquire(set, &element.key) => continue,
                None => {}
            }
            changes.add(set, element);
        }
        let mut gone: Vec<_> = gone.into_iter().collect();
        gone.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        for ((set, key), element) in gone {
            if !set.is_shared() || self.shared.release(set, &key) {
                changes.delete(set, element);
            }
        }
    }

    /// The fixed chains that look different under the node's new rules.
    fn change_node(&mut self, node: &NodeRules, changes: &mut Changes) -> Vec<Op> {
        let Some(old) = self.node.replace(node.clone()) else {
            return Vec::new();
        };
        let (before, after) = (node_port_ips(&old), node_port_ips(node));
        for ip in after.difference(before) {
            changes.add(SetId::NodePortIps, ip_element(*ip));
        }
        for ip in before.difference(after) {
            changes.delete(SetId::NodePortIps, ip_element(*ip));
        }
        let old_chains = self.base_chains(&old);
        let new_chains = self.base_chains(node);
        old_chains
            .iter()
            .zip(&new_chains)
            .filter(|(old, new)| old != new)
            .flat_map(|(_, new)| rewrite(new))
            .collect()
    }
}

fn pick_element(pick: pick::Pick, number: u32) -> Element {
    Element::verdict(
        KeyBuilder::new().number(number).build(),
        Verdict::Goto(pick.chain()),
    )
}

/// The addresses that node ports answer on, unless all do.
fn node_port_ips(node: &NodeRules) -> &BTreeSet<IpAddr> {
    static NONE: BTreeSet<IpAddr> = BTreeSet::new();
    match &node.node_ports {
        NodePortAddresses::Any => &NONE,
        NodePortAddresses::Only(ips) => ips,
    }
}

fn ip_element(ip: IpAddr) -> Element {
    Element::member(KeyBuilder::new().ip(ip).build())
}
