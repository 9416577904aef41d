//! How much there should be in the kernel, so that another process's doing is noticed without reading it all.

use std::collections::BTreeMap;

use ferrovia_core::dialect::ipset::{Op, SetName};

use super::ServerCounts;
use crate::link::AddressCounts;

/// Numbers of one family's things.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Addresses on the device; `None` if there is no device.
    pub(super) addresses: Option<usize>,
    /// Virtual servers, other processes' too.
    pub(super) servers: usize,
    /// Entries of our sets.
    pub(super) sets: BTreeMap<SetName, usize>,
}

impl Tally {
    /// Addresses came and went.
    pub(super) fn addresses_changed(&mut self, changed: AddressCounts) {
        let number = self.addresses.get_or_insert(0);
        *number = (*number + changed.bound).saturating_sub(changed.unbound);
    }

    pub(super) fn servers_changed(&mut self, applied: ServerCounts) {
        self.servers = (self.servers + applied.made).saturating_sub(applied.deleted);
    }

    /// Sets were changed by these, of which those at some positions, in ascending order, had nothing to do.
    pub(super) fn sets_changed(&mut self, ops: &[Op], idle: &[usize]) {
        for (at, op) in ops.iter().enumerate() {
            let difference = usize::from(idle.binary_search(&at).is_err());
            match op {
                Op::Create { set, .. } => {
                    self.sets.insert(set.clone(), 0);
                }
                Op::Add(set, _) => *self.entries(set) += difference,
                Op::Delete(set, _) => {
                    let entries = self.entries(set);
                    *entries = entries.saturating_sub(difference);
                }
                Op::Swap(one, other) => {
                    let (first, second) = (*self.entries(one), *self.entries(other));
                    self.sets.insert(one.clone(), second);
                    self.sets.insert(other.clone(), first);
                }
                Op::Destroy(set) => drop(self.sets.remove(set)),
            }
        }
    }

    fn entries(&mut self, set: &SetName) -> &mut usize {
        self.sets.entry(set.clone()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use ferrovia_core::dialect::ipset::{Entry, Kind};

    use super::*;

    #[test]
    fn sets_are_counted_through_a_swap() {
        let name = |text| SetName::new(text).unwrap();
        let (old, new) = (name("KUBE-A"), name("KUBE-B"));
        let mut tally = Tally::default();
        tally.sets.insert(old.clone(), 5);
        let ops = [
            Op::Create {
                set: new.clone(),
                kind: Kind::Port,
                max: 0,
            },
            Op::Add(new.clone(), Entry::Port(1)),
            Op::Add(new.clone(), Entry::Port(1)),
            Op::Swap(old.clone(), new.clone()),
            Op::Destroy(new),
        ];
        tally.sets_changed(&ops, &[2]);
        assert_eq!(tally.sets, BTreeMap::from([(old, 1)]));
    }
}
