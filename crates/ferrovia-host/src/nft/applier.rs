//! The nftables mode's way into the kernel.
//!
//! There is an applier per family, but one [`NftConnection`]: the kernel counts commits for all families together, so only a
//! connection that makes the commits of both families can distinguish them from those of other processes.

use std::sync::{Arc, Mutex, MutexGuard};

use ferrovia_core::dialect::nft::{NftName, NftObserved, NftOp, Transaction};
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::plan::nft::layout::{PREDECESSORS, TABLE};

use super::{Error, Nft};
use crate::{Applier, locked};

/// What the families' appliers share. Clones are the same connection.
#[derive(Clone, Debug)]
pub struct NftConnection(Arc<Mutex<ConnectionState>>);

#[derive(Debug)]
struct ConnectionState {
    /// One for all, so that there is one origin of our changes for the monitor to know.
    nft: Nft,
    /// The ruleset's generation up to which no other process has written since a family was last read. Apart, because reading one family
    /// says nothing about changes to the other.
    known: PerFamily<Option<u32>>,
}

impl NftConnection {
    /// Nothing is known of any family yet.
    pub fn new(nft: Nft) -> Self {
        let known = PerFamily::default();
        Self(Arc::new(Mutex::new(ConnectionState { nft, known })))
    }

    /// Makes the changes of a transaction, and counts it as one of ours. Returns whether there was anything to do.
    pub(super) fn write(&self, plan: &Transaction) -> Result<bool, Error> {
        let mut shared = self.lock();
        let applied = shared.nft.apply(plan)?;
        // What needs no message is no commit either. Were it counted, the next one of another process would pass for ours.
        let is_commit = applied.messages > 0;
        if is_commit {
            shared.count_own_commit();
        }
        Ok(is_commit)
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionState> {
        locked(&self.0)
    }
}

impl ConnectionState {
    /// A commit counts the generation up by one, whichever family it is for. If another process committed since a family was last read,
    /// ours is not the next number for it, and the next check finds that out.
    fn count_own_commit(&mut self) {
        for family in Family::ALL {
            let known = &mut self.known[family];
            *known = known.map(|generation| generation.wrapping_add(1));
        }
    }
}

/// Writes one family's table.
#[derive(Debug)]
pub struct NftApplier {
    family: Family,
    connection: NftConnection,
}

impl NftApplier {
    /// An applier that writes by this connection.
    pub fn new(family: Family, connection: NftConnection) -> Self {
        Self { family, connection }
    }

    /// The tables of a previous proxy that a plan removes, in words. Read before they go.
    fn describe_taken_over(&self, nft: &mut Nft, plan: &Transaction) -> Result<Vec<String>, Error> {
        let removed = plan.ops.iter().filter_map(|op| match op {
            NftOp::DeleteOtherTable(table) => Some(table),
            _ => None,
        });
        let describe = |table: &NftName| {
            let chains = nft.count_chains(self.family, table)?;
            Ok(format!(
                "{} table {table} with {chains} chains",
                self.family
            ))
        };
        removed.map(describe).collect()
    }
}

impl Applier for NftApplier {
    type Observed = NftObserved;
    type Plan = Transaction;
    type Error = Error;

    fn observe(&mut self) -> Result<NftObserved, Error> {
        let mut shared = self.connection.lock();
        // Asked for before reading: whatever is committed in between makes us look again, at worst once too often.
        let generation = shared.nft.generation()?;
        let observed = shared.nft.observe(self.family, TABLE, &PREDECESSORS)?;
        shared.known[self.family] = Some(generation);
        Ok(observed)
    }

    fn apply(&mut self, plan: &Transaction) -> Result<bool, Error> {
        let taken_over = self.describe_taken_over(&mut self.connection.lock().nft, plan)?;
        let is_commit = self.connection.write(plan)?;
        if !taken_over.is_empty() {
            tracing::info!(family = %self.family, removed = %taken_over.join("; "), "Took over from a previous proxy");
        }
        Ok(is_commit)
    }

    fn is_untouched(&mut self) -> Result<bool, Error> {
        let mut shared = self.connection.lock();
        let generation = shared.nft.generation()?;
        Ok(shared.known[self.family] == Some(generation))
    }
}
