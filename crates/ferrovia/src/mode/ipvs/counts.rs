//! The counters of the ipvs mode: statistics of the virtual servers' destinations.

use std::collections::HashMap;

use ferrovia_core::family::Family;
use ferrovia_host::ipvs::Ipvs;

use crate::inspect::counters::{Counted, Counts, Destination};
use crate::sync::backend::SyncError;

/// A connection to IPVS.
pub(super) struct IpvsCounts(Ipvs);

impl IpvsCounts {
    pub(super) fn open() -> Result<Self, SyncError> {
        Ok(Self(Ipvs::open()?))
    }
}

impl Counts for IpvsCounts {
    fn read(&mut self, family: Family) -> Result<HashMap<Counted, u64>, SyncError> {
        let mut all = HashMap::new();
        for found in self.0.servers(family)? {
            // Most have had no connection, and the destinations of each server take a request.
            if found.stats.connections == 0 {
                continue;
            }
            let key = found.server.key;
            let to = Destination {
                address: Some(key.address),
                protocol: key.protocol.number(),
                port: key.port,
            };
            let destinations = self.0.destinations(&key)?.into_iter();
            all.extend(destinations.map(|destination| {
                let endpoint = Some(destination.address);
                (Counted { to, endpoint }, destination.stats.connections)
            }));
        }
        Ok(all)
    }
}
