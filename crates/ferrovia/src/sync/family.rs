//! One family's rules: what is owed to the kernel, and how the last attempts to write it went.

use std::time::{Duration, Instant};

use ferrovia_core::desired::{Delta, Desired};
use ferrovia_core::family::Family;
use ferrovia_core::plan::Found;
use ferrovia_core::plan::conntrack::{Cleanup, Owed};
use ferrovia_core::plan::nft::sweep::Departed;

use super::backend::{Backend, SyncError, Written};
use super::brief::Brief;

/// After so many full syncs that failed in a row, what is in the kernel is taken to be at fault and made anew.
const FAILURES_BEFORE_REPLACING: u32 = 2;

/// So many triggers wait for a write that succeeds. There may be more only where writes have failed for long, and then the first say how long.
const MOST_TRIGGERS: usize = 100_000;

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
    /// What it was about.
    pub brief: Brief,
    /// How long it took, whether it succeeded or not.
    pub took: Duration,
    /// When somebody did what is in the kernel now, as the objects tell it: RFC 3339, unchecked.
    pub triggers: Vec<Box<str>>,
    /// Flows that go nowhere now that the rules are in force.
    pub cleanup: Option<Cleanup>,
    /// What no service has any more now that the rules are in force.
    pub departed: Option<Departed>,
    /// What was done, or why it failed.
    pub result: Result<Written, SyncError>,
}

/// One family's way into the kernel.
pub(super) struct FamilySync {
    pub(super) backend: Box<dyn Backend>,
    /// What is in the kernel is not known, or known to be wrong.
    pub(super) needs_full: bool,
    /// Full syncs that failed in a row.
    failures: u32,
    /// The rules were whole once; if they are not when we look again, somebody changed them.
    was_written: bool,
    /// When somebody did what is not written yet.
    triggers: Vec<Box<str>>,
    /// Flows that will have lost their endpoint once all is written.
    pub(super) owed: Owed,
    /// What will have gone once all is written.
    departed: Option<Departed>,
}

impl FamilySync {
    /// Nothing is known of the kernel yet.
    pub(super) fn new(backend: Box<dyn Backend>) -> Self {
        Self {
            backend,
            needs_full: true,
            failures: 0,
            was_written: false,
            triggers: Vec::new(),
            owed: Owed::default(),
            departed: Some(Departed::anything()),
        }
    }

    /// Keeps when somebody did something that is to be written.
    pub(super) fn note_trigger(&mut self, time: Box<str>) {
        if self.triggers.len() < MOST_TRIGGERS {
            self.triggers.push(time);
        }
    }

    /// Writes a change, or everything if that is needed; `None` if there is nothing to do. With `has_unreadable_objects` not all objects are known.
    pub(super) fn write(
        &mut self,
        desired: &Desired,
        delta: &Delta,
        has_unreadable_objects: bool,
    ) -> Option<Outcome> {
        if !self.needs_full && delta.is_empty() {
            // Whatever happened makes no difference to the kernel.
            self.triggers.clear();
            return None;
        }
        let start = Instant::now();
        self.owed.note(delta);
        self.note_departed(delta);
        let (kind, result) = if self.needs_full {
            let found = self.treatment(has_unreadable_objects);
            (SyncKind::Full, self.backend.full(desired, found))
        } else {
            (SyncKind::Partial, self.backend.partial(desired, delta))
        };
        let took = start.elapsed();
        // A full sync that was asked for without a change and still found something to write has met somebody else's work.
        let changed = result.as_ref().is_ok_and(|written| written.changed);
        let repaired = kind == SyncKind::Full && self.was_written && delta.is_empty() && changed;
        if repaired {
            // What began while the rules were not ours may have gone past them.
            self.owed.note_all(desired);
        }
        self.remember(kind, result.is_ok());
        let triggers = match &result {
            Ok(_) => std::mem::take(&mut self.triggers),
            Err(_) => Vec::new(),
        };
        let departed = self.departed.take_if(|_| result.is_ok());
        Some(Outcome {
            family: desired.family,
            kind,
            repaired,
            brief: Brief::of(delta),
            took,
            triggers,
            cleanup: None,
            departed,
            result,
        })
    }

    fn note_departed(&mut self, delta: &Delta) {
        let Some(news) = Departed::with(delta) else {
            return;
        };
        match &mut self.departed {
            Some(earlier) => earlier.absorb(news),
            none => *none = Some(news),
        }
    }

    /// How long what earlier syncs left behind may stay; none if they left nothing.
    pub(super) fn leftovers_after(&self) -> Option<Duration> {
        self.backend.leftovers_after().filter(|_| !self.needs_full)
    }

    /// Removes some of what earlier syncs left behind.
    pub(super) fn tidy(&mut self, family: Family) -> Option<Outcome> {
        self.leftovers_after()?;
        let start = Instant::now();
        let result = self.backend.tidy();
        self.needs_full |= result.is_err();
        Some(Outcome {
            family,
            kind: SyncKind::Tidy,
            repaired: false,
            brief: Brief::default(),
            took: start.elapsed(),
            triggers: Vec::new(),
            cleanup: None,
            departed: None,
            result,
        })
    }

    /// How a full sync treats what it finds.
    fn treatment(&self, has_unreadable_objects: bool) -> Found {
        if has_unreadable_objects {
            Found::Keep
        } else if self.failures < FAILURES_BEFORE_REPLACING {
            Found::Adopt
        } else {
            Found::Replace
        }
    }

    fn remember(&mut self, kind: SyncKind, succeeded: bool) {
        self.needs_full = !succeeded;
        self.was_written |= succeeded;
        self.failures = match (succeeded, kind) {
            (true, _) => 0,
            (false, SyncKind::Full) => self.failures.saturating_add(1),
            (false, _) => self.failures,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that refuses everything.
    struct Refusing;

    impl Backend for Refusing {
        fn full(&mut self, _: &Desired, _: Found) -> Result<Written, SyncError> {
            Err("no".into())
        }

        fn partial(&mut self, _: &Desired, _: &Delta) -> Result<Written, SyncError> {
            Err("no".into())
        }

        fn leftovers_after(&self) -> Option<Duration> {
            None
        }

        fn tidy(&mut self) -> Result<Written, SyncError> {
            Err("no".into())
        }

        fn is_untouched(&mut self) -> Result<bool, SyncError> {
            Err("no".into())
        }
    }

    #[test]
    fn triggers_do_not_pile_up_without_end_while_writes_fail() {
        let mut sync = FamilySync::new(Box::new(Refusing));
        for i in 0..MOST_TRIGGERS + 10 {
            sync.note_trigger(i.to_string().into());
        }
        assert_eq!(sync.triggers.len(), MOST_TRIGGERS);
        assert_eq!(sync.triggers.first().map(|first| &**first), Some("0"));
    }
}
