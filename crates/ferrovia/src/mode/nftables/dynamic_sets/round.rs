//! One round: what the kernel has is read, and what must go goes.

use std::time::Instant;

use ferrovia_core::dialect::nft::ElementKey;
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::plan::nft::layout::{NftSetId, TABLE};
use ferrovia_core::plan::nft::sweep::{
    DynamicSetDump, RemovedFrontends, Sweep, enough, overflow, sweep,
};
use ferrovia_host::memory;
use ferrovia_host::nft::{Error, Nft, NftConnection};

use super::Report;

/// After reading so many entries the memory they took is given back.
const MANY: usize = 10_000;

/// The sets that packets fill.
const FILLED: [NftSetId; 3] = [
    NftSetId::Affinity,
    NftSetId::Connections,
    NftSetId::Refusals,
];

/// The sets, and what was last seen of them.
pub(super) struct Sets {
    /// Writes, so that our rules' other writers know these changes as ours.
    writer: NftConnection,
    /// Reads, so that writers need not wait for that. Opened when it is needed.
    reader: Option<Nft>,
    counters: bool,
    seen: PerFamily<Overflows>,
}

/// Packets that found no room.
#[derive(Default)]
struct Overflows {
    /// In each of the sets that rules watch, as counted by the rules.
    counted: [u64; 2],
    /// The sets that were full since they were last swept.
    full: [bool; 2],
}

/// The sets that have a rule which counts packets that found them full.
const WATCHED: [NftSetId; 2] = [NftSetId::Affinity, NftSetId::Connections];

impl Sets {
    pub(super) fn new(writer: NftConnection, counters: bool) -> Self {
        Self {
            writer,
            reader: None,
            counters,
            seen: PerFamily::default(),
        }
    }

    fn reader(&mut self) -> Result<&mut Nft, Error> {
        match &mut self.reader {
            Some(reader) => Ok(reader),
            none => Ok(none.insert(Nft::open()?)),
        }
    }

    /// Finds out whether packets found a set full since the last look.
    pub(super) fn look(&mut self, family: Family, report: &mut impl FnMut(Report)) {
        let counters = match self
            .reader()
            .and_then(|nft| nft.rule_counters(family, TABLE))
        {
            Ok(counters) => counters,
            Err(error) => {
                tracing::debug!(%family, %error, "Failed to read the counters of full sets");
                self.reader = None;
                return;
            }
        };
        let seen = &mut self.seen[family];
        for (i, set) in WATCHED.into_iter().enumerate() {
            let now = overflow(set, &counters);
            // Rules that were written again count from zero.
            let packets = now.checked_sub(seen.counted[i]).unwrap_or(now);
            seen.counted[i] = now;
            if packets > 0 {
                seen.full[i] = true;
                let set = set.name();
                tracing::info!(%family, set, packets, "A set that packets fill was full");
                report(Report::Overflowed {
                    family,
                    set,
                    packets,
                });
            }
        }
    }

    /// Removes what belongs to services that went, and what exceeds a full set.
    pub(super) fn sweep(
        &mut self,
        family: Family,
        departed: Option<&RemovedFrontends>,
        report: &mut impl FnMut(Report),
    ) -> Result<(), Error> {
        let nothing = RemovedFrontends::default();
        let departed = departed.unwrap_or(&nothing);
        for set in FILLED {
            if set.counts() && !self.counters {
                continue;
            }
            let watched = WATCHED.into_iter().position(|watched| watched == set);
            let was_full = watched.is_some_and(|i| self.seen[family].full[i]);
            if !was_full && !departed.concerns(set) {
                continue;
            }
            let result = self.sweep_set(family, set, departed, was_full, report);
            match result {
                Ok(()) => {
                    if let Some(i) = watched {
                        self.seen[family].full[i] = false;
                    }
                }
                // Without services there is no table.
                Err(error) if error.is_not_found() => {}
                Err(error) => {
                    // The connection may be in any state.
                    self.reader = None;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn sweep_set(
        &mut self,
        family: Family,
        set: NftSetId,
        departed: &RemovedFrontends,
        was_full: bool,
        report: &mut impl FnMut(Report),
    ) -> Result<(), Error> {
        let start = Instant::now();
        let most = enough(family, set, departed);
        let entries = Nft::entries(family, TABLE, set.name(), most)?;
        let count = entries.len();
        let read = DynamicSetDump {
            entries,
            is_all: count < most,
            was_full,
        };
        let reader = self.reader()?;
        let mut has = |set: NftSetId, key: ElementKey| {
            let found = reader.look_up(family, TABLE, &set.spec(family), &[key])?;
            Ok(!found.is_empty())
        };
        let decided = sweep(family, set, read, departed, &mut has)?;
        let removed = self.remove(family, set, &decided)?;
        if count >= MANY {
            memory::give_back();
        }
        let (service_gone, no_room) = removed;
        if service_gone + no_room == 0 {
            return Ok(());
        }
        let (set, took) = (set.name(), start.elapsed());
        if no_room > 0 {
            tracing::warn!(%family, set, no_room, service_gone, ?took, "Evicted entries from a full set to make room for others");
        } else {
            tracing::debug!(%family, set, service_gone, ?took, "Removed entries of deleted Services");
        }
        report(Report::Swept {
            family,
            set,
            service_gone,
            no_room,
        });
        Ok(())
    }

    fn remove(
        &self,
        family: Family,
        set: NftSetId,
        decided: &Sweep,
    ) -> Result<(usize, usize), Error> {
        let spec = set.spec(family);
        let service_gone = self.writer.forget(family, spec, &decided.service_gone)?;
        let no_room = self.writer.forget(family, spec, &decided.no_room)?;
        Ok((service_gone, no_room))
    }
}
