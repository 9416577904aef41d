//! Removing everything of the mode.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::ownership::ServerOwnership;
use super::plan::{AddressOp, IpvsObserved, IpvsPlan, IpvsStep};
use super::rules::{FILTER, LOAD_BALANCER, NODE_PORT, OUT_FILTER, POLICY, SOURCE_RANGES};
use super::sets::{IpvsSetId, swap_name};
use crate::dialect::ipset::{self, IpsetName};
use crate::dialect::iptables::{Restore, RestoreSection, SavedRule, SavedTable, TableName, parse};
use crate::dialect::ipvs;
use crate::family::Family;

/// The chains that no other mode has.
const CHAINS: [(TableName, &str); 7] = [
    (TableName::Nat, NODE_PORT),
    (TableName::Nat, LOAD_BALANCER),
    (TableName::Filter, NODE_PORT),
    (TableName::Filter, SOURCE_RANGES),
    (TableName::Filter, FILTER),
    (TableName::Filter, OUT_FILTER),
    (TableName::Filter, POLICY),
];

/// Removes what this mode or a kube-proxy's has in the kernel for a family, and nothing of others: the device's addresses, servers that are
/// ours by theirs, the chains of this mode with the jumps to them, our rules that look into sets, the sets, and the device. It is the last:
/// while it is there, something may be left to do.
///
/// The chains that other modes have too stay with their jumps, KUBE-SERVICES for example: another mode may serve with them already. What
/// node ports answer on must be known to identify their servers. Both families are to be cleaned up, also where one is not in
/// use, for the device is one and kube-proxy forgets the sets of IPv6.
pub fn cleanup(
    family: Family,
    observed: &IpvsObserved,
    node_addresses: &BTreeSet<IpAddr>,
) -> IpvsPlan {
    let mut plan = IpvsPlan::default();
    let mut push = |is_needed: bool, step| {
        if is_needed {
            plan.steps.push(step);
        }
    };
    let owned = ServerOwnership::new(observed, node_addresses);
    let servers = observed.servers.keys();
    let servers = servers.filter(|key| Family::of(key.address) == family && owned.has(key));
    let servers: Vec<_> = servers
        .map(|key| ipvs::IpvsOp::DeleteServer(*key))
        .collect();
    let mut removal = IpvsCleanup::new(family);
    for table in parse(&observed.rules.save) {
        removal.table(&table);
    }
    let sets = removal
        .sets
        .iter()
        .filter(|set| observed.sets.contains_key(set));
    let (held, gone): (Vec<_>, Vec<_>) = sets.partition(|set| removal.held.contains(set.as_str()));
    let destroyed: Vec<_> = gone
        .into_iter()
        .cloned()
        .map(ipset::IpsetOp::Destroy)
        .collect();
    let addresses = observed.addresses.iter().copied();
    let addresses: Vec<_> = addresses.map(AddressOp::Unbind).collect();

    push(!addresses.is_empty(), IpvsStep::Addresses(addresses));
    push(!servers.is_empty(), IpvsStep::Servers(servers));
    push(!removal.rules.is_empty(), IpvsStep::Rules(removal.rules));
    push(!destroyed.is_empty(), IpvsStep::Sets(destroyed));
    push(observed.device, IpvsStep::NoDevice);
    let note = |set| format!("keeping the set {set}, because a foreign rule matches it");
    plan.notes.extend(held.into_iter().map(note));
    plan
}

/// What goes from the tables.
struct IpvsCleanup {
    sets: BTreeSet<IpsetName>,
    rules: Restore,
    /// Names of sets that rules of others look into.
    held: BTreeSet<String>,
}

impl IpvsCleanup {
    fn new(family: Family) -> Self {
        let sets = IpvsSetId::ALL.map(|set| set.name(family));
        Self {
            sets: sets.into_iter().chain([swap_name(family)]).collect(),
            rules: Restore::default(),
            held: BTreeSet::new(),
        }
    }

    fn table(&mut self, table: &SavedTable<'_>) {
        let mut known = TableName::ALL.into_iter();
        let Some(name) = known.find(|name| name.as_str() == table.name) else {
            // Nothing is ours there, but rules may look into our sets.
            for rule in &table.rules {
                let sets = self.looks_into(rule);
                self.held.extend(sets);
            }
            return;
        };
        let own: Vec<&str> = CHAINS
            .iter()
            .filter(|(of, chain)| *of == name && has_chain(table, chain))
            .map(|(_, chain)| *chain)
            .collect();
        let built_in = table.built_in();
        let mut section = RestoreSection::new(name);
        // Chains that rules of others lead to.
        let mut held: BTreeSet<String> = BTreeSet::new();
        for rule in table.rules.iter().filter(|rule| !own.contains(&rule.chain)) {
            let targets = rule.targets().map(|target| target.into_owned());
            let leads: Vec<String> = targets.filter(|to| own.contains(&to.as_str())).collect();
            let sets = self.looks_into(rule);
            let may_go = if built_in.contains(&rule.chain) {
                !leads.is_empty()
            } else {
                rule.chain.starts_with("KUBE-") && (!leads.is_empty() || !sets.is_empty())
            };
            if may_go && rule.is_repeatable() {
                section.delete(rule.chain, rule.args);
            } else {
                held.extend(leads);
                self.held.extend(sets);
            }
        }
        for chain in own {
            section.declare(chain);
            if !held.contains(chain) {
                section.delete_chain(chain);
            }
        }
        self.rules.push(section);
    }

    /// Those of our sets that a rule looks into.
    fn looks_into(&self, rule: &SavedRule<'_>) -> Vec<String> {
        let mut words = rule.args.split(' ');
        let mut found = Vec::new();
        while words.any(|word| word == "--match-set") {
            let name = words.next().and_then(IpsetName::new);
            let ours = name.filter(|name| self.sets.contains(name));
            found.extend(ours.map(|name| name.to_string()));
        }
        found
    }
}

fn has_chain(table: &SavedTable<'_>, name: &str) -> bool {
    table.chains.iter().any(|chain| chain.name == name)
}
