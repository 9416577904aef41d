//! Events in, kernel writes out.

use std::borrow::Borrow;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ferrovia_core::desired::{Builder, Delta, Desired, Settings};
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::model::Warning;
use ferrovia_core::model::node::Node;
use ferrovia_core::plan::Found;
use ferrovia_core::store::{Event, Store, Triggers};
use ferrovia_core::wire::Kind;

use super::backend::{Backend, SyncError, Written};
use super::node_wait::{NodeNeed, NodeWait, Wait};

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
    node_wait: NodeWait,
    received: Received,
}

/// How many events came in so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// About Services.
    pub services: u64,
    /// About EndpointSlices.
    pub slices: u64,
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
    /// When somebody did what is not written yet.
    triggers: Vec<Box<str>>,
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
    /// How long it took, whether it succeeded or not.
    pub took: Duration,
    /// When somebody did what is in the kernel now, as the objects tell it: RFC 3339, unchecked.
    pub triggers: Vec<Box<str>>,
    /// What was done, or why it failed.
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
                triggers: Vec::new(),
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
            node_wait: NodeWait::new(NodeNeed::Nothing),
            received: Received::default(),
        }
    }

    /// Lets the first write wait for our Node.
    #[must_use]
    pub fn waiting_for(self, need: NodeNeed) -> Self {
        Self {
            node_wait: NodeWait::new(need),
            ..self
        }
    }

    /// Takes in an event; nothing is written yet.
    pub fn handle(&mut self, event: impl Borrow<Event>) {
        let event = event.borrow();
        match (event, event.kind()) {
            (Event::Listed(_), _) => {}
            (_, Kind::Service) => self.received.services += 1,
            (_, Kind::EndpointSlice) => self.received.slices += 1,
            _ => {}
        }
        self.store.handle(event).iter().for_each(log_warning);
    }

    /// Looks whether the first write has to wait for our Node any longer.
    pub fn look_for_node(&mut self, now: Instant) -> Wait {
        self.node_wait.look(&self.store, now)
    }

    /// What came in so far.
    pub fn received(&self) -> Received {
        self.received
    }

    /// Our Node, as last seen.
    pub fn node(&self) -> Option<&Node> {
        self.store.node()
    }

    /// What is wanted of a family, as of the last sync; none if this machine does not have the family.
    pub fn desired(&self, family: Family) -> Option<&Desired> {
        let is_enabled = self.families[family].is_some();
        is_enabled.then(|| self.builder.desired(family))
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

    /// The first lists are complete and our Node is known well enough, so the kernel may be written.
    pub fn is_ready(&self) -> bool {
        self.store.is_complete() && self.node_wait.is_over()
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
            let start = Instant::now();
            let result = sync.backend.tidy();
            sync.needs_full |= result.is_err();
            Some(Outcome {
                family,
                kind: SyncKind::Tidy,
                repaired: false,
                took: start.elapsed(),
                triggers: Vec::new(),
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
        self.note_triggers(std::mem::take(&mut touched.triggers));
        let update = self.builder.update(&self.store, touched, &self.addresses);
        update.warnings.iter().for_each(log_warning);
        update.deltas
    }

    fn note_triggers(&mut self, triggers: Triggers) {
        for (family, time) in triggers.into_values().flatten() {
            if let Some(sync) = &mut self.families[family] {
                sync.triggers.push(time);
            }
        }
    }

    fn sync_family(&mut self, family: Family, delta: &Delta) -> Option<Outcome> {
        let sync = self.families[family].as_mut()?;
        let desired = self.builder.desired(family);
        if !sync.needs_full && delta.is_empty() {
            // Whatever happened makes no difference to the kernel.
            sync.triggers.clear();
            return None;
        }
        let start = Instant::now();
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
        let triggers = match &result {
            Ok(_) => std::mem::take(&mut sync.triggers),
            Err(_) => Vec::new(),
        };
        Some(Outcome {
            family,
            kind,
            repaired,
            took: start.elapsed(),
            triggers,
            result,
        })
    }
}

fn log_warning(warning: &Warning) {
    tracing::warn!(object = %warning.object, field = %warning.field, "{}", warning.problem);
}
