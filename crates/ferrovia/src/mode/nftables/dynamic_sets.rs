//! Maintains the dynamic sets of the nftables mode, which packets fill, on a thread of its own: reading a large set takes seconds, and no
//! sync may wait for it.
//!
//! The sync loop submits which frontends and service ports went; their counts and affinities go some time later, those of many deletions
//! at once. Besides, the thread looks every few seconds at two counters in our rules that stand still unless a packet found a set full. Then
//! it makes room. What goes is decided in the core (`plan/nft/sweep.rs`).

mod round;

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::plan::nft::sweep::RemovedFrontends;
use ferrovia_host::nft::NftConnection;
use ferrovia_host::privileges::{self, RULES};

use self::round::Sets;

/// How often the counters are looked at. That takes some ten microseconds.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// After a deletion it is waited so long for others, to sweep for all of them at once.
const GATHER: Duration = Duration::from_secs(1);
/// After work the thread rests so many times as long as that took: what it reads, the kernel takes from packets.
const REST_FACTOR: u32 = 9;
/// But never longer than this.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// What the thread reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// Packets found no room in a set.
    Overflowed {
        /// Which family's.
        family: Family,
        /// The set's name.
        set: &'static str,
        /// How many since the last report.
        packets: u64,
    },
    /// Entries were removed from a set.
    Swept {
        /// Which family's.
        family: Family,
        /// The set's name.
        set: &'static str,
        /// Entries of deleted services.
        service_gone: usize,
        /// Entries that made room for others.
        no_room: usize,
    },
}

/// The handle of the thread, which exits when this is dropped.
#[derive(Debug)]
pub struct DynamicSets {
    shared: Arc<Shared>,
}

impl DynamicSets {
    /// Starts the thread, in this thread's network namespace. Without `counters` only affinities are swept.
    ///
    /// # Errors
    /// If the system gives us no thread.
    pub fn start(
        connection: NftConnection,
        counters: bool,
        report: impl FnMut(Report) + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        thread::Builder::new().name("sweep".into()).spawn(move || {
            if let Err(error) = privileges::drop_in_this_thread(&[RULES.capability]) {
                tracing::debug!(%error, "Failed to drop privileges of the sweeping thread");
            }
            work(&theirs, Sets::new(connection, counters), report);
        })?;
        Ok(Self { shared })
    }

    /// Rules are in force with which this went. Never waits for the sweep.
    pub fn submit(&self, family: Family, departed: RemovedFrontends) {
        let mut state = self.shared.lock();
        state.add(family, departed);
        self.shared.changed.notify_all();
    }
}

impl Drop for DynamicSets {
    fn drop(&mut self) {
        self.shared.lock().has_ended = true;
        self.shared.changed.notify_all();
    }
}

/// What the two threads share. Held only for as long as it takes to look at it.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Something was submitted, or the end has come.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    departed: PerFamily<Option<RemovedFrontends>>,
    /// Families that have been written at least once.
    written: PerFamily<bool>,
    has_ended: bool,
}

impl State {
    fn add(&mut self, family: Family, departed: RemovedFrontends) {
        self.written[family] = true;
        match &mut self.departed[family] {
            Some(earlier) => earlier.absorb(departed),
            none => *none = Some(departed),
        }
    }

    fn is_waiting(&self) -> bool {
        self.departed.v4.is_some() || self.departed.v6.is_some()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is whole before the lock is released.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the next look is due or, if it may work, something has been submitted; false at the end.
    fn wait(&self, may_work_at: Instant) -> bool {
        let start = Instant::now();
        let mut state = self.lock();
        loop {
            if state.has_ended {
                return false;
            }
            let work_at = may_work_at.max(start + GATHER);
            let until = if state.is_waiting() {
                work_at.min(start + LOOK_EVERY)
            } else if state.written.v4 || state.written.v6 {
                start + LOOK_EVERY
            } else {
                start + LONGEST_REST
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Looks and sweeps until the end.
fn work(shared: &Shared, mut sets: Sets, mut report: impl FnMut(Report)) {
    let mut may_work_at = Instant::now();
    while shared.wait(may_work_at) {
        let start = Instant::now();
        for family in Family::ALL {
            if !shared.lock().written[family] {
                continue;
            }
            sets.look(family, &mut report);
            if start < may_work_at {
                continue;
            }
            let departed = shared.lock().departed[family].take();
            if let Err(error) = sets.sweep(family, departed.as_ref(), &mut report) {
                tracing::warn!(%family, %error, "Failed to remove entries of deleted Services; trying again");
                shared.lock().add(family, departed.unwrap_or_default());
            }
        }
        if start >= may_work_at {
            may_work_at = Instant::now() + (start.elapsed() * REST_FACTOR).min(LONGEST_REST);
        }
    }
}
