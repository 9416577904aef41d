//! How the kernel is asked for the flows to some targets, at the least cost.
//!
//! Measured on Linux 6.18 with 262,144 lists (`nf_conntrack_buckets`, what the kernel takes on machines of 16 GiB and more):
//!
//! - every look walks all lists of the machine, and takes the lock of each even if it is empty: 19 ns a list, 5 ms in total;
//! - every entry that the filter rejects costs 0.08 µs;
//! - every entry that is copied to us and read costs 1.2 µs.
//!
//! So several narrow looks are right for a full table, and a single wide one for a table that has fewer flows than lists. That is most
//! tables.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use ferrovia_core::plan::conntrack::FlowTarget;

use super::table::SentTo;
use crate::survey::flows;

/// What an empty list costs.
const LIST_NS: usize = 19;
/// What an entry costs that is looked at and passed over.
const ENTRY_NS: usize = 80;
/// What an entry costs that is copied and read.
const COPY_NS: usize = 1200;
/// The lists of a kernel that does not say: what those on machines of 4 GiB have.
const USUAL_LISTS: usize = 65_536;
/// The entries of a kernel that does not say.
const USUAL_ENTRIES: usize = 10_000;

/// How large the kernel's table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableSize {
    lists: usize,
    entries: usize,
}

impl TableSize {
    /// As it is now, with as many entries as the kernel says, if it does.
    pub(super) fn now(entries: Option<usize>) -> Self {
        Self {
            lists: flows::buckets().unwrap_or(USUAL_LISTS),
            entries: entries.unwrap_or(USUAL_ENTRIES),
        }
    }

    /// What so many looks cost if they have this share of all entries copied.
    fn cost(self, looks: usize, copied: usize) -> usize {
        let walk = self.lists * LIST_NS + self.entries * ENTRY_NS;
        walk.saturating_mul(looks)
            .saturating_add(copied.saturating_mul(COPY_NS))
    }
}

/// What the kernel is asked for: every flow to one of the targets is in one of the answers. Nothing if there is no flow at all.
pub(super) fn looks(
    targets: impl Iterator<Item = FlowTarget>,
    table: TableSize,
) -> BTreeSet<SentTo> {
    if table.entries == 0 {
        return BTreeSet::new();
    }
    let targets: Vec<_> = targets.collect();
    let by_place: BTreeSet<_> = targets.iter().copied().map(place).collect();
    let by_port: BTreeSet<_> = targets.into_iter().map(port).collect();
    if by_place.is_empty() {
        return by_place;
    }
    let everything = BTreeSet::from([SentTo::Anywhere]);
    // What is copied is a guess: a service has few of all flows, its port has more (everyone asks for names at 53), UDP has half.
    let ways = [
        (table.cost(by_place.len(), 0), by_place),
        (table.cost(by_port.len(), table.entries / 8), by_port),
        (table.cost(1, table.entries / 2), everything),
    ];
    let cheapest = ways.into_iter().min_by_key(|(cost, _)| *cost);
    cheapest.map(|(_, looks)| looks).unwrap_or_default()
}

fn place(target: FlowTarget) -> SentTo {
    match target {
        FlowTarget::Address(SocketAddr::V4(place)) => SentTo::V4(place),
        other => port(other),
    }
}

fn port(target: FlowTarget) -> SentTo {
    match target {
        FlowTarget::Address(place) => SentTo::Port(place.port()),
        FlowTarget::NodePort(port) => SentTo::Port(port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTS: usize = 262_144;

    fn asked(targets: &[FlowTarget], entries: usize) -> Vec<SentTo> {
        let table = TableSize {
            lists: LISTS,
            entries,
        };
        looks(targets.iter().copied(), table).into_iter().collect()
    }

    fn to(text: &str) -> FlowTarget {
        FlowTarget::Address(text.parse().unwrap())
    }

    #[test]
    fn empty_table_is_not_walked() {
        assert_eq!(asked(&[to("10.0.0.1:53")], 0), []);
        assert_eq!(asked(&[], 1000), []);
    }

    #[test]
    fn one_address_is_asked_for_as_narrowly_as_the_kernel_can() {
        for entries in [1, 1000, 500_000] {
            let place = "10.0.0.1:53".parse().unwrap();
            assert_eq!(asked(&[to("10.0.0.1:53")], entries), [SentTo::V4(place)]);
            assert_eq!(asked(&[to("[fd00::1]:53")], entries), [SentTo::Port(53)]);
            assert_eq!(
                asked(&[FlowTarget::NodePort(30053)], entries),
                [SentTo::Port(30053)]
            );
        }
    }

    #[test]
    fn small_table_is_walked_once() {
        let two = [to("10.0.0.1:53"), FlowTarget::NodePort(30053)];
        assert_eq!(asked(&two, 1000), [SentTo::Anywhere]);
        let same_port = [to("10.0.0.1:53"), to("10.0.0.2:53")];
        assert_eq!(asked(&same_port, 1000), [SentTo::Port(53)]);
    }

    #[test]
    fn large_table_is_walked_a_few_times_rather_than_copied() {
        let mut targets = vec![to("10.0.0.1:53"), FlowTarget::NodePort(30053)];
        assert_eq!(asked(&targets, 500_000).len(), 2);
        targets.extend((1..100).map(|n| to(&format!("10.0.1.{n}:53"))));
        let ports = [SentTo::Port(53), SentTo::Port(30053)];
        assert_eq!(asked(&targets, 500_000), ports);
        targets.extend((1..100).map(|n| to(&format!("10.0.1.1:{n}"))));
        assert_eq!(asked(&targets, 500_000), [SentTo::Anywhere]);
    }
}
