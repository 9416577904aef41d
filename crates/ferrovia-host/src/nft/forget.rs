//! Removes entries from the sets that packets fill.

use std::collections::HashSet;

use ferrovia_core::dialect::nft::{Element, ElementKey, NftOp, SetSpec, Transaction};
use ferrovia_core::family::Family;
use ferrovia_core::plan::nft::layout::TABLE;

use super::applier::NftConnection;
use super::error::Error;

/// So many entries go in one transaction. Syncs wait for it: this many take a few milliseconds.
const AT_ONCE: usize = 2048;
/// How often what is left of a transaction is tried: entries may go on their own at any time.
const ATTEMPTS: usize = 8;

impl NftConnection {
    /// Removes these entries, in several transactions; returns how many there were. Entries that are gone already do not matter.
    ///
    /// # Errors
    /// If the kernel refuses for another reason, or the netlink socket fails.
    pub fn forget(
        &self,
        family: Family,
        set: SetSpec,
        keys: &[ElementKey],
    ) -> Result<usize, Error> {
        let mut removed = 0;
        for keys in keys.chunks(AT_ONCE) {
            removed += self.forget_some(family, set, keys)?;
        }
        Ok(removed)
    }

    /// The kernel refuses a transaction that deletes what is not there, and older ones cannot be asked to overlook it. So every entry is an
    /// operation of its own, and those that were refused are left out of the next attempt.
    fn forget_some(
        &self,
        family: Family,
        set: SetSpec,
        keys: &[ElementKey],
    ) -> Result<usize, Error> {
        let delete =
            |key: &ElementKey| NftOp::DeleteElements(set, vec![Element::member(key.clone())]);
        let mut transaction = Transaction {
            family,
            table: TABLE.into(),
            ops: keys.iter().map(delete).collect(),
            notes: Vec::new(),
        };
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.write(&transaction) {
                Ok(_) => return Ok(transaction.ops.len()),
                Err(error) => {
                    let missing = missing(&error).filter(|_| attempts < ATTEMPTS);
                    let Some(missing) = missing else {
                        return Err(error);
                    };
                    let mut place = 0;
                    transaction.ops.retain(|_| {
                        place += 1;
                        !missing.contains(&(place - 1))
                    });
                }
            }
        }
    }
}

/// The operations that failed, if all of them did because what they delete is not there.
fn missing(error: &Error) -> Option<HashSet<usize>> {
    let Error::Refused(failures) = error else {
        return None;
    };
    let missing = failures.iter().map(|failure| {
        let is_missing = failure.refusal.errno == libc::ENOENT;
        failure.op.filter(|_| is_missing)
    });
    missing.collect()
}
