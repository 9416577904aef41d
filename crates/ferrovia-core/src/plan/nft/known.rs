//! Which elements belong to services we know of.
//!
//! While not all objects could be read, what belongs to others stays as it is: it is better served by the rules of an earlier run than by
//! none.

use std::collections::HashSet;

use super::adopt::number;
use super::layout::{SetId, port_number};
use super::service::frontend_key;
use crate::desired::Desired;
use crate::dialect::nft::Key;

/// The frontends and numbers of known services.
#[derive(Debug)]
pub(super) struct Known {
    frontends: HashSet<Key>,
    numbers: HashSet<u32>,
}

impl Known {
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
    pub(super) fn owns(&self, set: SetId, key: &Key) -> bool {
        let bytes = key.as_bytes();
        let numbered = |from: usize| {
            let id = bytes.get(from..from + 4).and_then(number);
            id.is_none_or(|id| self.numbers.contains(&port_number(id)))
        };
        match set {
            SetId::Services
            | SetId::NodePorts
            | SetId::RejectedServices
            | SetId::DroppedServices
            | SetId::RejectedNodePorts
            | SetId::DroppedNodePorts
            | SetId::Restricted => self.frontends.contains(key),
            // The source behind the frontend is as long as the address before it.
            SetId::AllowedSources => {
                let frontend = bytes.get(..bytes.len() / 2 + 4).unwrap_or_default();
                self.frontends.contains(&Key::from_bytes(frontend))
            }
            SetId::Endpoints | SetId::StickyEndpoints => numbered(4),
            SetId::StickySlots | SetId::ExternalInside | SetId::ExternalOutside => numbered(0),
            // Shared by services: somebody unknown may need them.
            SetId::Picks | SetId::ClusterIps | SetId::Hairpin => false,
            SetId::NodePortIps | SetId::Affinity | SetId::Connections | SetId::Refusals => true,
        }
    }
}
