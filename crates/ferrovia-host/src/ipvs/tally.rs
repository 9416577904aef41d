//! How much there should be in the kernel, so that another process's doing is noticed without reading it all.

use std::collections::BTreeMap;

use ferrovia_core::dialect::ipset::{IpsetName, IpsetOp};

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
    pub(super) sets: BTreeMap<IpsetName, usize>,
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
    pub(super) fn sets_changed(&mut self, ops: &[IpsetOp], idle: &[usize]) {
        for (at, op) in ops.iter().enumerate() {
            let difference = usize::from(idle.binary_search(&at).is_err());
            match op {
                IpsetOp::Create { set, .. } => {
                    self.sets.insert(set.clone(), 0);
                }
                IpsetOp::Add(set, _) => *self.entries(set) += difference,
                IpsetOp::Delete(set, _) => {
                    let entries = self.entries(set);
                    *entries = entries.saturating_sub(difference);
                }
                IpsetOp::Swap(one, other) => {
                    let (first, second) = (*self.entries(one), *self.entries(other));
                    self.sets.insert(one.clone(), second);
                    self.sets.insert(other.clone(), first);
                }
                IpsetOp::Destroy(set) => drop(self.sets.remove(set)),
            }
        }
    }

    fn entries(&mut self, set: &IpsetName) -> &mut usize {
        self.sets.entry(set.clone()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use ferrovia_core::dialect::ipset::{IpsetEntry, IpsetType};

    use super::*;

    #[test]
    fn sets_are_counted_through_a_swap() {
        let name = |text| IpsetName::new(text).unwrap();
        let (old, new) = (name("KUBE-A"), name("KUBE-B"));
        let mut tally = Tally::default();
        tally.sets.insert(old.clone(), 5);
        let ops = [
            IpsetOp::Create {
                set: new.clone(),
                kind: IpsetType::Port,
                max: 0,
            },
            IpsetOp::Add(new.clone(), IpsetEntry::Port(1)),
            IpsetOp::Add(new.clone(), IpsetEntry::Port(1)),
            IpsetOp::Swap(old.clone(), new.clone()),
            IpsetOp::Destroy(new),
        ];
        tally.sets_changed(&ops, &[2]);
        assert_eq!(tally.sets, BTreeMap::from([(old, 1)]));
    }
}
