//! A mode at work: a planner and an applier that speak of the same things.

use std::time::{Duration, Instant};

use ferrovia_core::desired::{Delta, Desired};
use ferrovia_core::model::Warning;
use ferrovia_core::plan::{ObservedPolicy, Plan, Planner};
use ferrovia_host::Applier;

/// How long what a plan left behind may stay: long enough that a rolling update does not remove what its next step needs.
const LEFTOVERS_STAY: Duration = Duration::from_secs(60);
/// The steps in which a planner removes what is left behind are few; one that finds no end is at fault and must not hold up the loop.
const TIDY_STEPS: usize = 8;
/// How many notes of one plan are told.
const MOST_NOTES: usize = 16;

/// Why a sync failed. The modes' own errors say which operation on which object.
pub type SyncError = Box<dyn std::error::Error + Send + Sync>;

/// What a sync did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Something had to be changed in the kernel.
    pub changed: bool,
    /// Time spent reading the kernel back.
    pub observe: Duration,
    /// Time spent planning.
    pub plan: Duration,
    /// Time spent in the kernel.
    pub apply: Duration,
}

/// One mode for one family, whatever its types.
pub trait Backend: Send {
    /// Reads the kernel back and writes every difference to what is wanted; `found` says how to treat what is there.
    fn full(&mut self, desired: &Desired, found: ObservedPolicy) -> Result<Written, SyncError>;

    /// Writes a change.
    fn partial(&mut self, desired: &Desired, delta: &Delta) -> Result<Written, SyncError>;

    /// Earlier syncs left something behind that should be removed after so long; none if they did not.
    fn leftovers_after(&self) -> Option<Duration>;

    /// Removes what can go now.
    fn tidy(&mut self) -> Result<Written, SyncError>;

    /// Nobody has changed the kernel's rules since we last wrote them. Cheap; `false` means "look closer".
    fn is_untouched(&mut self) -> Result<bool, SyncError>;

    /// What authors of Services should know about what was planned since the last call.
    fn take_warnings(&mut self) -> Vec<Warning> {
        Vec::new()
    }
}

/// Joins a planner to its applier.
pub struct Pair<P, A> {
    planner: P,
    applier: A,
}

impl<P, A> Pair<P, A> {
    /// Joins them.
    pub fn new(planner: P, applier: A) -> Self {
        Self { planner, applier }
    }
}

impl<P, A> Backend for Pair<P, A>
where
    P: Planner + Send,
    A: Applier<Observed = P::Observed, Plan = P::Plan> + Send,
    A::Error: Into<SyncError>,
{
    fn full(&mut self, desired: &Desired, found: ObservedPolicy) -> Result<Written, SyncError> {
        let start = Instant::now();
        let observed = self.applier.observe().map_err(Into::into)?;
        let observe = start.elapsed();
        let planner = &mut self.planner;
        apply(&mut self.applier, observe, || {
            planner.full(desired, &observed, found)
        })
    }

    fn partial(&mut self, desired: &Desired, delta: &Delta) -> Result<Written, SyncError> {
        let planner = &mut self.planner;
        apply(&mut self.applier, Duration::ZERO, || {
            planner.incremental(desired, delta)
        })
    }

    fn leftovers_after(&self) -> Option<Duration> {
        let planner = self
            .planner
            .has_deferred_removals()
            .then_some(LEFTOVERS_STAY);
        let applier = self.applier.leftovers_after();
        [planner, applier].into_iter().flatten().min()
    }

    fn tidy(&mut self) -> Result<Written, SyncError> {
        let start = Instant::now();
        let mut changed = false;
        for _ in 0..TIDY_STEPS {
            if !self.planner.has_deferred_removals() {
                break;
            }
            let planner = &mut self.planner;
            changed |= apply(&mut self.applier, Duration::ZERO, || {
                planner.deferred_removals()
            })?
            .changed;
        }
        changed |= self.applier.tidy().map_err(Into::into)?;
        Ok(Written {
            changed,
            observe: Duration::ZERO,
            plan: Duration::ZERO,
            apply: start.elapsed(),
        })
    }

    fn is_untouched(&mut self) -> Result<bool, SyncError> {
        self.applier.is_untouched().map_err(Into::into)
    }

    fn take_warnings(&mut self) -> Vec<Warning> {
        self.planner.take_warnings()
    }
}

/// Says what people should know about a plan.
pub(crate) fn tell(notes: &[String]) {
    for note in worth_telling(notes) {
        tracing::warn!("{note}");
    }
}

/// One Service can be the cause of thousands of notes, and the first ones tell enough.
fn worth_telling(notes: &[String]) -> impl Iterator<Item = String> {
    let left_out = notes.len().saturating_sub(MOST_NOTES);
    let rest = (left_out > 0).then(|| format!("{left_out} more notes are not listed"));
    notes.iter().take(MOST_NOTES).cloned().chain(rest)
}

fn apply<A>(
    applier: &mut A,
    observe: Duration,
    plan: impl FnOnce() -> A::Plan,
) -> Result<Written, SyncError>
where
    A: Applier,
    A::Error: Into<SyncError>,
    A::Plan: Plan,
{
    let start = Instant::now();
    let transaction = plan();
    let planned = start.elapsed();
    tell(transaction.notes());
    let changed = applier.apply(&transaction).map_err(Into::into)?;
    Ok(Written {
        changed,
        observe,
        plan: planned,
        apply: start.elapsed() - planned,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_notes_is_cut_short() {
        let notes: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        let told: Vec<String> = worth_telling(&notes).collect();
        assert_eq!(told[..16], notes[..16]);
        assert_eq!(told[16..], ["4 more notes are not listed"]);
        assert!(worth_telling(&notes[..16]).eq(notes[..16].iter().cloned()));
    }
}
