//! What must go from the sets that packets fill: counts and affinities of services that were deleted, and, where a set is full, what is
//! least useful.
//!
//! The kernel removes an entry only when its time is over, a day for a count and hours for an affinity. An address that is given to another
//! Service before that must not inherit it. No entry can be found by part of its key, so a set has to be read as a whole; a worker does
//! that some time after a deletion, and never the sync loop.

use std::collections::{HashMap, HashSet};

use super::adopt::number;
use super::count::{connection, refusal};
use super::layout::{LOCAL, PORT_BITS, SetId, chain};
use super::pick::STICK;
use super::service::destination_key;
use super::view::Destination;
use crate::desired::{Delta, Frontend, ServicePort};
use crate::dialect::nft::{Key, KeyBuilder};
use crate::family::Family;
use crate::model::{Protocol, TrafficPolicy};

/// Where a set is full, entries go until it is so full, in hundredths.
const KEPT: usize = 75;
/// So many hundredths are read as a sample: enough to find among them all that has to go.
const SAMPLE: usize = 40;
/// From so many hundredths on a set counts as full.
const FULL: usize = 95;

/// An entry of a set that packets fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its key.
    pub key: Key,
    /// Milliseconds until the kernel removes it.
    pub expires: u64,
}

/// What no Service has any more since the sets were last swept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Departed {
    frontends: HashSet<Destination>,
    /// A service port with session affinity went.
    affinity: bool,
    /// It is not known what went: everything is to be compared with what is in the kernel.
    anything: bool,
}

impl Departed {
    /// Anything may have gone, for example while no proxy was running.
    pub fn anything() -> Self {
        Self {
            affinity: true,
            anything: true,
            ..Self::default()
        }
    }

    /// What went with a change; none if nothing did.
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

    /// Adds what went later.
    pub fn absorb(&mut self, later: Self) {
        self.frontends.extend(later.frontends);
        self.affinity |= later.affinity;
        self.anything |= later.anything;
    }

    /// The set may have entries of what went.
    pub fn concerns(&self, set: SetId) -> bool {
        match set {
            SetId::Affinity => self.affinity,
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

fn destination(frontend: Frontend, protocol: u8) -> Destination {
    let (address, port) = match frontend {
        Frontend::NodePort(port) => (None, port),
        Frontend::ClusterIp(at) | Frontend::ExternalIp(at) | Frontend::LoadBalancer(at) => {
            (Some(at.ip()), at.port())
        }
    };
    Destination {
        address,
        protocol,
        port,
    }
}

/// What goes from a set, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Entries of services that went.
    pub service_gone: Vec<Key>,
    /// Entries that make room for others.
    pub no_room: Vec<Key>,
}

/// Entries of a set as they were read.
#[derive(Clone, Debug)]
pub struct Read {
    /// The entries, in any order; some may come twice.
    pub entries: Vec<Entry>,
    /// They are all there are, and not a sample.
    pub is_all: bool,
    /// Packets found no room in the set.
    pub was_full: bool,
}

/// How many entries have to be read to decide what goes. To make room among affinities a sample is enough: shares in it are those in all.
/// Reading takes the kernel time that grows with the square of their number.
pub fn enough(family: Family, set: SetId, departed: &Departed) -> usize {
    match set {
        SetId::Affinity if !departed.concerns(set) => size(family, set) / 100 * SAMPLE,
        _ => usize::MAX,
    }
}

fn size(family: Family, set: SetId) -> usize {
    set.spec(family).dynamic.unwrap_or(u32::MAX) as usize
}

/// Decides what goes from a set. `ask` says whether a set of the table has a key.
///
/// # Errors
/// The first one of `ask`.
pub fn sweep<E>(
    family: Family,
    set: SetId,
    read: Read,
    departed: &Departed,
    ask: impl FnMut(SetId, Key) -> Result<bool, E>,
) -> Result<Sweep, E> {
    let mut entries = read.entries;
    entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    entries.dedup_by(|a, b| a.key == b.key);
    let mut kernel = Kernel { ask };
    let gone = match set {
        SetId::Affinity => kernel.ports_gone(&entries)?,
        _ => kernel.frontends_gone(set, &entries, departed)?,
    };
    let (dead, live): (Vec<Entry>, Vec<Entry>) = entries
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
pub fn overflow(set: SetId, counted: &[(String, u64)]) -> u64 {
    let watches = |name: &str| match set {
        SetId::Affinity => name.starts_with(STICK),
        SetId::Connections => name == chain::COUNT,
        _ => false,
    };
    let counted = counted.iter().filter(|(chain, _)| watches(chain));
    counted.fold(0, |sum, (_, packets)| sum.saturating_add(*packets))
}

/// Whom an entry belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    /// A service port, by its id.
    Port(u32),
    /// What packets were addressed to.
    Frontend(Destination),
}

fn owner(set: SetId, key: &Key) -> Option<Owner> {
    match set {
        SetId::Affinity => {
            let bytes = key.as_bytes();
            let id = number(bytes.get(bytes.len().checked_sub(4)?..)?)?;
            Some(Owner::Port(id & PORT_BITS))
        }
        SetId::Connections => connection(key).map(|(to, _)| Owner::Frontend(to)),
        _ => refusal(key).map(Owner::Frontend),
    }
}

/// The table as it is now.
struct Kernel<Ask> {
    ask: Ask,
}

impl<E, Ask: FnMut(SetId, Key) -> Result<bool, E>> Kernel<Ask> {
    /// Service ports that no list of endpoints has the number of.
    fn ports_gone(&mut self, entries: &[Entry]) -> Result<HashSet<Owner>, E> {
        let mut gone = HashSet::new();
        for owner in owners(SetId::Affinity, entries) {
            let Owner::Port(id) = owner else { continue };
            let first_slot = |list| KeyBuilder::new().number(list).number(0).build();
            let is_live = (self.ask)(SetId::StickySlots, first_slot(id))?
                || (self.ask)(SetId::StickySlots, first_slot(id | LOCAL))?;
            if !is_live {
                gone.insert(owner);
            }
        }
        Ok(gone)
    }

    fn frontends_gone(
        &mut self,
        set: SetId,
        entries: &[Entry],
        departed: &Departed,
    ) -> Result<HashSet<Owner>, E> {
        let mut gone = HashSet::new();
        for owner in owners(set, entries) {
            if let Owner::Frontend(to) = owner
                && self.is_gone(to, departed)?
            {
                gone.insert(owner);
            }
        }
        Ok(gone)
    }

    /// What was addressed so belonged to a frontend that went. Another Service may have the same one by now, but not its entries.
    fn is_gone(&mut self, to: Destination, departed: &Departed) -> Result<bool, E> {
        let node_port = Destination {
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

    fn has(&mut self, to: Destination, sets: [SetId; 3]) -> Result<bool, E> {
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

const ADDRESSES: [SetId; 3] = [
    SetId::Services,
    SetId::RejectedServices,
    SetId::DroppedServices,
];
const NODE_PORTS: [SetId; 3] = [
    SetId::NodePorts,
    SetId::RejectedNodePorts,
    SetId::DroppedNodePorts,
];

fn owners(set: SetId, entries: &[Entry]) -> HashSet<Owner> {
    let owners = entries.iter().filter_map(|entry| owner(set, &entry.key));
    owners.collect()
}

/// The entries that must go for `room` to be left: of service ports with more than their fair share of affinities those that would expire
/// first, of counts those that have not grown for longest, whichever service they are of.
fn exceeding(set: SetId, entries: Vec<Entry>, room: usize) -> Vec<Key> {
    let mut holders: HashMap<Option<Owner>, Vec<Entry>> = HashMap::new();
    for entry in entries {
        let holder = match set {
            SetId::Affinity => owner(set, &entry.key),
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
