//! The nftables mode's way into the kernel.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferrovia_core::dialect::nft::{Observed, Transaction};
use ferrovia_core::family::Family;
use ferrovia_core::plan::nft::layout::{PREDECESSORS, TABLE};

use super::{Error, Nft};
use crate::Applier;

/// Writes one family's table.
#[derive(Debug)]
pub struct NftApplier {
    family: Family,
    /// Shared by the families, so that there is one origin of our changes for the monitor to know.
    nft: Arc<Mutex<Nft>>,
    /// The ruleset's generation when we last knew it.
    generation: Option<u32>,
}

impl NftApplier {
    /// An applier that writes by this connection.
    pub fn new(family: Family, nft: Arc<Mutex<Nft>>) -> Self {
        Self {
            family,
            nft,
            generation: None,
        }
    }

    fn nft(&self) -> MutexGuard<'_, Nft> {
        // A connection is as good as before after a panic elsewhere: every exchange starts anew.
        self.nft.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Applier for NftApplier {
    type Observed = Observed;
    type Plan = Transaction;
    type Error = Error;

    fn observe(&mut self) -> Result<Observed, Error> {
        // Asked for before reading: whatever is committed in between makes us look again, at worst once too often.
        let generation = self.nft().generation()?;
        let observed = self.nft().observe(self.family, TABLE, &PREDECESSORS)?;
        self.generation = Some(generation);
        Ok(observed)
    }

    fn apply(&mut self, plan: &Transaction) -> Result<bool, Error> {
        if plan.is_empty() {
            return Ok(false);
        }
        for note in &plan.notes {
            tracing::warn!("{note}");
        }
        self.nft().apply(plan)?;
        // A commit counts the generation up by one. If somebody else committed since we last looked, ours is not the next number, and
        // the next check finds that out.
        self.generation = self.generation.map(|generation| generation.wrapping_add(1));
        Ok(true)
    }

    fn is_untouched(&mut self) -> Result<bool, Error> {
        let generation = self.nft().generation()?;
        Ok(self.generation == Some(generation))
    }
}
