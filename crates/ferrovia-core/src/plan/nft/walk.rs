//! The way of one packet through our maps, found by asking for single elements as the packet does.
//!
//! Reading a table back costs the more the more services there are, while a packet meets a handful of elements whatever their number.

use std::net::IpAddr;

use super::layout::{BY_SOURCE, CLASS_BITS, LIST_BITS, PORT_BITS, SetId};
use super::service::{destination_key, number};
use super::view::id;
use crate::dialect::nft::{Key, KeyBuilder, Observed, ObservedElement, ObservedSet};
use crate::family::Family;
use crate::model::Protocol;

/// How many slots of a list are asked for at once.
const SLOTS_AT_ONCE: u32 = 256;
/// No list has more slots, whatever a damaged table says.
const MOST_SLOTS: u32 = 1 << 16;

/// Elements with their keys.
pub type Elements = Vec<(Key, ObservedElement)>;

/// The part of a table that packets to a destination meet; no address means a node port.
///
/// `ask` answers with the elements that a set has for some keys, in their order, up to the first that it does not have.
///
/// # Errors
/// The first one of `ask`.
pub fn walk<E>(
    family: Family,
    (address, protocol, port): (Option<IpAddr>, Protocol, u16),
    ask: impl FnMut(SetId, &[Key]) -> Result<Elements, E>,
) -> Result<Observed, E> {
    let mut walk = Walk {
        family,
        protocol,
        ask,
        found: Observed::default(),
    };
    let (served, refused) = if address.is_some() {
        let refused = [SetId::RejectedServices, SetId::DroppedServices];
        (SetId::Services, refused)
    } else {
        let refused = [SetId::RejectedNodePorts, SetId::DroppedNodePorts];
        (SetId::NodePorts, refused)
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

struct Walk<Ask> {
    family: Family,
    protocol: Protocol,
    ask: Ask,
    found: Observed,
}

impl<E, Ask: FnMut(SetId, &[Key]) -> Result<Elements, E>> Walk<Ask> {
    /// What an id of a service or node port leads to.
    fn follow(&mut self, id: u32) -> Result<(), E> {
        if id & BY_SOURCE == 0 {
            return self.pick(id);
        }
        let port = [number(id & PORT_BITS)];
        for set in [SetId::ExternalInside, SetId::ExternalOutside] {
            for id in self.fetch_ids(set, &port)? {
                self.pick(id)?;
            }
        }
        Ok(())
    }

    /// How an endpoint is picked, and from which list.
    fn pick(&mut self, id: u32) -> Result<(), E> {
        let (list, protocol) = (id & LIST_BITS, self.protocol);
        self.fetch(SetId::Picks, &[number(id & CLASS_BITS)])?;
        let plain = KeyBuilder::new().proto(protocol).number(list);
        self.fetch_slots(SetId::Endpoints, &plain)?;
        let mut members = self.fetch_slots(SetId::StickySlots, &KeyBuilder::new().number(list))?;
        members.sort_unstable();
        members.dedup();
        for member in members {
            let key = KeyBuilder::new().proto(protocol).number(member).build();
            self.fetch(SetId::StickyEndpoints, &[key])?;
        }
        Ok(())
    }

    /// All slots of a list; their values, where those are ids.
    fn fetch_slots(&mut self, set: SetId, list: &KeyBuilder) -> Result<Vec<u32>, E> {
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

    fn fetch_ids(&mut self, set: SetId, keys: &[Key]) -> Result<Vec<u32>, E> {
        Ok(self.fetch(set, keys)?.iter().filter_map(id).collect())
    }

    /// Asks, and keeps what was found.
    fn fetch(&mut self, set: SetId, keys: &[Key]) -> Result<Vec<ObservedElement>, E> {
        let answers = (self.ask)(set, keys)?;
        let spec = set.spec(self.family);
        let kept = self.found.sets.entry(spec.name.to_owned());
        let kept = kept.or_insert_with(|| ObservedSet::of(&spec));
        kept.elements.extend(answers.iter().cloned());
        self.found.exists |= !answers.is_empty();
        Ok(answers.into_iter().map(|(_, element)| element).collect())
    }
}
