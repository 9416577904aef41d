//! Events in, kernel writes out.

use std::borrow::Borrow;
use std::net::IpAddr;

use ferrovia_core::desired::{Builder, Delta, Settings};
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::model::Warning;
use ferrovia_core::plan::Found;
use ferrovia_core::store::{Event, Store};

use super::backend::{Backend, SyncError, Written};

/// After so many full syncs that failed in a row, what is in the kernel is taken to be at fault and made anew.
const FAILURES_BEFORE_REPLACING: u32 = 2;

/// Everything the proxy knows and the modes it writes with.
pub struct Engine {
    store: Store,
    builder: Builder,
    families: PerFamily<Option<FamilySync>>,
    addresses: Vec<IpAddr>,
    addresses_changed: bool,
    /// Not all objects could be read yet.
    is_partial: bool,
}

/// One family's way into the kernel.
struct FamilySync {
    backend: Box<dyn Backend>,
    /// What is in the kernel is not known, or known to be wrong.
    needs_full: bool,
    /// Full syncs that failed in a row.
    failures: u32,
    /// The rules were whole once; if they are not when we look again, somebody changed them.
    was_written: bool,
}

/// What kind of sync was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// The kernel was read back and compared with everything that is wanted.
    Full,
    /// Only what changed was written.
    Partial,
    /// Leftovers were removed.
    Tidy,
}

/// One family's sync.
#[derive(Debug)]
pub struct Outcome {
    /// Which family.
    pub family: Family,
    /// What was done.
    pub kind: SyncKind,
    /// The kernel's rules had been changed by someone else and were mended.
    pub repaired: bool,
    /// What it took, or why it failed.
    pub result: Result<Written, SyncError>,
}

impl Engine {
    /// An engine that knows nothing yet. A family without a backend is left alone.
    pub fn new(settings: Settings, backends: PerFamily<Option<Box<dyn Backend>>>) -> Self {
        let family = |backend: Option<Box<dyn Backend>>| {
            backend.map(|backend| FamilySync {
                backend,
                needs_full: true,
                failures: 0,
                was_written: false,
            })
        };
        Self {
            store: Store::new(&settings.node_name),
            builder: Builder::new(settings),
            families: PerFamily {
                v4: family(backends.v4),
                v6: family(backends.v6),
            },
            addresses: Vec::new(),
            addresses_changed: true,
            is_partial: false,
        }
    }

    /// Takes in an event; nothing is written yet.
    pub fn handle(&mut self, event: impl Borrow<Event>) {
        self.store.handle(event).iter().for_each(log_warning);
    }

    /// Takes in this machine's addresses.
    pub fn set_addresses(&mut self, mut addresses: Vec<IpAddr>) {
        addresses.sort_unstable();
        addresses.dedup();
        self.addresses_changed |= addresses != self.addresses;
        self.addresses = addresses;
    }

    /// Says whether the source could read all its objects. As long as it could not, a full sync leaves alone what belongs to services
    /// that are not known: an earlier run knew better.
    pub fn set_partial(&mut self, is_partial: bool) {
        if self.is_partial && !is_partial {
            Family::ALL
                .into_iter()
                .for_each(|family| self.suspect(family));
        }
        self.is_partial = is_partial;
    }

    /// The first lists are complete, so the kernel may be written.
    pub fn is_ready(&self) -> bool {
        self.store.is_complete()
    }

    /// Somebody may have changed a family's rules, so they are to be compared with what is wanted.
    pub fn suspect(&mut self, family: Family) {
        if let Some(sync) = &mut self.families[family] {
            sync.needs_full = true;
        }
    }

    /// Looks whether anybody touched the kernel's rules, cheaply; whoever did is found out by the next sync.
    pub fn check(&mut self) {
        for family in Family::ALL {
            let Some(sync) = &mut self.families[family] else {
                continue;
            };
            match sync.backend.is_untouched() {
                Ok(true) => {}
                Ok(false) => sync.needs_full = true,
                Err(error) => {
                    tracing::warn!(%family, %error, "cannot tell whether the rules are as they were; comparing all");
                    sync.needs_full = true;
                }
            }
        }
    }

    /// Writes what events have changed. Answers with what was done, family by family; empty if there was nothing to do.
    pub fn sync(&mut self) -> Vec<Outcome> {
        if !self.is_ready() {
            return Vec::new();
        }
        let deltas = self.update();
        Family::ALL
            .into_iter()
            .filter_map(|family| self.sync_family(family, &deltas[family]))
            .collect()
    }

    /// Earlier syncs left something behind.
    pub fn has_leftovers(&self) -> bool {
        let families = [&self.families.v4, &self.families.v6];
        families
            .into_iter()
            .flatten()
            .any(|sync| !sync.needs_full && sync.backend.has_leftovers())
    }

    /// Removes some of it.
    pub fn tidy(&mut self) -> Vec<Outcome> {
        let tidy = |family: Family, sync: &mut Option<FamilySync>| {
            let sync = sync
                .as_mut()
                .filter(|sync| !sync.needs_full && sync.backend.has_leftovers())?;
            let result = sync.backend.tidy();
            sync.needs_full |= result.is_err();
            Some(Outcome {
                family,
                kind: SyncKind::Tidy,
                repaired: false,
                result,
            })
        };
        Family::ALL
            .into_iter()
            .filter_map(|family| tidy(family, &mut self.families[family]))
            .collect()
    }

    fn update(&mut self) -> PerFamily<Delta> {
        let mut touched = self.store.take_touched();
        touched.node |= std::mem::take(&mut self.addresses_changed);
        let update = self.builder.update(&self.store, touched, &self.addresses);
        update.warnings.iter().for_each(log_warning);
        update.deltas
    }

    fn sync_family(&mut self, family: Family, delta: &Delta) -> Option<Outcome> {
        let sync = self.families[family].as_mut()?;
        let desired = self.builder.desired(family);
        if !sync.needs_full && delta.is_empty() {
            return None;
        }
        let kind = if sync.needs_full {
            SyncKind::Full
        } else {
            SyncKind::Partial
        };
        let found = if self.is_partial {
            Found::Keep
        } else if sync.failures < FAILURES_BEFORE_REPLACING {
            Found::Adopt
        } else {
            Found::Replace
        };
        let result = match kind {
            SyncKind::Full => sync.backend.full(desired, found),
            _ => sync.backend.partial(desired, delta),
        };
        // A full sync that was asked for without a change and still found something to write has met somebody else's work.
        let changed = result.as_ref().is_ok_and(|written| written.changed);
        let repaired = kind == SyncKind::Full && sync.was_written && delta.is_empty() && changed;
        sync.needs_full = result.is_err();
        sync.failures = match (&result, kind) {
            (Err(_), SyncKind::Full) => sync.failures.saturating_add(1),
            (Err(_), _) => sync.failures,
            (Ok(_), _) => 0,
        };
        sync.was_written |= result.is_ok();
        Some(Outcome {
            family,
            kind,
            repaired,
            result,
        })
    }
}

fn log_warning(warning: &Warning) {
    tracing::warn!(object = %warning.object, field = %warning.field, "{}", warning.problem);
}
