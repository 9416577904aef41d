//! Puts changes into an order in which nothing that is served stops being served.
//!
//! Sets and rules come before the servers they protect and mark, servers with their destinations before the address that brings packets to
//! them; what goes does so the other way round. A frontend whose policy changes is an exception: clients' addresses are left alone only while
//! there are no endpoints elsewhere, for answers from there would not come back by this node.

use std::collections::{BTreeMap, BTreeSet};

use super::context::IpvsContext;
use super::plan::{AddressOp, IpvsPlan, IpvsStep};
use super::rules::OUT_FILTER;
use super::service_state::{RefCountChanges, Virtual};
use super::sets::IpvsSetId;
use crate::dialect::ipset::{self, IpsetEntry, IpsetName};
use crate::dialect::iptables::{Restore, RestoreSection, TableName};
use crate::dialect::ipvs::{self, DestinationRemoval, IpvsDestination, VirtualServerKey};
use crate::family::Family;

/// A plan in the making.
pub(super) struct IpvsWriter {
    family: Family,
    /// What must be out of the way before all else.
    pub(super) first: Vec<IpvsStep>,
    pub(super) device: bool,
    /// Sets that are created or recreated.
    pub(super) sets: Vec<ipset::IpsetOp>,
    entries_come: BTreeSet<(IpvsSetId, IpsetEntry)>,
    entries_go: BTreeSet<(IpvsSetId, IpsetEntry)>,
    pub(super) filter: RestoreSection,
    pub(super) nat: RestoreSection,
    /// Rules of the iptables mode serve in nat: they are replaced when all else is ready.
    pub(super) nat_is_late: bool,
    out_rules_go: Vec<String>,
    out_rules_come: bool,
    /// What is left of other modes.
    pub(super) leftovers: Restore,
    servers_come: Vec<ipvs::IpvsOp>,
    servers_go: Vec<ipvs::IpvsOp>,
    addresses: Vec<AddressOp>,
    pub(super) notes: Vec<String>,
}

impl IpvsWriter {
    pub(super) fn new(family: Family) -> Self {
        Self {
            family,
            first: Vec::new(),
            device: false,
            sets: Vec::new(),
            entries_come: BTreeSet::new(),
            entries_go: BTreeSet::new(),
            filter: RestoreSection::new(TableName::Filter),
            nat: RestoreSection::new(TableName::Nat),
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
    pub(super) fn section(&mut self, table: TableName) -> &mut RestoreSection {
        match table {
            TableName::Nat => &mut self.nat,
            // Nothing is written to other tables.
            TableName::Filter | TableName::Mangle => &mut self.filter,
        }
    }

    pub(super) fn add_entry(&mut self, set: IpvsSetId, entry: IpsetEntry) {
        self.entries_come.insert((set, entry));
    }

    pub(super) fn delete_entry(&mut self, set: IpvsSetId, entry: IpsetEntry) {
        self.entries_go.insert((set, entry));
    }

    /// Changes the entries to the desired ones.
    pub(super) fn entries(
        &mut self,
        before: &BTreeSet<(IpvsSetId, IpsetEntry)>,
        after: &BTreeSet<(IpvsSetId, IpsetEntry)>,
    ) {
        self.entries_come.extend(after.difference(before));
        self.entries_go.extend(before.difference(after));
    }

    /// Changes the entries of a set that service ports share.
    pub(super) fn ref_count_changes(
        &mut self,
        set: IpvsSetId,
        ref_count_changes: RefCountChanges<IpsetEntry>,
    ) {
        let of_set = |entry| (set, entry);
        self.entries_come
            .extend(ref_count_changes.added.into_iter().map(of_set));
        self.entries_go
            .extend(ref_count_changes.removed.into_iter().map(of_set));
    }

    /// Changes the addresses of the device.
    pub(super) fn addresses(&mut self, ref_count_changes: RefCountChanges<std::net::IpAddr>) {
        let binds = ref_count_changes.added.into_iter().map(AddressOp::Bind);
        let unbinds = ref_count_changes.removed.into_iter().map(AddressOp::Unbind);
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

    /// Changes servers and their destinations. If the observed servers are not trusted, all desired ones are written.
    pub(super) fn servers(
        &mut self,
        before: &BTreeMap<VirtualServerKey, Virtual>,
        after: &BTreeMap<VirtualServerKey, Virtual>,
        is_trusted: bool,
        context: &IpvsContext,
    ) {
        for (key, (server, destinations)) in after {
            let old = before.get(key);
            if !old.is_some_and(|(old, _)| is_trusted && old == server) {
                self.servers_come.push(ipvs::IpvsOp::PutServer(*server));
            }
            let none = BTreeMap::new();
            let old = old.map_or(&none, |(_, destinations)| destinations);
            for (address, weight) in destinations {
                if !is_trusted || old.get(address) != Some(weight) {
                    let destination = IpvsDestination {
                        address: *address,
                        weight: *weight,
                    };
                    self.servers_come
                        .push(ipvs::IpvsOp::PutDestination(*key, destination));
                }
            }
            let gone = old.keys().filter(|at| !destinations.contains_key(at));
            self.servers_come
                .extend(gone.map(|at| ipvs::IpvsOp::RemoveDestination {
                    server: *key,
                    destination: *at,
                    removal: DestinationRemoval::of(key.protocol),
                }));
        }
        let gone = before.keys().filter(|key| !after.contains_key(key));
        let gone = gone.filter(|key| !context.options.excludes(key.address));
        self.servers_go
            .extend(gone.map(|key| ipvs::IpvsOp::DeleteServer(*key)));
    }

    pub(super) fn finish(mut self) -> IpvsPlan {
        let exempted = take_exempting(&mut self.entries_come);
        let no_longer_exempted = take_exempting(&mut self.entries_go);
        let family = self.family;
        let add = |entries| set_ops(family, entries, ipset::IpsetOp::Add);
        let delete = |entries| set_ops(family, entries, ipset::IpsetOp::Delete);
        let late_filter = self.delete_out_rules();

        let mut steps = std::mem::take(&mut self.first);
        if self.device {
            steps.push(IpvsStep::Device);
        }
        let mut sets = delete(no_longer_exempted.into_iter().rev().collect());
        sets.append(&mut self.sets);
        sets.extend(add(self.entries_come.into_iter().collect()));
        push(&mut steps, sets, IpvsStep::Sets);

        let (mut early, mut late) = (Restore::default(), Restore::default());
        early.push(self.filter);
        if self.nat_is_late {
            late.push(self.nat);
        } else {
            early.push(self.nat);
        }
        push_rules(&mut steps, early);
        push(&mut steps, self.servers_come, IpvsStep::Servers);
        push(&mut steps, add(exempted), IpvsStep::Sets);
        self.addresses.sort_unstable();
        push(&mut steps, self.addresses, IpvsStep::Addresses);
        push_rules(&mut steps, late);
        push_rules(&mut steps, self.leftovers);
        push(&mut steps, self.servers_go, IpvsStep::Servers);
        let mut last = Restore::default();
        last.push(late_filter);
        push_rules(&mut steps, last);
        let gone = self.entries_go.into_iter().rev().collect();
        push(&mut steps, delete(gone), IpvsStep::Sets);
        IpvsPlan {
            steps,
            notes: self.notes,
        }
    }

    /// Rules that keep the node away go last, unless others come: then all are changed at once, for each change of rules runs a tool.
    fn delete_out_rules(&mut self) -> RestoreSection {
        let mut late = RestoreSection::new(TableName::Filter);
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
fn take_exempting(entries: &mut BTreeSet<(IpvsSetId, IpsetEntry)>) -> Vec<(IpvsSetId, IpsetEntry)> {
    let is_exempting = |(set, entry): &(IpvsSetId, IpsetEntry)| {
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
    entries: Vec<(IpvsSetId, IpsetEntry)>,
    op: impl Fn(IpsetName, IpsetEntry) -> ipset::IpsetOp,
) -> Vec<ipset::IpsetOp> {
    let mut current: Option<(IpvsSetId, IpsetName)> = None;
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

fn push<T>(steps: &mut Vec<IpvsStep>, ops: Vec<T>, step: impl FnOnce(Vec<T>) -> IpvsStep) {
    if !ops.is_empty() {
        steps.push(step(ops));
    }
}

fn push_rules(steps: &mut Vec<IpvsStep>, rules: Restore) {
    if !rules.is_empty() {
        steps.push(IpvsStep::Rules(rules));
    }
}
