//! Where each mode finds its counts in the kernel.

use std::collections::HashMap;
use std::net::SocketAddr;

use ferrovia_core::family::Family;
use ferrovia_core::plan::nft::connection_counts::{PacketDestination, connection, refusal};
use ferrovia_core::plan::nft::layout::{NftSetId, TABLE};
use ferrovia_host::ipvs::Ipvs;
use ferrovia_host::nft::Nft;

use super::totals::{Counted, Counts};
use crate::sync::backend::SyncError;

/// The sets that packets fill in nftables mode.
pub struct NftCounts(Nft);

impl NftCounts {
    /// Opens a way to them.
    pub fn open() -> Result<Self, SyncError> {
        Ok(Self(Nft::open()?))
    }
}

impl Counts for NftCounts {
    fn read(&mut self, family: Family) -> Result<HashMap<Counted, u64>, SyncError> {
        let mut all = HashMap::new();
        for set in [NftSetId::Connections, NftSetId::Refusals] {
            // Without services there is no table, and without counters no such set.
            let counts = match self.0.counters(family, TABLE, set.name()) {
                Ok(counts) => counts,
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error.into()),
            };
            let counts = counts.into_iter().filter_map(|(key, count)| {
                let counted = match set {
                    NftSetId::Connections => connection(&key).map(|(to, (ip, port))| Counted {
                        to,
                        endpoint: Some(SocketAddr::new(ip, port)),
                    }),
                    _ => refusal(&key).map(|to| Counted { to, endpoint: None }),
                };
                Some((counted?, count))
            });
            all.extend(counts);
        }
        Ok(all)
    }
}

/// The statistics of virtual servers' destinations.
pub struct IpvsCounts(Ipvs);

impl IpvsCounts {
    /// Opens a way to them.
    pub fn open() -> Result<Self, SyncError> {
        Ok(Self(Ipvs::open()?))
    }
}

impl Counts for IpvsCounts {
    fn read(&mut self, family: Family) -> Result<HashMap<Counted, u64>, SyncError> {
        let mut all = HashMap::new();
        for found in self.0.servers(family)? {
            // Most have had no connection, and asking for destinations takes a question for each server.
            if found.stats.connections == 0 {
                continue;
            }
            let key = found.server.key;
            let to = PacketDestination {
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
