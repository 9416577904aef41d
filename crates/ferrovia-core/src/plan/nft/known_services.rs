//! Which elements belong to known services.
//!
//! While some objects could not be read, elements of unknown services are kept: rules of an earlier run serve them better than
//! none.

use std::collections::HashSet;

use super::adopt::number;
use super::layout::{NftSetId, port_number};
use super::service_elements::frontend_key;
use crate::desired::Desired;
use crate::dialect::nft::ElementKey;

/// The frontends and numbers of known services.
#[derive(Debug)]
pub(super) struct KnownServices {
    frontends: HashSet<ElementKey>,
    numbers: HashSet<u32>,
}

impl KnownServices {
    /// Those of the desired state; `numbers` are the service ports'.
    pub(super) fn new(desired: &Desired, numbers: HashSet<u32>) -> Self {
        let ports = desired.ports.values();
        let frontends = ports
            .flat_map(|port| {
                port.frontends
                    .iter()
                    .map(|frontend| frontend_key(port, *frontend))
            })
            .collect();
        Self { frontends, numbers }
    }

    /// The element belongs to a known service, or to none.
    pub(super) fn owns(&self, set: NftSetId, key: &ElementKey) -> bool {
        let bytes = key.as_bytes();
        let numbered = |from: usize| {
            let id = bytes.get(from..from + 4).and_then(number);
            id.is_none_or(|id| self.numbers.contains(&port_number(id)))
        };
        match set {
            NftSetId::Services
            | NftSetId::NodePorts
            | NftSetId::RejectedServices
            | NftSetId::DroppedServices
            | NftSetId::RejectedNodePorts
            | NftSetId::DroppedNodePorts
            | NftSetId::Restricted => self.frontends.contains(key),
            // The source behind the frontend is as long as the address before it.
            NftSetId::AllowedSources => {
                let frontend = bytes.get(..bytes.len() / 2 + 4).unwrap_or_default();
                self.frontends.contains(&ElementKey::from_bytes(frontend))
            }
            NftSetId::Endpoints | NftSetId::StickyEndpoints => numbered(4),
            NftSetId::StickySlots | NftSetId::ExternalInside | NftSetId::ExternalOutside => {
                numbered(0)
            }
            // Shared by services: an unknown one may need them.
            NftSetId::Picks | NftSetId::ClusterIps | NftSetId::Hairpin => false,
            NftSetId::NodePortIps
            | NftSetId::Affinity
            | NftSetId::Connections
            | NftSetId::Refusals => true,
        }
    }
}
