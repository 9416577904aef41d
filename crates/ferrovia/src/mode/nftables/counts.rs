//! The counters of the nftables mode: elements of sets that packets fill.

use std::collections::HashMap;
use std::net::SocketAddr;

use ferrovia_core::family::Family;
use ferrovia_core::plan::nft::connection_counts::{self, connection, refusal};
use ferrovia_core::plan::nft::layout::{NftSetId, TABLE};
use ferrovia_host::nft::Nft;

use crate::inspect::counters::{Counted, Counts, Destination};
use crate::sync::backend::SyncError;

/// A connection to these sets.
pub(super) struct NftCounts(Nft);

impl NftCounts {
    pub(super) fn open() -> Result<Self, SyncError> {
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
                        to: destination(to),
                        endpoint: Some(SocketAddr::new(ip, port)),
                    }),
                    _ => refusal(&key).map(|to| Counted {
                        to: destination(to),
                        endpoint: None,
                    }),
                };
                Some((counted?, count))
            });
            all.extend(counts);
        }
        Ok(all)
    }
}

fn destination(to: connection_counts::PacketDestination) -> Destination {
    Destination {
        address: to.address,
        protocol: to.protocol,
        port: to.port,
    }
}
