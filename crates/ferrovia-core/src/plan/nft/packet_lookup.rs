//! Looks up the elements that one packet would match, one by one, as the kernel does.
//!
//! Dumping a table costs more the more services there are; a packet matches a handful of elements whatever their number.

use std::net::IpAddr;

use super::layout::{BY_SOURCE, CLASS_BITS, LIST_BITS, NftSetId, PORT_BITS};
use super::service_elements::{destination_key, number};
use super::view::id;
use crate::dialect::nft::{ElementKey, KeyBuilder, NftObserved, ObservedElement, ObservedSet};
use crate::family::Family;
use crate::model::Protocol;

/// How many slots of a list are asked for at once.
const SLOTS_AT_ONCE: u32 = 256;
/// No list has more slots, whatever a damaged table says.
const MOST_SLOTS: u32 = 1 << 16;

/// Elements with their keys.
pub type KeyedElements = Vec<(ElementKey, ObservedElement)>;

/// The part of a table that packets to a destination match; no address means a node port.
///
/// `ask` answers with the elements that a set has for some keys, in their order, up to the first that it does not have.
///
/// # Errors
/// The first one of `ask`.
pub fn lookup_packet<E>(
    family: Family,
    (address, protocol, port): (Option<IpAddr>, Protocol, u16),
    ask: impl FnMut(NftSetId, &[ElementKey]) -> Result<KeyedElements, E>,
) -> Result<NftObserved, E> {
    let mut walk = PacketLookup {
        family,
        protocol,
        ask,
        found: NftObserved::default(),
    };
    let (served, refused) = if address.is_some() {
        let refused = [NftSetId::RejectedServices, NftSetId::DroppedServices];
        (NftSetId::Services, refused)
    } else {
        let refused = [NftSetId::RejectedNodePorts, NftSetId::DroppedNodePorts];
        (NftSetId::NodePorts, refused)
    };
    let key = [destination_key(address, protocol, port)];
    for set in refused {
        walk.fetch(set, &key)?;
    }
    for id in walk.fetch_ids(served, &key)? {
        walk.follow(id)?;
    }
    Ok(walk.found)
}

struct PacketLookup<Ask> {
    family: Family,
    protocol: Protocol,
    ask: Ask,
    found: NftObserved,
}

impl<E, Ask: FnMut(NftSetId, &[ElementKey]) -> Result<KeyedElements, E>> PacketLookup<Ask> {
    /// Follows the id of a service or node port.
    fn follow(&mut self, id: u32) -> Result<(), E> {
        if id & BY_SOURCE == 0 {
            return self.pick(id);
        }
        let port = [number(id & PORT_BITS)];
        for set in [NftSetId::ExternalInside, NftSetId::ExternalOutside] {
            for id in self.fetch_ids(set, &port)? {
                self.pick(id)?;
            }
        }
        Ok(())
    }

    /// Fetches the selector and the list of an id.
    fn pick(&mut self, id: u32) -> Result<(), E> {
        let (list, protocol) = (id & LIST_BITS, self.protocol);
        self.fetch(NftSetId::Picks, &[number(id & CLASS_BITS)])?;
        let plain = KeyBuilder::new().proto(protocol).number(list);
        self.fetch_slots(NftSetId::Endpoints, &plain)?;
        let mut members =
            self.fetch_slots(NftSetId::StickySlots, &KeyBuilder::new().number(list))?;
        members.sort_unstable();
        members.dedup();
        for member in members {
            let key = KeyBuilder::new().proto(protocol).number(member).build();
            self.fetch(NftSetId::StickyEndpoints, &[key])?;
        }
        Ok(())
    }

    /// All slots of a list; their values, where those are ids.
    fn fetch_slots(&mut self, set: NftSetId, list: &KeyBuilder) -> Result<Vec<u32>, E> {
        let mut ids = Vec::new();
        for first in (0..MOST_SLOTS).step_by(SLOTS_AT_ONCE as usize) {
            let slots = first..first + SLOTS_AT_ONCE;
            let keys = slots.map(|slot| list.clone().number(slot).build());
            let found = self.fetch(set, &keys.collect::<Vec<_>>())?;
            ids.extend(found.iter().filter_map(id));
            if found.len() < SLOTS_AT_ONCE as usize {
                break;
            }
        }
        Ok(ids)
    }

    fn fetch_ids(&mut self, set: NftSetId, keys: &[ElementKey]) -> Result<Vec<u32>, E> {
        Ok(self.fetch(set, keys)?.iter().filter_map(id).collect())
    }

    /// Fetches elements and records them.
    fn fetch(&mut self, set: NftSetId, keys: &[ElementKey]) -> Result<Vec<ObservedElement>, E> {
        let answers = (self.ask)(set, keys)?;
        let spec = set.spec(self.family);
        let kept = self.found.sets.entry(spec.name.to_owned());
        let kept = kept.or_insert_with(|| ObservedSet::of(&spec));
        kept.elements.extend(answers.iter().cloned());
        self.found.exists |= !answers.is_empty();
        Ok(answers.into_iter().map(|(_, element)| element).collect())
    }
}
