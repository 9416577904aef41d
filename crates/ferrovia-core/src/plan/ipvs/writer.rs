//! Puts changes into an order in which nothing that is served stops being served.
//!
//! Sets and rules come before the servers they protect and mark, servers with their destinations before the address that brings packets to
//! them; what goes does so the other way round. A frontend whose policy changes is an exception: clients' addresses are left alone only while
//! there are no endpoints elsewhere, for answers from there would not come back by this node.

use std::collections::{BTreeMap, BTreeSet};

use super::context::Context;
use super::plan::{AddressOp, IpvsPlan, Step};
use super::rules::OUT_FILTER;
use super::sets::SetId;
use super::state::{Turned, Virtual};
use crate::dialect::ipset::{self, Entry, SetName};
use crate::dialect::iptables::{Restore, Section, TableName};
use crate::dialect::ipvs::{self, Destination, Removal, ServerKey};
use crate::family::Family;

/// A plan in the making.
pub(super) struct Writer {
    family: Family,
    /// What must be out of the way before all else.
    pub(super) first: Vec<Step>,
    pub(super) device: bool,
    /// Sets that are made, and those made anew.
    pub(super) sets: Vec<ipset::Op>,
    entries_come: BTreeSet<(SetId, Entry)>,
    entries_go: BTreeSet<(SetId, Entry)>,
    pub(super) filter: Section,
    pub(super) nat: Section,
    /// Rules of the iptables mode serve in nat: they are replaced when all else is ready.
    pub(super) nat_is_late: bool,
    out_rules_go: Vec<String>,
    out_rules_come: bool,
    /// What is left of other modes.
    pub(super) leftovers: Restore,
    servers_come: Vec<ipvs::Op>,
    servers_go: Vec<ipvs::Op>,
    addresses: Vec<AddressOp>,
    pub(super) notes: Vec<String>,
}

impl Writer {
    pub(super) fn new(family: Family) -> Self {
        Self {
            family,
            first: Vec::new(),
            device: false,
            sets: Vec::new(),
            entries_come: BTreeSet::new(),
            entries_go: BTreeSet::new(),
            filter: Section::new(TableName::Filter),
            nat: Section::new(TableName::Nat),
            nat_is_late: false,
            out_rules_go: Vec::new(),
            out_rules_come: false,
            leftovers: Restore::default(),
            servers_come: Vec::new(),
            servers_go: Vec::new(),
            addresses: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Where rules of a table are written.
    pub(super) fn section(&mut self, table: TableName) -> &mut Section {
        match table {
            TableName::Nat => &mut self.nat,
            // Nothing is written to other tables.
            TableName::Filter | TableName::Mangle => &mut self.filter,
        }
    }

    pub(super) fn add_entry(&mut self, set: SetId, entry: Entry) {
        self.entries_come.insert((set, entry));
    }

    pub(super) fn delete_entry(&mut self, set: SetId, entry: Entry) {
        self.entries_go.insert((set, entry));
    }

    /// Changes the entries to what is wanted.
    pub(super) fn entries(
        &mut self,
        before: &BTreeSet<(SetId, Entry)>,
        after: &BTreeSet<(SetId, Entry)>,
    ) {
        self.entries_come.extend(after.difference(before));
        self.entries_go.extend(before.difference(after));
    }

    /// Changes the entries of a set that several may want.
    pub(super) fn turned(&mut self, set: SetId, turned: Turned<Entry>) {
        let of_set = |entry| (set, entry);
        self.entries_come
            .extend(turned.came.into_iter().map(of_set));
        self.entries_go.extend(turned.went.into_iter().map(of_set));
    }

    /// Changes the addresses of the device.
    pub(super) fn addresses(&mut self, turned: Turned<std::net::IpAddr>) {
        let binds = turned.came.into_iter().map(AddressOp::Bind);
        let unbinds = turned.went.into_iter().map(AddressOp::Unbind);
        self.addresses.extend(binds.chain(unbinds));
    }

    /// Changes the rules that keep the node from load balancers' addresses.
    pub(super) fn out_rules(&mut self, before: &BTreeSet<String>, after: &BTreeSet<String>) {
        for rule in after.difference(before) {
            self.filter.append(OUT_FILTER, rule);
            self.out_rules_come = true;
        }
        self.out_rules_go.extend(before.difference(after).cloned());
    }

    /// Changes servers and their destinations. Without trust in what is there, all that is wanted is written.
    pub(super) fn servers(
        &mut self,
        before: &BTreeMap<ServerKey, Virtual>,
        after: &BTreeMap<ServerKey, Virtual>,
        is_trusted: bool,
        context: &Context,
    ) {
        for (key, (server, destinations)) in after {
            let old = before.get(key);
            if !old.is_some_and(|(old, _)| is_trusted && old == server) {
                self.servers_come.push(ipvs::Op::PutServer(*server));
            }
            let none = BTreeMap::new();
            let old = old.map_or(&none, |(_, destinations)| destinations);
            for (address, weight) in destinations {
                if !is_trusted || old.get(address) != Some(weight) {
                    let destination = Destination {
                        address: *address,
                        weight: *weight,
                    };
                    self.servers_come
                        .push(ipvs::Op::PutDestination(*key, destination));
                }
            }
            let gone = old.keys().filter(|at| !destinations.contains_key(at));
            self.servers_come
                .extend(gone.map(|at| ipvs::Op::RemoveDestination {
                    server: *key,
                    destination: *at,
                    removal: Removal::of(key.protocol),
                }));
        }
        let gone = before.keys().filter(|key| !after.contains_key(key));
        let gone = gone.filter(|key| !context.options.excludes(key.address));
        self.servers_go
            .extend(gone.map(|key| ipvs::Op::DeleteServer(*key)));
    }

    /// Everything in order.
    pub(super) fn finish(mut self) -> IpvsPlan {
        let exempted = take_exempting(&mut self.entries_come);
        let no_longer_exempted = take_exempting(&mut self.entries_go);
        let family = self.family;
        let add = |entries| set_ops(family, entries, ipset::Op::Add);
        let delete = |entries| set_ops(family, entries, ipset::Op::Delete);
        let late_filter = self.delete_out_rules();

        let mut steps = std::mem::take(&mut self.first);
        if self.device {
            steps.push(Step::Device);
        }
        let mut sets = delete(no_longer_exempted.into_iter().rev().collect());
        sets.append(&mut self.sets);
        sets.extend(add(self.entries_come.into_iter().collect()));
        push(&mut steps, sets, Step::Sets);

        let (mut early, mut late) = (Restore::default(), Restore::default());
        early.push(self.filter);
        if self.nat_is_late {
            late.push(self.nat);
        } else {
            early.push(self.nat);
        }
        push_rules(&mut steps, early);
        push(&mut steps, self.servers_come, Step::Servers);
        push(&mut steps, add(exempted), Step::Sets);
        self.addresses.sort_unstable();
        push(&mut steps, self.addresses, Step::Addresses);
        push_rules(&mut steps, late);
        push_rules(&mut steps, self.leftovers);
        push(&mut steps, self.servers_go, Step::Servers);
        let mut last = Restore::default();
        last.push(late_filter);
        push_rules(&mut steps, last);
        let gone = self.entries_go.into_iter().rev().collect();
        push(&mut steps, delete(gone), Step::Sets);
        IpvsPlan {
            steps,
            notes: self.notes,
        }
    }

    /// Rules that keep the node away go last, unless others come: then all are changed at once, for each change of rules runs a tool.
    fn delete_out_rules(&mut self) -> Section {
        let mut late = Section::new(TableName::Filter);
        let section = if self.out_rules_come {
            &mut self.filter
        } else {
            &mut late
        };
        for rule in &self.out_rules_go {
            section.delete(OUT_FILTER, rule);
        }
        late
    }
}

/// Takes out the entries that exempt a frontend from masquerading while the frontend itself stays.
fn take_exempting(entries: &mut BTreeSet<(SetId, Entry)>) -> Vec<(SetId, Entry)> {
    let is_exempting = |(set, entry): &(SetId, Entry)| {
        let all = set.exempts_from();
        all.is_some_and(|all| !entries.contains(&(all, *entry)))
    };
    let taken: Vec<_> = entries
        .iter()
        .filter(|one| is_exempting(one))
        .copied()
        .collect();
    for one in &taken {
        entries.remove(one);
    }
    taken
}

/// Changes of entries, which come set by set.
fn set_ops(
    family: Family,
    entries: Vec<(SetId, Entry)>,
    op: impl Fn(SetName, Entry) -> ipset::Op,
) -> Vec<ipset::Op> {
    let mut current: Option<(SetId, SetName)> = None;
    let mut ops = Vec::with_capacity(entries.len());
    for (set, entry) in entries {
        let name = match current.take() {
            Some((of, name)) if of == set => name,
            _ => set.name(family),
        };
        ops.push(op(name.clone(), entry));
        current = Some((set, name));
    }
    ops
}

fn push<T>(steps: &mut Vec<Step>, ops: Vec<T>, step: impl FnOnce(Vec<T>) -> Step) {
    if !ops.is_empty() {
        steps.push(step(ops));
    }
}

fn push_rules(steps: &mut Vec<Step>, rules: Restore) {
    if !rules.is_empty() {
        steps.push(Step::Rules(rules));
    }
}
