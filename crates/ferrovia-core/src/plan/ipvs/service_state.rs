//! The kernel state of one or several service ports, as a value.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};

use super::sets::IpvsSetId;
use crate::dialect::ipset::IpsetEntry;
use crate::dialect::ipvs::{VirtualServer, VirtualServerKey};

/// A virtual server with its destinations and their weights.
pub(super) type Virtual = (VirtualServer, BTreeMap<SocketAddr, u32>);

/// What is written for service ports, without what is the same for all.
#[derive(Clone, Debug, Default)]
pub(super) struct ServiceState {
    /// No two service ports have the same.
    pub(super) servers: BTreeMap<VirtualServerKey, Virtual>,
    /// Entries that no two service ports have in common.
    pub(super) entries: BTreeSet<(IpvsSetId, IpsetEntry)>,
    /// Entries for local endpoints, and how many service ports have each.
    pub(super) loops: BTreeMap<IpsetEntry, usize>,
    /// The device's addresses, and how many service ports have each.
    pub(super) addresses: BTreeMap<IpAddr, usize>,
    /// Rules that keep the node from load balancers' addresses.
    pub(super) out_rules: BTreeSet<String>,
}

impl ServiceState {
    /// Adds the state of other ports.
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

/// Reference counts of objects that several service ports share.
#[derive(Clone, Debug)]
pub(super) struct RefCounts<K> {
    times: HashMap<K, usize>,
}

/// Objects that got their first user, and objects that lost their last one.
#[derive(Clone, Debug)]
pub(super) struct RefCountChanges<K> {
    pub(super) added: Vec<K>,
    pub(super) removed: Vec<K>,
}

impl<K> RefCountChanges<K> {
    pub(super) fn map<T>(self, make: impl Fn(K) -> T) -> RefCountChanges<T> {
        RefCountChanges {
            added: self.added.into_iter().map(&make).collect(),
            removed: self.removed.into_iter().map(&make).collect(),
        }
    }
}

impl<K> Default for RefCounts<K> {
    fn default() -> Self {
        Self {
            times: HashMap::new(),
        }
    }
}

impl<K: Copy + Eq + Hash + Ord> RefCounts<K> {
    /// The counts of a full desired state.
    pub(super) fn new(wanted: &BTreeMap<K, usize>) -> Self {
        let times = wanted.iter().map(|(key, times)| (*key, *times)).collect();
        Self { times }
    }

    /// Replaces some users by others.
    pub(super) fn change(
        &mut self,
        before: &BTreeMap<K, usize>,
        after: &BTreeMap<K, usize>,
    ) -> RefCountChanges<K> {
        let mut ref_count_changes = RefCountChanges {
            added: Vec::new(),
            removed: Vec::new(),
        };
        let touched: BTreeSet<K> = before.keys().chain(after.keys()).copied().collect();
        for key in touched {
            let of = |wanted: &BTreeMap<K, usize>| wanted.get(&key).copied().unwrap_or(0);
            let old = self.times.get(&key).copied().unwrap_or(0);
            let new = (old + of(after)).saturating_sub(of(before));
            match (old, new) {
                (0, 1..) => ref_count_changes.added.push(key),
                (1.., 0) => ref_count_changes.removed.push(key),
                _ => {}
            }
            if new == 0 {
                self.times.remove(&key);
            } else {
                self.times.insert(key, new);
            }
        }
        ref_count_changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_removed_with_its_last_user() {
        let wanted =
            |keys: &[(u16, usize)]| -> BTreeMap<u16, usize> { keys.iter().copied().collect() };
        let mut counted = RefCounts::new(&wanted(&[(1, 2), (2, 1)]));
        let mut change = |before: &[(u16, usize)], after: &[(u16, usize)]| {
            let ref_count_changes = counted.change(&wanted(before), &wanted(after));
            (ref_count_changes.added, ref_count_changes.removed)
        };
        assert_eq!(change(&[(1, 1)], &[(3, 1)]), (vec![3], vec![]));
        assert_eq!(change(&[(1, 1), (2, 1)], &[(2, 1)]), (vec![], vec![1]));
        assert_eq!(change(&[(3, 1)], &[(3, 1)]), (vec![], vec![]));
    }
}
