//! What is wanted, or was, as one value: that of a single service port, or of many together.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};

use super::sets::SetId;
use crate::dialect::ipset::Entry;
use crate::dialect::ipvs::{Server, ServerKey};

/// A virtual server with its destinations and their weights.
pub(super) type Virtual = (Server, BTreeMap<SocketAddr, u32>);

/// What is written for service ports, without what is the same for all.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// No two service ports have the same.
    pub(super) servers: BTreeMap<ServerKey, Virtual>,
    /// Entries that no two service ports have in common.
    pub(super) entries: BTreeSet<(SetId, Entry)>,
    /// Entries for local endpoints, and how many service ports have each.
    pub(super) loops: BTreeMap<Entry, usize>,
    /// The device's addresses, and how many service ports have each.
    pub(super) addresses: BTreeMap<IpAddr, usize>,
    /// Rules that keep the node from load balancers' addresses.
    pub(super) out_rules: BTreeSet<String>,
}

impl State {
    /// Adds another's.
    pub(super) fn merge(&mut self, other: Self) {
        self.servers.extend(other.servers);
        self.entries.extend(other.entries);
        self.out_rules.extend(other.out_rules);
        for (entry, times) in other.loops {
            *self.loops.entry(entry).or_default() += times;
        }
        for (ip, times) in other.addresses {
            *self.addresses.entry(ip).or_default() += times;
        }
    }
}

/// How many want a thing that several may want.
#[derive(Clone, Debug)]
pub(super) struct Counted<K> {
    times: HashMap<K, usize>,
}

/// What nobody wanted before, and what nobody wants any more.
#[derive(Clone, Debug)]
pub(super) struct Turned<K> {
    pub(super) came: Vec<K>,
    pub(super) went: Vec<K>,
}

impl<K> Turned<K> {
    /// The same in other words.
    pub(super) fn map<T>(self, make: impl Fn(K) -> T) -> Turned<T> {
        Turned {
            came: self.came.into_iter().map(&make).collect(),
            went: self.went.into_iter().map(&make).collect(),
        }
    }
}

impl<K> Default for Counted<K> {
    fn default() -> Self {
        Self {
            times: HashMap::new(),
        }
    }
}

impl<K: Copy + Eq + Hash + Ord> Counted<K> {
    /// Everything that is wanted.
    pub(super) fn new(wanted: &BTreeMap<K, usize>) -> Self {
        let times = wanted.iter().map(|(key, times)| (*key, *times)).collect();
        Self { times }
    }

    /// Some stop wanting and some begin to.
    pub(super) fn change(
        &mut self,
        before: &BTreeMap<K, usize>,
        after: &BTreeMap<K, usize>,
    ) -> Turned<K> {
        let mut turned = Turned {
            came: Vec::new(),
            went: Vec::new(),
        };
        let touched: BTreeSet<K> = before.keys().chain(after.keys()).copied().collect();
        for key in touched {
            let of = |wanted: &BTreeMap<K, usize>| wanted.get(&key).copied().unwrap_or(0);
            let old = self.times.get(&key).copied().unwrap_or(0);
            let new = (old + of(after)).saturating_sub(of(before));
            match (old, new) {
                (0, 1..) => turned.came.push(key),
                (1.., 0) => turned.went.push(key),
                _ => {}
            }
            if new == 0 {
                self.times.remove(&key);
            } else {
                self.times.insert(key, new);
            }
        }
        turned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_goes_with_the_last_that_wants_it() {
        let wanted =
            |keys: &[(u16, usize)]| -> BTreeMap<u16, usize> { keys.iter().copied().collect() };
        let mut counted = Counted::new(&wanted(&[(1, 2), (2, 1)]));
        let mut change = |before: &[(u16, usize)], after: &[(u16, usize)]| {
            let turned = counted.change(&wanted(before), &wanted(after));
            (turned.came, turned.went)
        };
        assert_eq!(change(&[(1, 1)], &[(3, 1)]), (vec![3], vec![]));
        assert_eq!(change(&[(1, 1), (2, 1)], &[(2, 1)]), (vec![], vec![1]));
        assert_eq!(change(&[(3, 1)], &[(3, 1)]), (vec![], vec![]));
    }
}
