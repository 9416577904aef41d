//! Everything that is wanted, compared with everything that is there.

use std::collections::{BTreeMap, BTreeSet};

use super::context::Context;
use super::owned::Owned;
use super::plan::{Observed, Step};
use super::rules::{self, OUT_FILTER, is_own_chain};
use super::sets::{SetId, swap_name};
use super::state::{State, Turned, Virtual};
use super::writer::Writer;
use crate::dialect::ipset::{self, Entry, Kind, MAX_ENTRIES, Set};
use crate::dialect::iptables::{
    Restore, SavedRule, Section, TableName, canonical, is_hashed_name, leftovers_besides,
};
use crate::dialect::ipvs::ServerKey;
use crate::plan::Found;
use crate::plan::iptables::base::ChainRules;
use crate::plan::iptables::kernel::Kernel;
use crate::plan::iptables::names::SERVICES;
use crate::plan::iptables::spelling::Spelling;

/// The entries of each set.
type Entries = BTreeMap<SetId, BTreeSet<Entry>>;

/// A comparison under way.
pub(super) struct Full<'a> {
    context: &'a Context,
    observed: &'a Observed,
    found: Found,
    kernel: Kernel<'a>,
    /// Sets with our names that hold something else. Nothing can be done with them but to begin anew.
    wrong: Vec<SetId>,
    spelling: &'a mut Spelling,
    writer: Writer,
}

impl<'a> Full<'a> {
    pub(super) fn new(
        context: &'a Context,
        observed: &'a Observed,
        found: Found,
        spelling: &'a mut Spelling,
    ) -> Self {
        let is_wrong = |set: &SetId| {
            let there = observed.sets.get(&set.name(context.family));
            there.is_some_and(|there| there.kind != Some(set.kind(context.family)))
        };
        Self {
            context,
            observed,
            found,
            kernel: Kernel::read(&observed.rules),
            wrong: SetId::ALL.into_iter().filter(is_wrong).collect(),
            spelling,
            writer: Writer::new(context.family),
        }
    }

    /// What has to be written for service ports, and for health checks on some ports.
    pub(super) fn compare(mut self, wanted: &State, checks: &BTreeSet<u16>) -> Writer {
        self.writer.device = !self.observed.device;
        self.remove_wrong_sets();
        self.sets(&entries(wanted, checks), wanted);
        self.rules(&wanted.out_rules);
        self.servers(wanted);
        self.addresses(wanted);
        self.writer
    }

    /// What is there may stay if it is right. Otherwise it is written anew.
    fn is_trusted(&self) -> bool {
        self.found != Found::Replace
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
                "the set {name} holds something else than it should; it is made anew"
            ));
        }
        let mut emptied = Restore::default();
        for table in [TableName::Filter, TableName::Nat] {
            let mut section = Section::new(table);
            for chain in rules::OWN.iter().filter(|own| own.0 == table) {
                if self.kernel.chain(table, chain.1).is_some() {
                    section.declare(chain.1);
                }
            }
            emptied.push(section);
        }
        if !emptied.is_empty() {
            self.writer.first.push(Step::Rules(emptied));
        }
        let gone = names.into_iter().map(ipset::Op::Destroy);
        self.writer.first.push(Step::Sets(gone.collect()));
    }

    fn sets(&mut self, wanted: &Entries, state: &State) {
        let family = self.context.family;
        if self.observed.sets.contains_key(&swap_name(family)) {
            // From a run that was stopped half-way.
            let gone = ipset::Op::Destroy(swap_name(family));
            self.writer.sets.push(gone);
        }
        let none = BTreeSet::new();
        for set in SetId::ALL {
            let wanted = wanted.get(&set).unwrap_or(&none);
            let there = self.observed.sets.get(&set.name(family));
            match there.filter(|_| !self.wrong.contains(&set)) {
                None => self.make_set(set, wanted),
                Some(there) => self.change_set(set, there, wanted, state),
            }
        }
    }

    fn make_set(&mut self, set: SetId, wanted: &BTreeSet<Entry>) {
        let create = ipset::Op::Create {
            set: set.name(self.context.family),
            kind: set.kind(self.context.family),
            max: MAX_ENTRIES,
        };
        self.writer.sets.push(create);
        wanted
            .iter()
            .for_each(|entry| self.writer.add_entry(set, *entry));
    }

    fn change_set(&mut self, set: SetId, there: &Set, wanted: &BTreeSet<Entry>, state: &State) {
        let stale = there.entries.difference(wanted);
        let (gone, kept): (Vec<Entry>, Vec<Entry>) =
            stale.partition(|entry| self.found != Found::Keep || is_known(set, entry, state));
        let size = wanted.len() + kept.len();
        let limit = usize::try_from(there.max).unwrap_or(usize::MAX);
        let is_narrow = set.kind(self.context.family) != Kind::Port && size > limit / 4 * 3;
        if !self.is_trusted() || is_narrow || (there.has_others && self.found != Found::Keep) {
            let all: BTreeSet<Entry> = wanted.iter().copied().chain(kept).collect();
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

    /// Makes a set anew and puts it in the other's place at once.
    fn replace_set(&mut self, set: SetId, entries: &BTreeSet<Entry>) {
        let family = self.context.family;
        let (old, new) = (set.name(family), swap_name(family));
        let ops = &mut self.writer.sets;
        ops.push(ipset::Op::Create {
            set: new.clone(),
            kind: set.kind(family),
            max: MAX_ENTRIES,
        });
        let adds = entries
            .iter()
            .map(|entry| ipset::Op::Add(new.clone(), *entry));
        ops.extend(adds);
        ops.push(ipset::Op::Swap(new.clone(), old));
        ops.push(ipset::Op::Destroy(new));
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
        if self.found != Found::Keep {
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
                if self.found == Found::Keep {
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
    fn common_chain(&mut self, chain: &ChainRules) {
        let found = self.kernel.chain(chain.table, chain.name);
        let section = self.writer.section(chain.table);
        self.spelling.complete(chain, found, section);
    }

    /// The ways in, at the head of the built-in chains. Not moved if they are there: others may have put theirs before on purpose.
    fn jumps(&mut self) {
        for jump in rules::jumps() {
            let found = self.kernel.chain(jump.table, jump.from);
            let is_there = found.is_some_and(|found| found.has(&jump.rule))
                || (self.spelling).explains(jump.table, jump.from, found, &jump.rule);
            if !is_there {
                self.writer
                    .section(jump.table)
                    .insert(jump.from, &jump.rule);
            }
        }
    }

    fn servers(&mut self, wanted: &State) {
        let node = &self.context.node.addresses | self.context.node_port_addresses();
        let owned = Owned::new(self.observed, &node);
        let is_ours = |key: &ServerKey| {
            wanted.servers.contains_key(key)
                || (self.found != Found::Keep
                    && (wanted.addresses.contains_key(&key.address) || owned.has(key)))
        };
        let there: BTreeMap<ServerKey, Virtual> = self
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

    fn addresses(&mut self, wanted: &State) {
        let there = &self.observed.addresses;
        let missing = wanted.addresses.keys().filter(|ip| !there.contains(ip));
        let extra = there
            .iter()
            .filter(|ip| self.found != Found::Keep && !wanted.addresses.contains_key(ip));
        self.writer.addresses(Turned {
            came: missing.copied().collect(),
            went: extra.copied().collect(),
        });
    }
}

/// What each set should hold.
fn entries(wanted: &State, checks: &BTreeSet<u16>) -> Entries {
    let mut all: Entries = BTreeMap::new();
    let own = wanted.entries.iter().copied();
    let loops = wanted.loops.keys().map(|entry| (SetId::LoopBack, *entry));
    let addresses = wanted.addresses.keys();
    let addresses = addresses.map(|ip| (SetId::Addresses, Entry::Ip(*ip)));
    let checks = checks
        .iter()
        .map(|port| (SetId::HealthCheck, Entry::Port(*port)));
    for (set, entry) in own.chain(loops).chain(addresses).chain(checks) {
        all.entry(set).or_default().insert(entry);
    }
    all
}

/// An entry belongs to a service we know. While not all are known, others stay.
fn is_known(set: SetId, entry: &Entry, wanted: &State) -> bool {
    if let Some(all) = set.exempts_from() {
        return wanted.entries.contains(&(all, *entry));
    }
    let (Entry::IpPort(address, protocol, port)
    | Entry::IpPortIp(address, protocol, port, _)
    | Entry::IpPortNet(address, protocol, port, _)) = *entry
    else {
        return false;
    };
    let key = ServerKey {
        address,
        port,
        protocol,
    };
    let at = Entry::IpPort(address, protocol, port);
    let listed = |set| wanted.entries.contains(&(set, at));
    wanted.servers.contains_key(&key) || SetId::VIPS.into_iter().any(listed)
}
