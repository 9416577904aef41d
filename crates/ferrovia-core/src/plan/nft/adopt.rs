//! Taking over what an earlier run (or a failed write) left in the kernel, so that a restart with an unchanged cluster writes nothing.
//!
//! Nothing observed is trusted beyond that: adoption only makes the desired state resemble the observed one; the comparison that
//! follows decides.

use std::collections::HashMap;
use std::net::IpAddr;

use super::endpoint_lists::{EndpointList, ListRegistry, PortLists};
use super::endpoint_selector::EndpointSelector;
use super::layout::{LIST_BITS, LOCAL, NftSetId, PORT_BITS, TAG, port_id, port_number};
use super::service_elements::frontend_key;
use super::slots::SlotTarget;
use crate::desired::{Desired, Frontend, ServicePort};
use crate::dialect::nft::{
    ElementData, ElementKey, KeyBuilder, NftObserved, NftVerdict, ObservedSet,
};
use crate::model::PortKey;

/// What the kernel's elements say about lists and classes. With `keep`, what belongs to services we do not know is spared as well.
pub(super) fn adopt(
    desired: &Desired,
    observed: &NftObserved,
    keep: bool,
) -> (ListRegistry, HashMap<PortKey, PortLists>) {
    let kernel = AdoptedTable::new(observed);
    let mut registry = ListRegistry::default();
    for (pick, number) in kernel.classes() {
        registry.classes.adopt(pick, number);
        if keep {
            registry.classes.hold(pick);
        }
    }
    let lists = desired
        .ports
        .values()
        .map(|port| (port.key.clone(), kernel.lists(port, &mut registry)))
        .collect();
    for number in kernel.numbers() {
        if keep {
            registry.adopt(number);
        }
        registry.spare(number);
    }
    registry.finish_adoption();
    (registry, lists)
}

/// Our maps as found.
struct AdoptedTable<'a> {
    observed: &'a NftObserved,
    /// Endpoints of service ports with affinity, by the port's id: number and endpoint.
    sticky: HashMap<u32, Vec<(u32, SlotTarget)>>,
}

impl<'a> AdoptedTable<'a> {
    fn new(observed: &'a NftObserved) -> Self {
        let mut kernel = Self {
            observed,
            sticky: HashMap::new(),
        };
        kernel.sticky = kernel.sticky_endpoints();
        kernel
    }

    fn set(&self, id: NftSetId) -> Option<&'a ObservedSet> {
        self.observed.sets.get(id.name())
    }

    fn value(&self, id: NftSetId, key: &ElementKey) -> Option<&'a ElementKey> {
        match self.set(id)?.elements.get(key)?.data.as_ref()? {
            ElementData::Value(value) => Some(value),
            ElementData::Verdict(_) => None,
        }
    }

    fn id(&self, set: NftSetId, key: &ElementKey) -> Option<u32> {
        number(self.value(set, key)?.as_bytes())
    }

    fn classes(&self) -> impl Iterator<Item = (EndpointSelector, u32)> {
        let elements = self
            .set(NftSetId::Picks)
            .into_iter()
            .flat_map(|set| &set.elements);
        elements.filter_map(|(key, element)| match &element.data {
            Some(ElementData::Verdict(NftVerdict::Goto(chain))) => {
                Some((chain.parse().ok()?, number(key.as_bytes())?))
            }
            _ => None,
        })
    }

    /// The numbers of all service ports that some frontend leads to.
    fn numbers(&self) -> impl Iterator<Item = u32> {
        let sets = [NftSetId::Services, NftSetId::NodePorts].into_iter();
        let elements = sets
            .filter_map(|set| self.set(set))
            .flat_map(|set| &set.elements);
        elements.filter_map(|(_, element)| match &element.data {
            Some(ElementData::Value(value)) => number(value.as_bytes()).map(port_number),
            _ => None,
        })
    }

    fn sticky_endpoints(&self) -> HashMap<u32, Vec<(u32, SlotTarget)>> {
        let mut by_port: HashMap<u32, Vec<_>> = HashMap::new();
        let elements = self
            .set(NftSetId::StickyEndpoints)
            .into_iter()
            .flat_map(|set| &set.elements);
        for (key, element) in elements {
            let Some(id) = key.as_bytes().get(4..).and_then(number) else {
                continue;
            };
            if let Some(ElementData::Value(value)) = &element.data
                && let Some(target) = target(value.as_bytes())
            {
                by_port
                    .entry(id & PORT_BITS)
                    .or_default()
                    .push((id & !LIST_BITS, target));
            }
        }
        by_port
    }

    fn lists(&self, port: &ServicePort, registry: &mut ListRegistry) -> PortLists {
        let ids = port
            .frontends
            .iter()
            .filter_map(|frontend| self.frontend_id(port, *frontend));
        let mut numbers = ids.filter(|id| id & TAG != 0).map(port_number);
        let Some(number) = numbers.find(|number| registry.adopt(*number)) else {
            return PortLists::default();
        };
        let numbered = self.numbered(port_id(number));
        let list = |id| EndpointList {
            slots: self.slots(id, &numbered, port),
            pick: None,
        };
        PortLists {
            number: Some(number),
            cluster: Some(list(port_id(number))),
            local: Some(Box::new(list(port_id(number) | LOCAL))),
            numbered,
        }
    }

    fn numbered(&self, port: u32) -> Box<[Option<SlotTarget>]> {
        let mut numbered = Vec::new();
        for (number, target) in self.sticky.get(&port).into_iter().flatten() {
            let index = (*number as usize).saturating_sub(1);
            if numbered.len() <= index {
                numbered.resize(index + 1, None);
            }
            numbered[index] = Some(*target);
        }
        numbered.into()
    }

    fn frontend_id(&self, port: &ServicePort, frontend: Frontend) -> Option<u32> {
        let set = match frontend {
            Frontend::NodePort(_) => NftSetId::NodePorts,
            _ => NftSetId::Services,
        };
        self.id(set, &frontend_key(port, frontend))
    }

    fn slots(
        &self,
        list: u32,
        numbered: &[Option<SlotTarget>],
        port: &ServicePort,
    ) -> Box<[SlotTarget]> {
        (0..)
            .map_while(|slot| self.slot(list, slot, numbered, port))
            .collect()
    }

    fn slot(
        &self,
        list: u32,
        slot: u32,
        numbered: &[Option<SlotTarget>],
        port: &ServicePort,
    ) -> Option<SlotTarget> {
        if numbered.is_empty() {
            let key = KeyBuilder::new()
                .proto(port.protocol())
                .number(list)
                .number(slot)
                .build();
            return target(self.value(NftSetId::Endpoints, &key)?.as_bytes());
        }
        let key = KeyBuilder::new().number(list).number(slot).build();
        let number = self.id(NftSetId::StickySlots, &key)? & !LIST_BITS;
        *numbered.get((number as usize).checked_sub(1)?)?
    }
}

/// A number as elements hold it.
pub(super) fn number(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

/// An endpoint as elements hold it.
pub(super) fn target(bytes: &[u8]) -> Option<SlotTarget> {
    let (ip, rest): (IpAddr, _) = match bytes.len() {
        8 => (
            <[u8; 4]>::try_from(bytes.get(..4)?).ok()?.into(),
            bytes.get(4..)?,
        ),
        20 => (
            <[u8; 16]>::try_from(bytes.get(..16)?).ok()?.into(),
            bytes.get(16..)?,
        ),
        _ => return None,
    };
    Some((ip, u16::from_be_bytes(rest.get(..2)?.try_into().ok()?)))
}
