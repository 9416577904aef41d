//! Cleans up stale UDP flows on a thread of its own: looking through a large table takes a while, and no sync may wait for it.
//!
//! The sync loop says when it begins to write rules and, once they are in force, what must be cleaned up. Orders that have not been carried
//! out are merged, so however fast changes come, there is never more than one order per address and port.
//!
//! A flow is judged by what was known when its order was given. By the time it is found, new rules may send flows to an endpoint that the
//! order does not know. So nothing is deleted while rules are being written, nor what a later order takes to be right.
//!
//! A look at the table costs milliseconds however few flows there are. So orders are collected while a family rests: the first is carried
//! out at once, those that follow within the pace together. kube-proxy does the same with all of a sync (`minSyncPeriod`), so no flow
//! stays for longer than with it.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::plan::conntrack::Cleanup;
use ferrovia_host::conntrack::{self, FlowToDelete, RemovedFlows};
use ferrovia_host::privileges::{self, RULES};

/// How far apart the rounds of a family begin: kube-proxy's default for the least time between two syncs.
pub const PACE: Duration = Duration::from_secs(1);
/// After a failure it is tried again so much later, and after each further one twice as much.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// But never later than this, and no rest after work is longer.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// What came of cleaning up.
#[derive(Debug)]
pub struct Cleaned {
    /// Whose flows.
    pub family: Family,
    /// How long it took, without the time it waited for syncs to end.
    pub took: Duration,
    /// How many flows went. What failed is tried again.
    pub result: Result<RemovedFlows, conntrack::Error>,
}

/// The grip on the thread, which ends when this is dropped.
#[derive(Debug)]
pub struct Cleaner {
    shared: Arc<Shared>,
}

/// As long as this lives, no flow is deleted.
#[derive(Debug)]
pub struct Syncing {
    shared: Arc<Shared>,
}

impl Cleaner {
    /// Starts the thread, in this thread's network namespace. A family's rounds begin at least `pace` apart. `report` hears of every round.
    ///
    /// # Errors
    /// If the system gives us no thread.
    pub fn start(pace: Duration, report: impl FnMut(Cleaned) + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        thread::Builder::new()
            .name("conntrack".into())
            .spawn(move || {
                // Whoever starts us may be allowed more than this takes.
                if let Err(error) = privileges::drop_in_this_thread(&[RULES.capability]) {
                    tracing::debug!(%error, "going on with more privileges than needed");
                }
                work(&theirs, pace, report);
            })?;
        Ok(Self { shared })
    }

    /// Rules are going to be written. What they leave stale is to be [submitted](Self::submit) before this is dropped.
    #[must_use = "flows are deleted again once it is dropped"]
    pub fn syncing(&self) -> Syncing {
        self.shared.lock().syncs += 1;
        Syncing {
            shared: Arc::clone(&self.shared),
        }
    }

    /// New rules are in force, and this must be cleaned up. Never waits for that.
    pub fn submit(&self, cleanup: Cleanup) {
        let mut state = self.shared.lock();
        let family = cleanup.family();
        match &mut state.orders[family] {
            Some(earlier) => earlier.absorb(cleanup),
            none => *none = Some(cleanup),
        }
        self.shared.ordered.notify_all();
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        self.shared.lock().has_ended = true;
        self.shared.ordered.notify_all();
        self.shared.calm.notify_all();
    }
}

impl Drop for Syncing {
    fn drop(&mut self) {
        self.shared.lock().syncs -= 1;
        self.shared.calm.notify_all();
    }
}

/// What the two threads share. Held only for as long as it takes to look at it.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// There is an order, or an end to all.
    ordered: Condvar,
    /// A sync has ended, or all. Apart from the other, because there may be a thousand syncs a second and hardly ever an order.
    calm: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// What has not been begun.
    orders: PerFamily<Option<Cleanup>>,
    /// Syncs that are under way.
    syncs: usize,
    has_ended: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is whole before the lock is let go.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next order that may be carried out, of the given family if both may; none if this is the end.
    fn next(&self, first: Family, not_before: PerFamily<Instant>) -> Option<Cleanup> {
        let mut state = self.lock();
        while !state.has_ended {
            let now = Instant::now();
            state = match state.due(first, not_before, now) {
                Some((family, at)) if at <= now => return state.orders[family].take(),
                Some((_, at)) => {
                    let waited = self.ordered.wait_timeout(state, at - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => wait(&self.ordered, state),
            };
        }
        None
    }

    /// Takes out of a batch what must not be deleted, once that can be told. Answers with how long that took.
    fn spare(&self, family: Family, batch: &mut Vec<FlowToDelete>) -> Duration {
        let start = Instant::now();
        let mut state = self.lock();
        while state.syncs > 0 && !state.has_ended {
            state = wait(&self.calm, state);
        }
        if state.has_ended {
            batch.clear();
        } else if let Some(later) = &state.orders[family] {
            batch.retain(|stale| !later.overrules(stale.sent_to, stale.answered_by));
        }
        start.elapsed()
    }

    /// An order could not be carried out: what no later one is about is still to be done.
    fn give_back(&self, mut order: Cleanup) {
        let place = &mut self.lock().orders[order.family()];
        if let Some(later) = place.take() {
            order.absorb(later);
        }
        *place = Some(order);
    }
}

fn wait<'a>(news: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    news.wait(state).unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// The family whose order is next, and when: now, or once it has rested.
    fn due(
        &mut self,
        first: Family,
        not_before: PerFamily<Instant>,
        now: Instant,
    ) -> Option<(Family, Instant)> {
        // This is asked when nothing is being carried out, so only what makes flows stale is of use.
        for family in Family::ALL {
            self.orders[family].take_if(|order| !order.may_have_stale_flows());
        }
        let waiting = [first, other(first)]
            .into_iter()
            .filter(|family| self.orders[*family].is_some())
            .map(|family| (family, not_before[family].max(now)));
        waiting.min_by_key(|(_, at)| *at)
    }
}

/// Carries out orders until the end. The families take turns, and no more than half of the time is spent working, so that a kernel whose
/// table is slow to walk has some left for packets.
fn work(shared: &Shared, pace: Duration, mut report: impl FnMut(Cleaned)) {
    let mut cleaner = None;
    let mut turn = Family::V4;
    let mut not_before = PerFamily::from_fn(|_| Instant::now());
    let mut failures = 0;
    while let Some(order) = shared.next(turn, not_before) {
        let family = order.family();
        turn = other(family);
        let start = Instant::now();
        let mut waited = Duration::ZERO;
        let result = carry_out(&mut cleaner, &order, |batch| {
            waited += shared.spare(family, batch);
        });
        let took = start.elapsed().saturating_sub(waited);
        let rest = match &result {
            Ok(removed) => {
                log_success(family, took, removed);
                failures = 0;
                took.min(LONGEST_REST)
            }
            Err(error) => {
                log_failure(family, error, failures == 0);
                // The connection may be in any state.
                cleaner = None;
                shared.give_back(order);
                let rest = FIRST_RETRY.saturating_mul(2_u32.saturating_pow(failures));
                failures = (failures + 1).min(u32::BITS - 1);
                rest.min(LONGEST_REST)
            }
        };
        let rested = Instant::now() + rest;
        not_before = PerFamily::from_fn(|family| not_before[family].max(rested));
        not_before[family] = rested.max(start + pace);
        report(Cleaned {
            family,
            took,
            result,
        });
    }
}

fn carry_out(
    cleaner: &mut Option<conntrack::FlowCleaner>,
    order: &Cleanup,
    spare: impl FnMut(&mut Vec<FlowToDelete>),
) -> Result<RemovedFlows, conntrack::Error> {
    let cleaner = match cleaner {
        Some(cleaner) => cleaner,
        none => none.insert(conntrack::FlowCleaner::open()?),
    };
    cleaner.clean(order, spare)
}

fn other(family: Family) -> Family {
    match family {
        Family::V4 => Family::V6,
        Family::V6 => Family::V4,
    }
}

fn log_success(family: Family, took: Duration, removed: &RemovedFlows) {
    if removed.total() == 0 {
        tracing::debug!(%family, ?took, "no UDP flow is stale");
        return;
    }
    tracing::info!(%family, ?took, endpoint_gone = removed.endpoint_gone, untranslated = removed.untranslated,
        service_gone = removed.service_gone, "removed stale UDP flows");
}

/// Warns once: what stands in the way mostly stays there.
fn log_failure(family: Family, error: &conntrack::Error, is_first: bool) {
    if is_first {
        tracing::warn!(%family, %error, "stale UDP flows may still go to endpoints that are gone; trying again");
    } else {
        tracing::debug!(%family, %error, "stale UDP flows still cannot be removed");
    }
}
