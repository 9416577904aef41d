//! The latest syncs, for people who want to know what happened.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::Value;
use tokio::sync::watch;

use crate::sync::{Outcome, SyncKind};

/// So many syncs of a family are kept.
const KEPT: usize = 200;
/// The longest part of an error that is kept.
const LONGEST_ERROR: usize = 500;

/// Remembers what the sync loop did.
#[derive(Debug)]
pub struct History {
    inner: Mutex<Inner>,
    /// The number of the newest change, for those who wait for it.
    newest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    changes: VecDeque<Arc<Change>>,
    totals: Totals,
}

/// How many syncs there were since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Totals {
    full: u64,
    partial: u64,
    tidy: u64,
    failed: u64,
    repaired: u64,
}

/// One sync of one family.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// Counts from 1.
    pub number: u64,
    /// When it ended.
    #[serde(serialize_with = "as_text")]
    pub at: Timestamp,
    family: &'static str,
    kind: &'static str,
    /// The rules had been changed by somebody else and were mended.
    repaired: bool,
    /// Something had to be written.
    wrote: bool,
    milliseconds: f64,
    phases: Phases,
    /// What came in.
    services: Vec<String>,
    service_count: usize,
    node: bool,
    ports: Ports,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Phases {
    observe: f64,
    plan: f64,
    apply: f64,
}

#[derive(Debug, Serialize)]
struct Ports {
    appeared: usize,
    changed: usize,
    went: usize,
}

/// A sync as a point of a plot.
#[derive(Debug, Serialize)]
pub(super) struct Point {
    number: u64,
    #[serde(serialize_with = "as_text")]
    at: Timestamp,
    milliseconds: f64,
    kind: &'static str,
    ok: bool,
}

impl Default for History {
    fn default() -> Self {
        Self {
            inner: Mutex::default(),
            newest: watch::Sender::new(0),
        }
    }
}

impl History {
    /// Notes a sync.
    pub fn record(&self, outcome: &Outcome, at: Timestamp) {
        let mut inner = self.lock();
        let number = *self.newest.borrow() + 1;
        inner.totals.count(outcome);
        if inner.changes.len() == KEPT {
            inner.changes.pop_front();
        }
        inner
            .changes
            .push_back(Arc::new(Change::new(number, outcome, at)));
        drop(inner);
        self.newest.send_replace(number);
    }

    /// The number of the newest change.
    pub(super) fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// The changes after a number, oldest first.
    pub(super) fn after(&self, number: u64) -> Vec<Arc<Change>> {
        let inner = self.lock();
        let changes = inner.changes.iter();
        changes
            .filter(|change| change.number > number)
            .map(Arc::clone)
            .collect()
    }

    /// The newest change.
    pub(super) fn last(&self) -> Option<Arc<Change>> {
        self.lock().changes.back().map(Arc::clone)
    }

    pub(super) fn totals(&self) -> Totals {
        self.lock().totals
    }

    /// How long each sync took, oldest first.
    pub(super) fn latencies(&self) -> Vec<Point> {
        let inner = self.lock();
        let point = |change: &Arc<Change>| Point {
            number: change.number,
            at: change.at,
            milliseconds: change.milliseconds,
            kind: change.kind,
            ok: change.error.is_none(),
        };
        inner.changes.iter().map(point).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing in here panics half-way.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Totals {
    fn count(&mut self, outcome: &Outcome) {
        match outcome.kind {
            SyncKind::Full => self.full += 1,
            SyncKind::Partial => self.partial += 1,
            SyncKind::Tidy => self.tidy += 1,
        }
        self.failed += u64::from(outcome.result.is_err());
        self.repaired += u64::from(outcome.repaired);
    }
}

impl Change {
    fn new(number: u64, outcome: &Outcome, at: Timestamp) -> Self {
        let brief = &outcome.brief;
        let written = outcome.result.as_ref().ok();
        Self {
            number,
            at,
            family: outcome.family.name(),
            kind: match outcome.kind {
                SyncKind::Full => "full",
                SyncKind::Partial => "partial",
                SyncKind::Tidy => "tidy",
            },
            repaired: outcome.repaired,
            wrote: written.is_some_and(|written| written.changed),
            milliseconds: milliseconds(outcome.took),
            phases: written.map_or_else(Phases::default, |written| Phases {
                observe: milliseconds(written.observe),
                plan: milliseconds(written.plan),
                apply: milliseconds(written.apply),
            }),
            services: brief.services.iter().map(ToString::to_string).collect(),
            service_count: brief.service_count,
            node: brief.node,
            ports: Ports {
                appeared: brief.appeared,
                changed: brief.changed,
                went: brief.went,
            },
            error: outcome.result.as_ref().err().map(|error| {
                let text: String = error.to_string();
                text.chars().take(LONGEST_ERROR).collect()
            }),
        }
    }
}

/// Changes as JSON.
pub(super) fn to_json(changes: &[Arc<Change>]) -> Value {
    let changes: Vec<&Change> = changes.iter().map(|change| &**change).collect();
    // Texts and numbers always serialise.
    serde_json::to_value(changes).unwrap_or_default()
}

/// To a microsecond; more digits are noise.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

pub(super) fn as_text<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(at)
}

#[cfg(test)]
mod tests {
    use ferrovia_core::family::Family;

    use super::*;
    use crate::sync::Brief;
    use crate::sync::backend::Written;

    fn outcome(succeeds: bool) -> Outcome {
        let written = Written {
            changed: true,
            observe: Duration::ZERO,
            plan: Duration::from_micros(1500),
            apply: Duration::from_millis(2),
        };
        Outcome {
            family: Family::V4,
            kind: SyncKind::Partial,
            repaired: !succeeds,
            brief: Brief::default(),
            took: Duration::from_micros(3501),
            triggers: Vec::new(),
            cleanup: None,
            departed: None,
            result: if succeeds {
                Ok(written)
            } else {
                Err("x".repeat(10_000).into())
            },
        }
    }

    #[test]
    fn only_the_latest_are_kept_and_all_are_counted() {
        let history = History::default();
        for _ in 0..KEPT + 5 {
            history.record(&outcome(true), Timestamp::UNIX_EPOCH);
        }
        history.record(&outcome(false), Timestamp::UNIX_EPOCH);
        let kept = history.after(0);
        assert_eq!(kept.len(), KEPT);
        assert_eq!(kept[0].number, 7);
        assert_eq!(history.after(205).len(), 1);
        let totals = history.totals();
        assert_eq!(
            (totals.partial, totals.failed, totals.repaired),
            (206, 1, 1)
        );
        let last = history.last().unwrap();
        assert_eq!(last.error.as_ref().map(String::len), Some(LONGEST_ERROR));
        assert!((kept[0].milliseconds - 3.501).abs() < 1e-9);
        assert_eq!(*history.newest().borrow(), 206);
    }
}
