//! The nftables mode: flat maps, a handful of shared chains, one transaction per change.
//!
//! Read [`layout`] first: it lists the maps and explains the ids in `meta priority`. `base_chains.rs` has the fixed chains and
//! `endpoint_selector.rs` the shared ones that select an endpoint. `service_elements.rs`, `endpoint_lists.rs` and `slots.rs` turn a service port into
//! elements; `share.rs` limits the selector classes of a namespace. `adopt.rs` adopts the table of an earlier run; `known_services.rs` says which elements to keep while some services are unknown.
//! `table_structure.rs` creates table, sets and chains, and `element_changes.rs` collects changed elements. `connection_counts.rs` counts connections,
//! `sweep.rs` evicts entries of dynamic sets, `view.rs` and `packet_lookup.rs` read the table back. This file is the planner.

mod adopt;
mod base_chains;
pub mod connection_counts;
mod element_changes;
mod endpoint_lists;
mod endpoint_selector;
mod known_services;
pub mod layout;
pub mod packet_lookup;
mod service_elements;
mod share;
mod slots;
pub mod sweep;
mod table_structure;
#[cfg(test)]
mod tests;
pub mod view;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use self::base_chains::NftChainRules;
use self::element_changes::{ElementChanges, SharedElements};
use self::endpoint_lists::{ListRegistry, PortLists};
use self::known_services::KnownServices;
use self::layout::{NftSetId, TABLE};
use self::table_structure::{remove_chains, rewrite};
use super::{ObservedPolicy, Plan, Planner};
use crate::desired::{Delta, Desired, NodePortAddresses, NodeRules, PortChange, ServicePort};
use crate::dialect::nft::{
    Element, ElementKey, KeyBuilder, NftName, NftObserved, NftOp, NftVerdict, SetSpec, Transaction,
};
use crate::family::Family;
use crate::model::{PortKey, Warning};

/// Plans one family's table. Keeps allocated numbers, lists and selector classes between plans.
#[derive(Debug)]
pub struct NftPlanner {
    family: Family,
    counters: bool,
    node: Option<NodeRules>,
    registry: ListRegistry,
    lists: HashMap<PortKey, PortLists>,
    shared: SharedElements,
    /// Selector chains in the kernel.
    pick_chains: BTreeSet<NftName>,
    /// Selector chains without references, to be deleted.
    retired: BTreeSet<NftName>,
}

impl Plan for Transaction {
    fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl Planner for NftPlanner {
    type Observed = NftObserved;
    type Plan = Transaction;

    fn full(
        &mut self,
        desired: &Desired,
        observed: &NftObserved,
        found: ObservedPolicy,
    ) -> Transaction {
        let fits = found != ObservedPolicy::Replace && self.structure_fits(desired, observed);
        let nothing = NftObserved::default();
        let kernel = if fits { observed } else { &nothing };
        let keep = found == ObservedPolicy::KeepUnknown;
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
        let known = keep.then(|| KnownServices::new(desired, numbers));
        // All selector classes are written below, also unused ones, which `deferred_removals` deletes later.
        self.registry.classes.take_fresh();
        wanted.insert(NftSetId::Picks, self.pick_elements());

        let mut ops = self.make_table(observed, fits);
        ops.extend(self.make_chains(desired, kernel));
        let mut changes = ElementChanges::default();
        for set in self.sets() {
            let wanted = wanted.remove(&set).unwrap_or_default();
            let may_go = |key: &ElementKey| known.as_ref().is_none_or(|known| known.owns(set, key));
            changes.compare(set, wanted, kernel.sets.get(set.name()), may_go);
        }
        ops.extend(changes.into_ops(self.family));
        let predecessors = observed.predecessors.iter();
        ops.extend(predecessors.map(|table| NftOp::DeleteOtherTable(table.clone().into())));
        self.transaction(ops, notes)
    }

    fn incremental(&mut self, desired: &Desired, delta: &Delta) -> Transaction {
        let mut changes = ElementChanges::default();
        let mut notes = Vec::new();
        let mut ops = if delta.node {
            self.change_node(&desired.node, &mut changes)
        } else {
            Vec::new()
        };
        // Deletions before additions: a frontend may move from one service to another.
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

    fn has_deferred_removals(&self) -> bool {
        self.registry.classes.has_unused() || !self.retired.is_empty()
    }

    /// Deletes what no list uses. Kernels before 6.2 count a map element's reference to a chain until the transaction that deleted it
    /// ends, so elements are deleted in one step and chains in the next.
    fn deferred_removals(&mut self) -> Transaction {
        let retired = std::mem::take(&mut self.retired);
        self.pick_chains.retain(|chain| !retired.contains(chain));
        let mut ops = remove_chains(retired.into_iter().collect());
        let mut changes = ElementChanges::default();
        for (pick, number) in self.registry.classes.take_unused() {
            changes.delete(
                NftSetId::Picks,
                Element::member(KeyBuilder::new().number(number).build()),
            );
            self.retired.insert(pick.chain());
        }
        let needed: BTreeSet<NftName> =
            self.needed_chains().map(|chain| chain.chain.name).collect();
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
    /// A planner that needs a full plan first. `counters`: count connections and refusals.
    pub fn new(family: Family, counters: bool) -> Self {
        Self {
            family,
            counters,
            node: None,
            registry: ListRegistry::default(),
            lists: HashMap::new(),
            shared: SharedElements::default(),
            pick_chains: BTreeSet::new(),
            retired: BTreeSet::new(),
        }
    }

    fn transaction(&mut self, ops: Vec<NftOp>, mut notes: Vec<String>) -> Transaction {
        notes.append(&mut self.registry.notes);
        Transaction {
            family: self.family,
            table: TABLE.into(),
            ops,
            notes,
        }
    }

    fn spec(&self, set: NftSetId) -> SetSpec {
        set.spec(self.family)
    }

    fn sets(&self) -> impl Iterator<Item = NftSetId> {
        let counters = self.counters;
        NftSetId::ALL
            .into_iter()
            .filter(move |set| counters || !set.counts())
    }

    /// The desired fixed chains.
    fn base_chains(&self, node: &NodeRules) -> Vec<NftChainRules> {
        base_chains::chains(node, self.family, self.counters)
    }

    fn all_elements(
        &mut self,
        desired: &Desired,
        mut adopted: HashMap<PortKey, PortLists>,
        notes: &mut Vec<String>,
    ) -> BTreeMap<NftSetId, Vec<Element>> {
        let mut wanted: BTreeMap<NftSetId, Vec<Element>> = BTreeMap::new();
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
            NftSetId::NodePortIps,
            node_port_ips.map(|ip| ip_element(*ip)).collect(),
        );
        wanted
    }

    /// Allocates the lists of a port and returns all its elements.
    fn place(
        &mut self,
        lists: PortLists,
        port: &ServicePort,
        notes: &mut Vec<String>,
    ) -> Vec<(NftSetId, Element)> {
        let lists = lists
            .update(port, &mut self.registry)
            .unwrap_or_else(|_exhausted| {
                notes.push(format!(
                    "{}: no free service port number; it is served without endpoints",
                    port.key
                ));
                PortLists::default()
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

    fn elements_before(&self, change: &PortChange) -> Vec<(NftSetId, Element)> {
        match (&change.old, self.lists.get(&change.key)) {
            (Some(port), Some(lists)) => lists.all_elements(port),
            _ => Vec::new(),
        }
    }

    fn elements_after(
        &mut self,
        change: &PortChange,
        notes: &mut Vec<String>,
    ) -> Vec<(NftSetId, Element)> {
        let lists = self.lists.remove(&change.key).unwrap_or_default();
        match &change.new {
            Some(port) => self.place(lists, port, notes),
            None => {
                self.registry.release(&change.key, &lists);
                Vec::new()
            }
        }
    }

    /// Records the difference between two states of a port.
    fn compare(
        &mut self,
        before: Vec<(NftSetId, Element)>,
        after: Vec<(NftSetId, Element)>,
        changes: &mut ElementChanges,
    ) {
        let mut gone: HashMap<(NftSetId, ElementKey), Element> = before
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

    /// Rewrites the fixed chains that differ under the new node settings.
    fn change_node(&mut self, node: &NodeRules, changes: &mut ElementChanges) -> Vec<NftOp> {
        let Some(old) = self.node.replace(node.clone()) else {
            return Vec::new();
        };
        let (before, after) = (node_port_ips(&old), node_port_ips(node));
        for ip in after.difference(before) {
            changes.add(NftSetId::NodePortIps, ip_element(*ip));
        }
        for ip in before.difference(after) {
            changes.delete(NftSetId::NodePortIps, ip_element(*ip));
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

fn pick_element(pick: endpoint_selector::EndpointSelector, number: u32) -> Element {
    Element::verdict(
        KeyBuilder::new().number(number).build(),
        NftVerdict::Goto(pick.chain()),
    )
}

/// The addresses that node ports listen on; empty for all.
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
