//! Which entries of dynamic sets to delete: counts and affinities of deleted services and, where a set is full, the
//! least useful ones.
//!
//! The kernel removes an entry only when it expires, a day for a count and hours for an affinity. An address that is assigned to another
//! Service before that must not inherit it. The kernel cannot look up entries by part of a key, so the whole set is dumped; a worker does
//! that some time after a deletion, and never the sync loop.

use std::collections::{HashMap, HashSet};

use super::adopt::number;
use super::connection_counts::{connection, refusal};
use super::endpoint_selector::STICK;
use super::layout::{LOCAL, NftSetId, PORT_BITS, chain};
use super::service_elements::destination_key;
use super::view::PacketDestination;
use crate::desired::{Delta, Frontend, ServicePort};
use crate::dialect::nft::{ElementKey, KeyBuilder};
use crate::family::Family;
use crate::model::{Protocol, TrafficPolicy};

/// A full set is reduced to this fill level, in percent.
const KEPT: usize = 75;
/// Sample size in percent: enough to contain all entries to evict.
const SAMPLE: usize = 40;
/// Fill level in percent from which a set counts as full.
const FULL: usize = 95;

/// An entry of a dynamic set, which packets fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicEntry {
    pub key: ElementKey,
    /// Milliseconds until the kernel removes it.
    pub expires: u64,
}

/// Frontends that were removed since the sets were last swept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemovedFrontends {
    frontends: HashSet<PacketDestination>,
    /// A service port with session affinity was removed.
    affinity: bool,
    /// Unknown frontends may have been removed: compare every entry with the table.
    anything: bool,
}

impl RemovedFrontends {
    /// Any frontend may have been removed, for example while no proxy was running.
    pub fn anything() -> Self {
        Self {
            affinity: true,
            anything: true,
            ..Self::default()
        }
    }

    /// The frontends that a delta removes; `None` without any.
    pub fn with(delta: &Delta) -> Option<Self> {
        let mut departed = Self::default();
        for change in &delta.ports {
            if let Some(old) = &change.old {
                departed.note(old, change.new.as_deref());
            }
        }
        (!departed.frontends.is_empty() || departed.affinity).then_some(departed)
    }

    fn note(&mut self, old: &ServicePort, new: Option<&ServicePort>) {
        let kept = new.map_or(&[][..], |new| &new.frontends);
        let gone = old
            .frontends
            .iter()
            .filter(|frontend| !kept.contains(frontend));
        let protocol = old.protocol().number();
        self.frontends
            .extend(gone.map(|frontend| destination(*frontend, protocol)));
        let is_remembered = new.is_some_and(|new| new.affinity.is_some() && has_endpoints(new));
        self.affinity |= old.affinity.is_some() && !is_remembered;
    }

    pub fn absorb(&mut self, later: Self) {
        self.frontends.extend(later.frontends);
        self.affinity |= later.affinity;
        self.anything |= later.anything;
    }

    /// The set may have entries of removed frontends.
    pub fn concerns(&self, set: NftSetId) -> bool {
        match set {
            NftSetId::Affinity => self.affinity,
            _ => self.anything || !self.frontends.is_empty(),
        }
    }
}

fn has_endpoints(port: &ServicePort) -> bool {
    let policies = [TrafficPolicy::Cluster, TrafficPolicy::Local];
    policies
        .into_iter()
        .any(|policy| !port.endpoints(policy).is_empty())
}

fn destination(frontend: Frontend, protocol: u8) -> PacketDestination {
    let (address, port) = match frontend {
        Frontend::NodePort(port) => (None, port),
        Frontend::ClusterIp(at) | Frontend::ExternalIp(at) | Frontend::LoadBalancer(at) => {
            (Some(at.ip()), at.port())
        }
    };
    PacketDestination {
        address,
        protocol,
        port,
    }
}

/// The entries to delete from a set, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Entries of removed services.
    pub service_gone: Vec<ElementKey>,
    /// Entries evicted from a full set.
    pub no_room: Vec<ElementKey>,
}

/// Entries dumped from a set.
#[derive(Clone, Debug)]
pub struct DynamicSetDump {
    /// The entries, in any order; some may come twice.
    pub entries: Vec<DynamicEntry>,
    /// The dump is complete, not a sample.
    pub is_all: bool,
    /// Packets could not add entries.
    pub was_full: bool,
}

/// How many entries have to be read to decide what goes. To make room among affinities a sample is enough: shares in it are those in all.
/// Reading takes the kernel time that grows with the square of their number.
pub fn enough(family: Family, set: NftSetId, departed: &RemovedFrontends) -> usize {
    match set {
        NftSetId::Affinity if !departed.concerns(set) => size(family, set) / 100 * SAMPLE,
        _ => usize::MAX,
    }
}

fn size(family: Family, set: NftSetId) -> usize {
    set.spec(family).dynamic.unwrap_or(u32::MAX) as usize
}

/// Decides which entries of a set to delete. `ask` looks up whether a set of the table has a key.
///
/// # Errors
/// The first one of `ask`.
pub fn sweep<E>(
    family: Family,
    set: NftSetId,
    read: DynamicSetDump,
    departed: &RemovedFrontends,
    ask: impl FnMut(NftSetId, ElementKey) -> Result<bool, E>,
) -> Result<Sweep, E> {
    let mut entries = read.entries;
    entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    entries.dedup_by(|a, b| a.key == b.key);
    let mut kernel = TableQuery { ask };
    let gone = match set {
        NftSetId::Affinity => kernel.ports_gone(&entries)?,
        _ => kernel.frontends_gone(set, &entries, departed)?,
    };
    let (dead, live): (Vec<DynamicEntry>, Vec<DynamicEntry>) = entries
        .into_iter()
        .partition(|entry| owner(set, &entry.key).is_some_and(|owner| gone.contains(&owner)));
    let size = size(family, set);
    let room = if !read.is_all {
        live.len().saturating_sub(size / 100 * (100 - KEPT))
    } else if read.was_full || live.len() >= size / 100 * FULL {
        size / 100 * KEPT
    } else {
        usize::MAX
    };
    Ok(Sweep {
        service_gone: dead.into_iter().map(|entry| entry.key).collect(),
        no_room: exceeding(set, live, room),
    })
}

/// How many packets found a set full, of what the rules of each chain have counted.
pub fn overflow(set: NftSetId, counted: &[(String, u64)]) -> u64 {
    let watches = |name: &str| match set {
        NftSetId::Affinity => name.starts_with(STICK),
        NftSetId::Connections => name == chain::COUNT,
        _ => false,
    };
    let counted = counted.iter().filter(|(chain, _)| watches(chain));
    counted.fold(0, |sum, (_, packets)| sum.saturating_add(*packets))
}

/// The service that an entry belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum EntryOwner {
    /// A service port, by its id.
    Port(u32),
    /// What packets were addressed to.
    Frontend(PacketDestination),
}

fn owner(set: NftSetId, key: &ElementKey) -> Option<EntryOwner> {
    match set {
        NftSetId::Affinity => {
            let bytes = key.as_bytes();
            let id = number(bytes.get(bytes.len().checked_sub(4)?..)?)?;
            Some(EntryOwner::Port(id & PORT_BITS))
        }
        NftSetId::Connections => connection(key).map(|(to, _)| EntryOwner::Frontend(to)),
        _ => refusal(key).map(EntryOwner::Frontend),
    }
}

/// The table as it is now.
struct TableQuery<Ask> {
    ask: Ask,
}

impl<E, Ask: FnMut(NftSetId, ElementKey) -> Result<bool, E>> TableQuery<Ask> {
    /// Service ports that no list of endpoints has the number of.
    fn ports_gone(&mut self, entries: &[DynamicEntry]) -> Result<HashSet<EntryOwner>, E> {
        let mut gone = HashSet::new();
        for owner in owners(NftSetId::Affinity, entries) {
            let EntryOwner::Port(id) = owner else {
                continue;
            };
            let first_slot = |list| KeyBuilder::new().number(list).number(0).build();
            let is_live = (self.ask)(NftSetId::StickySlots, first_slot(id))?
                || (self.ask)(NftSetId::StickySlots, first_slot(id | LOCAL))?;
            if !is_live {
                gone.insert(owner);
            }
        }
        Ok(gone)
    }

    fn frontends_gone(
        &mut self,
        set: NftSetId,
        entries: &[DynamicEntry],
        departed: &RemovedFrontends,
    ) -> Result<HashSet<EntryOwner>, E> {
        let mut gone = HashSet::new();
        for owner in owners(set, entries) {
            if let EntryOwner::Frontend(to) = owner
                && self.is_gone(to, departed)?
            {
                gone.insert(owner);
            }
        }
        Ok(gone)
    }

    /// What was addressed so belonged to a frontend that went. Another Service may have the same one by now, but not its entries.
    fn is_gone(&mut self, to: PacketDestination, departed: &RemovedFrontends) -> Result<bool, E> {
        let node_port = PacketDestination {
            address: None,
            ..to
        };
        if departed.frontends.contains(&to) {
            return Ok(true);
        }
        if !departed.anything && !departed.frontends.contains(&node_port) {
            return Ok(false);
        }
        // An address of its own comes before a node port of the same number.
        if self.has(to, ADDRESSES)? {
            return Ok(false);
        }
        if departed.frontends.contains(&node_port) {
            return Ok(true);
        }
        Ok(!self.has(node_port, NODE_PORTS)?)
    }

    fn has(&mut self, to: PacketDestination, sets: [NftSetId; 3]) -> Result<bool, E> {
        let mut protocols = Protocol::ALL.into_iter();
        let Some(protocol) = protocols.find(|protocol| protocol.number() == to.protocol) else {
            return Ok(false);
        };
        for set in sets {
            if (self.ask)(set, destination_key(to.address, protocol, to.port))? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

const ADDRESSES: [NftSetId; 3] = [
    NftSetId::Services,
    NftSetId::RejectedServices,
    NftSetId::DroppedServices,
];
const NODE_PORTS: [NftSetId; 3] = [
    NftSetId::NodePorts,
    NftSetId::RejectedNodePorts,
    NftSetId::DroppedNodePorts,
];

fn owners(set: NftSetId, entries: &[DynamicEntry]) -> HashSet<EntryOwner> {
    let owners = entries.iter().filter_map(|entry| owner(set, &entry.key));
    owners.collect()
}

/// The entries that must go for `room` to be left: of service ports with more than their fair share of affinities those that would expire
/// first, of counts those that have not grown for longest, whichever service they are of.
fn exceeding(set: NftSetId, entries: Vec<DynamicEntry>, room: usize) -> Vec<ElementKey> {
    let mut holders: HashMap<Option<EntryOwner>, Vec<DynamicEntry>> = HashMap::new();
    for entry in entries {
        let holder = match set {
            NftSetId::Affinity => owner(set, &entry.key),
            _ => None,
        };
        holders.entry(holder).or_default().push(entry);
    }
    let held = holders.values().map(Vec::len).collect();
    let share = fair_share(held, room);
    let mut gone = Vec::new();
    for (_, mut entries) in holders {
        let excess = entries.len().saturating_sub(share);
        entries.sort_unstable_by(|a, b| (a.expires, &a.key).cmp(&(b.expires, &b.key)));
        gone.extend(entries.into_iter().take(excess).map(|entry| entry.key));
    }
    gone.sort_unstable();
    gone
}

/// The most that each may hold for all to fit, where those that hold less leave the rest to the others.
fn fair_share(mut held: Vec<usize>, room: usize) -> usize {
    held.sort_unstable();
    let mut left = room;
    for (i, count) in held.iter().enumerate() {
        let share = left / (held.len() - i);
        if *count > share {
            return share;
        }
        left -= count;
    }
    usize::MAX
}

#[cfg(test)]
mod tests;
