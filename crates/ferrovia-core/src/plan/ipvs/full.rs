//! Compares the desired state with the observed state.

use std::collections::{BTreeMap, BTreeSet};

use super::context::IpvsContext;
use super::ownership::ServerOwnership;
use super::plan::{IpvsObserved, IpvsStep};
use super::rules::{self, OUT_FILTER, is_own_chain};
use super::service_state::{RefCountChanges, ServiceState, Virtual};
use super::sets::{IpvsSetId, swap_name};
use super::writer::IpvsWriter;
use crate::dialect::ipset::{self, IpsetEntry, IpsetType, MAX_ENTRIES, ObservedIpset};
use crate::dialect::iptables::{
    Restore, RestoreSection, SavedRule, TableName, canonical, is_hashed_name, leftovers_besides,
};
use crate::dialect::ipvs::VirtualServerKey;
use crate::plan::ObservedPolicy;
use crate::plan::iptables::added_rules::AddedRules;
use crate::plan::iptables::base_chains::IptablesChainRules;
use crate::plan::iptables::names::SERVICES;
use crate::plan::iptables::observed::ObservedTables;

/// The entries of each set.
type SetEntries = BTreeMap<IpvsSetId, BTreeSet<IpsetEntry>>;

/// A comparison under way.
pub(super) struct IpvsFullPlan<'a> {
    context: &'a IpvsContext,
    observed: &'a IpvsObserved,
    found: ObservedPolicy,
    kernel: ObservedTables<'a>,
    /// Sets with our names but another type. They can only be destroyed and recreated.
    wrong: Vec<IpvsSetId>,
    added_rules: &'a mut AddedRules,
    writer: IpvsWriter,
}

impl<'a> IpvsFullPlan<'a> {
    pub(super) fn new(
        context: &'a IpvsContext,
        observed: &'a IpvsObserved,
        found: ObservedPolicy,
        added_rules: &'a mut AddedRules,
    ) -> Self {
        let is_wrong = |set: &IpvsSetId| {
            let there = observed.sets.get(&set.name(context.family));
            there.is_some_and(|there| there.kind != Some(set.kind(context.family)))
        };
        Self {
            context,
            observed,
            found,
            kernel: ObservedTables::read(&observed.rules),
            wrong: IpvsSetId::ALL.into_iter().filter(is_wrong).collect(),
            added_rules,
            writer: IpvsWriter::new(context.family),
        }
    }

    /// What has to be written for service ports, and for health checks on some ports.
    pub(super) fn compare(mut self, wanted: &ServiceState, checks: &BTreeSet<u16>) -> IpvsWriter {
        self.writer.device = !self.observed.device;
        self.remove_wrong_sets();
        self.sets(&entries(wanted, checks), wanted);
        self.rules(&wanted.out_rules);
        self.servers(wanted);
        self.addresses(wanted);
        self.writer
    }

    /// Observed objects are kept if they are right; otherwise everything is rewritten.
    fn is_trusted(&self) -> bool {
        self.found != ObservedPolicy::Replace
    }

    /// A set cannot go while rules look into it, so our chains are emptied first. That stops services for a moment, but with a set that
    /// holds something else they do not work anyway.
    fn remove_wrong_sets(&mut self) {
        if self.wrong.is_empty() {
            return;
        }
        let names = self.wrong.iter().map(|set| set.name(self.context.family));
        let names: Vec<_> = names.collect();
        for name in &names {
            self.writer.notes.push(format!(
                "the set {name} has the wrong type; it is recreated"
            ));
        }
        let mut emptied = Restore::default();
        for table in [TableName::Filter, TableName::Nat] {
            let mut section = RestoreSection::new(table);
            for chain in rules::OWN.iter().filter(|own| own.0 == table) {
                if self.kernel.chain(table, chain.1).is_some() {
                    section.declare(chain.1);
                }
            }
            emptied.push(section);
        }
        if !emptied.is_empty() {
            self.writer.first.push(IpvsStep::Rules(emptied));
        }
        let gone = names.into_iter().map(ipset::IpsetOp::Destroy);
        self.writer.first.push(IpvsStep::Sets(gone.collect()));
    }

    fn sets(&mut self, wanted: &SetEntries, state: &ServiceState) {
        let family = self.context.family;
        if self.observed.sets.contains_key(&swap_name(family)) {
            // From a run that was stopped half-way.
            let gone = ipset::IpsetOp::Destroy(swap_name(family));
            self.writer.sets.push(gone);
        }
        let none = BTreeSet::new();
        for set in IpvsSetId::ALL {
            let wanted = wanted.get(&set).unwrap_or(&none);
            let there = self.observed.sets.get(&set.name(family));
            match there.filter(|_| !self.wrong.contains(&set)) {
                None => self.make_set(set, wanted),
                Some(there) => self.change_set(set, there, wanted, state),
            }
        }
    }

    fn make_set(&mut self, set: IpvsSetId, wanted: &BTreeSet<IpsetEntry>) {
        let create = ipset::IpsetOp::Create {
            set: set.name(self.context.family),
            kind: set.kind(self.context.family),
            max: MAX_ENTRIES,
        };
        self.writer.sets.push(create);
        wanted
            .iter()
            .for_each(|entry| self.writer.add_entry(set, *entry));
    }

    fn change_set(
        &mut self,
        set: IpvsSetId,
        there: &ObservedIpset,
        wanted: &BTreeSet<IpsetEntry>,
        state: &ServiceState,
    ) {
        let stale = there.entries.difference(wanted);
        let (gone, kept): (Vec<IpsetEntry>, Vec<IpsetEntry>) = stale.partition(|entry| {
            self.found != ObservedPolicy::KeepUnknown || is_known(set, entry, state)
        });
        let size = wanted.len() + kept.len();
        let limit = usize::try_from(there.max).unwrap_or(usize::MAX);
        let is_narrow = set.kind(self.context.family) != IpsetType::Port && size > limit / 4 * 3;
        if !self.is_trusted()
            || is_narrow
            || (there.has_others && self.found != ObservedPolicy::KeepUnknown)
        {
            let all: BTreeSet<IpsetEntry> = wanted.iter().copied().chain(kept).collect();
            self.replace_set(set, &all);
            return;
        }
        for entry in wanted.difference(&there.entries) {
            self.writer.add_entry(set, *entry);
        }
        for entry in gone {
            self.writer.delete_entry(set, entry);
        }
    }

    /// Recreates a set under a temporary name and swaps it in atomically.
    fn replace_set(&mut self, set: IpvsSetId, entries: &BTreeSet<IpsetEntry>) {
        let family = self.context.family;
        let (old, new) = (set.name(family), swap_name(family));
        let ops = &mut self.writer.sets;
        ops.push(ipset::IpsetOp::Create {
            set: new.clone(),
            kind: set.kind(family),
            max: MAX_ENTRIES,
        });
        let adds = entries
            .iter()
            .map(|entry| ipset::IpsetOp::Add(new.clone(), *entry));
        ops.extend(adds);
        ops.push(ipset::IpsetOp::Swap(new.clone(), old));
        ops.push(ipset::IpsetOp::Destroy(new));
    }

    fn rules(&mut self, out_rules: &BTreeSet<String>) {
        self.writer.nat_is_late = self.serves_by_iptables();
        for chain in rules::chains(self.context) {
            let found = self.kernel.chain(chain.table, chain.name);
            let is_right = found.is_some_and(|found| found.is(&chain.rules));
            if !(is_right && self.is_trusted() && self.wrong.is_empty()) {
                let section = self.writer.section(chain.table);
                section.fill(chain.name, &chain.rules);
            }
        }
        self.out_filter(out_rules);
        for chain in rules::common_chains(self.context) {
            self.common_chain(&chain);
        }
        self.jumps();
        if self.found != ObservedPolicy::KeepUnknown {
            let left = leftovers_besides(&self.observed.rules.save, is_own_chain);
            self.writer.leftovers = left.map(|left| left.restore()).unwrap_or_default();
        }
    }

    /// The iptables mode's rules are there, and send connections to endpoints.
    fn serves_by_iptables(&self) -> bool {
        let services = self.kernel.chain(TableName::Nat, SERVICES);
        services.is_some_and(|found| {
            let mut rules = found.rules.iter();
            rules.any(|args| {
                let rule = SavedRule {
                    chain: SERVICES,
                    args,
                };
                rule.targets().any(|target| is_hashed_name(&target))
            })
        })
    }

    /// The chain with rules of services. Their order means nothing.
    fn out_filter(&mut self, wanted: &BTreeSet<String>) {
        let found = self.kernel.chain(TableName::Filter, OUT_FILTER);
        let there: Option<BTreeSet<String>> = found.map(|found| {
            let rules = found.rules.iter().map(|rule| canonical(rule).into_owned());
            rules.collect()
        });
        let is_plain = |there: &BTreeSet<String>| {
            let twice = found.is_some_and(|found| found.rules.len() != there.len());
            let repeatable = there.iter().all(|args| {
                let rule = SavedRule {
                    chain: OUT_FILTER,
                    args,
                };
                rule.is_repeatable()
            });
            repeatable && !twice
        };
        match there {
            Some(there) if self.is_trusted() && self.wrong.is_empty() && is_plain(&there) => {
                let mut before = there;
                if self.found == ObservedPolicy::KeepUnknown {
                    before.retain(|rule| wanted.contains(rule));
                }
                self.writer.out_rules(&before, wanted);
            }
            _ => {
                let rules: Vec<String> = wanted.iter().cloned().collect();
                self.writer.filter.fill(OUT_FILTER, &rules);
            }
        }
    }

    /// A chain where others have rules too.
    fn common_chain(&mut self, chain: &IptablesChainRules) {
        let found = self.kernel.chain(chain.table, chain.name);
        let section = self.writer.section(chain.table);
        self.added_rules.complete(chain, found, section);
    }

    /// The ways in, at the head of the built-in chains. Not moved if they are there: others may have put theirs before on purpose.
    fn jumps(&mut self) {
        for jump in rules::jumps() {
            let found = self.kernel.chain(jump.table, jump.from);
            let is_there = found.is_some_and(|found| found.has(&jump.rule))
                || (self.added_rules).explains(jump.table, jump.from, found, &jump.rule);
            if !is_there {
                self.writer
                    .section(jump.table)
                    .insert(jump.from, &jump.rule);
            }
        }
    }

    fn servers(&mut self, wanted: &ServiceState) {
        let node = &self.context.node.addresses | self.context.node_port_addresses();
        let owned = ServerOwnership::new(self.observed, &node);
        let is_ours = |key: &VirtualServerKey| {
            wanted.servers.contains_key(key)
                || (self.found != ObservedPolicy::KeepUnknown
                    && (wanted.addresses.contains_key(&key.address) || owned.has(key)))
        };
        let there: BTreeMap<VirtualServerKey, Virtual> = self
            .observed
            .servers
            .iter()
            .filter(|(key, _)| is_ours(key))
            .map(|(key, server)| (*key, server.clone()))
            .collect();
        let is_trusted = self.is_trusted();
        self.writer
            .servers(&there, &wanted.servers, is_trusted, self.context);
    }

    fn addresses(&mut self, wanted: &ServiceState) {
        let there = &self.observed.addresses;
        let missing = wanted.addresses.keys().filter(|ip| !there.contains(ip));
        let extra = there.iter().filter(|ip| {
            self.found != ObservedPolicy::KeepUnknown && !wanted.addresses.contains_key(ip)
        });
        self.writer.addresses(RefCountChanges {
            added: missing.copied().collect(),
            removed: extra.copied().collect(),
        });
    }
}

/// What each set should hold.
fn entries(wanted: &ServiceState, checks: &BTreeSet<u16>) -> SetEntries {
    let mut all: SetEntries = BTreeMap::new();
    let own = wanted.entries.iter().copied();
    let loops = wanted
        .loops
        .keys()
        .map(|entry| (IpvsSetId::LoopBack, *entry));
    let addresses = wanted.addresses.keys();
    let addresses = addresses.map(|ip| (IpvsSetId::Addresses, IpsetEntry::Ip(*ip)));
    let checks = checks
        .iter()
        .map(|port| (IpvsSetId::HealthCheck, IpsetEntry::Port(*port)));
    for (set, entry) in own.chain(loops).chain(addresses).chain(checks) {
        all.entry(set).or_default().insert(entry);
    }
    all
}

/// An entry belongs to a service we know. While not all are known, others stay.
fn is_known(set: IpvsSetId, entry: &IpsetEntry, wanted: &ServiceState) -> bool {
    if let Some(all) = set.exempts_from() {
        return wanted.entries.contains(&(all, *entry));
    }
    let (IpsetEntry::IpPort(address, protocol, port)
    | IpsetEntry::IpPortIp(address, protocol, port, _)
    | IpsetEntry::IpPortNet(address, protocol, port, _)) = *entry
    else {
        return false;
    };
    let key = VirtualServerKey {
        address,
        port,
        protocol,
    };
    let at = IpsetEntry::IpPort(address, protocol, port);
    let node_address_frontends = |set| wanted.entries.contains(&(set, at));
    wanted.servers.contains_key(&key) || IpvsSetId::VIPS.into_iter().any(node_address_frontends)
}
