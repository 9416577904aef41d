//! Chains of services and endpoints that are no longer desired.

use std::collections::{HashMap, HashSet};

use super::names::{NODE_PORTS, PortNames, SERVICES};
use super::observed::{ObservedRules, ObservedTables};
use crate::desired::Desired;
use crate::dialect::iptables::{SavedRule, TableName, canonical, is_hashed_name};

/// The known service ports, while some objects could not be read. Rules of unknown services are kept: rules of an earlier run serve them better than
/// none.
#[derive(Debug)]
pub(super) struct KnownPorts {
    ports: HashSet<String>,
    chains: HashSet<String>,
}

impl KnownPorts {
    pub(super) fn new(desired: &Desired) -> Self {
        let names: Vec<PortNames> = desired.ports.keys().map(PortNames::new).collect();
        Self {
            chains: names.iter().flat_map(PortNames::all).collect(),
            ports: names.into_iter().map(|names| names.port).collect(),
        }
    }

    /// A rule of a shared chain belongs to a known service, or to none. The comment begins with the service port's name.
    pub(super) fn owns_rule(&self, rule: &str) -> bool {
        let canonical = canonical(rule);
        let comment = canonical.split_once("--comment \"");
        let name = comment.and_then(|(_, text)| text.split([' ', '"']).next());
        name.is_none_or(|name| !name.contains('/') || self.ports.contains(name))
    }

    /// A chain belongs to a known service. An endpoint's does not say whose it is.
    fn owns_chain(&self, chain: &str) -> bool {
        self.chains.contains(chain)
    }
}

/// Chains that are no longer desired.
#[derive(Debug, Default)]
pub(super) struct StaleChains<'a> {
    /// To be flushed and deleted.
    pub(super) gone: Vec<&'a str>,
    /// Only to be flushed, because foreign rules jump to them.
    pub(super) held: Vec<&'a str>,
}

/// Finds the chains of services and endpoints that are not desired.
pub(super) fn stale<'a>(
    kernel: &ObservedTables<'a>,
    wanted: &HashSet<String>,
    known: Option<&KnownPorts>,
) -> StaleChains<'a> {
    let chains = kernel.chains(TableName::Nat);
    let unwanted: HashMap<&str, &ObservedRules<'_>> = chains
        .iter()
        .filter(|(name, found)| {
            !found.built_in
                && is_hashed_name(name)
                && !wanted.contains(*name)
                && known.is_none_or(|known| known.owns_chain(name))
        })
        .copied()
        .collect();
    let ours = |name: &str| is_hashed_name(name) || name == SERVICES || name == NODE_PORTS;
    let mut held = HashSet::new();
    for (name, found) in &chains {
        if ours(name) {
            continue;
        }
        for args in &found.rules {
            let rule = SavedRule { chain: name, args };
            held.extend(rule.targets().filter_map(|target| {
                let (name, _) = unwanted.get_key_value(&*target)?;
                Some(*name)
            }));
        }
    }
    let mut stale = StaleChains::default();
    for (name, found) in &chains {
        if !unwanted.contains_key(name) {
            continue;
        }
        if !held.contains(name) {
            stale.gone.push(name);
        } else if !found.rules.is_empty() {
            stale.held.push(name);
        }
    }
    stale
}
