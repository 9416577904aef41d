//! What a sync was about, in brief: enough to tell people, and cheap enough to be noted each time.

use ferrovia_core::desired::Delta;
use ferrovia_core::model::ServiceKey;

/// So many services are told by name.
const NAMED: usize = 20;

/// What changed for a family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Brief {
    /// What holds for the whole node.
    pub node: bool,
    /// Service ports that appeared.
    pub appeared: usize,
    /// Service ports that changed.
    pub changed: usize,
    /// Service ports that went.
    pub went: usize,
    /// The services these belong to; only the first few, in order of their names.
    pub services: Vec<ServiceKey>,
    /// How many services there are in all.
    pub service_count: usize,
}

impl Brief {
    /// Sums a change up.
    pub fn of(delta: &Delta) -> Self {
        let mut brief = Self {
            node: delta.node,
            ..Self::default()
        };
        let mut last = None;
        for change in &delta.ports {
            match (&change.old, &change.new) {
                (None, _) => brief.appeared += 1,
                (Some(_), Some(_)) => brief.changed += 1,
                (Some(_), None) => brief.went += 1,
            }
            // Changes come in order of their keys, so a service's ports come together.
            let service = &change.key.service;
            if last.replace(service) != Some(service) {
                brief.service_count += 1;
                if brief.services.len() < NAMED {
                    brief.services.push(service.clone());
                }
            }
        }
        brief
    }
}

#[cfg(test)]
mod tests {
    use ferrovia_core::desired::PortChange;
    use ferrovia_core::model::{PortKey, Protocol};

    use super::*;

    #[test]
    fn services_are_counted_once_and_the_first_are_named() {
        let change = |service: &str, port: &str| PortChange {
            key: PortKey {
                service: ServiceKey::new("shop", service).unwrap(),
                name: port.into(),
                protocol: Protocol::Tcp,
            },
            old: None,
            new: None,
        };
        let mut ports = vec![change("a", "x"), change("a", "y")];
        ports.extend((0..30).map(|i| change(&format!("b{i:02}"), "x")));
        let brief = Brief::of(&Delta {
            ports,
            ..Delta::default()
        });
        assert_eq!((brief.appeared, brief.service_count), (32, 31));
        assert_eq!(brief.services.len(), NAMED);
        assert_eq!(brief.services[1].as_str(), "shop/b00");
    }
}
