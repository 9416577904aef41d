//! When to sync. Pure: it is told the time.
//!
//! A change is due at once, or a minimum period after the last sync. A failure is tried again after a pause that doubles, and changes that
//! come meanwhile wait for some of it: each attempt after a failure reads all of the kernel's rules, and where many changes come they must
//! not make it do so all the time. Somebody else's change is repaired in a moment, but not again and again without a pause: two programs
//! that undo each other's work must not eat the machine. Every sync period the rules are checked; leftovers go when whoever left them says.

use std::time::{Duration, Instant};

/// The first pause after a failure.
const FIRST_RETRY: Duration = Duration::from_millis(100);
/// A change does not wait longer than this for the pause after a failure: it may be what mends it.
const LONGEST_WAIT_OF_A_CHANGE: Duration = Duration::from_secs(1);
/// One commit of somebody else's may be told in several pieces, a moment apart.
const REPAIR_AFTER: Duration = Duration::from_millis(2);
/// The least time from one repair to the next.
const REPAIR_PAUSE: Duration = Duration::from_millis(50);

/// How often things happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The least time between the end of a sync and the beginning of the next. Zero: a change is written at once.
    pub min_sync_period: Duration,
    /// How often the rules are checked, and the longest pause after a failure.
    pub sync_period: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            min_sync_period: Duration::ZERO,
            sync_period: Duration::from_secs(30),
        }
    }
}

/// Remembers what is due.
#[derive(Debug)]
pub struct Pacer {
    pace: Pace,
    requested: bool,
    repair_at: Option<Instant>,
    last_repair: Option<Instant>,
    not_before: Option<Instant>,
    retry: Option<Retry>,
    check_at: Instant,
    tidy_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Retry {
    at: Instant,
    pause: Duration,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Write what has changed.
    Sync,
    /// See whether the rules are as they should be.
    Check,
    /// Remove leftovers.
    Tidy,
}

impl Pacer {
    /// Nothing requested yet.
    pub fn new(pace: Pace, now: Instant) -> Self {
        Self {
            pace,
            requested: false,
            repair_at: None,
            last_repair: None,
            not_before: None,
            retry: None,
            check_at: now + pace.sync_period,
            tidy_at: None,
        }
    }

    /// Something changed.
    pub fn request(&mut self) {
        self.requested = true;
    }

    /// Somebody else changed our rules.
    pub fn request_repair(&mut self, now: Instant) {
        let at = now + REPAIR_AFTER;
        let earliest = self
            .last_repair
            .map_or(at, |last| at.max(last + REPAIR_PAUSE));
        self.repair_at.get_or_insert(earliest);
    }

    /// What is due, most urgent first.
    pub fn due(&self, now: Instant) -> Option<Due> {
        if self.sync_at(now).is_some_and(|at| at <= now) {
            Some(Due::Sync)
        } else if self.check_at <= now {
            Some(Due::Check)
        } else if self.tidy_at.is_some_and(|at| at <= now) {
            Some(Due::Tidy)
        } else {
            None
        }
    }

    /// How long there is nothing to do.
    pub fn idle(&self, now: Instant) -> Duration {
        let next = [self.sync_at(now), Some(self.check_at), self.tidy_at]
            .into_iter()
            .flatten()
            .min();
        next.unwrap_or(self.check_at).saturating_duration_since(now)
    }

    fn sync_at(&self, now: Instant) -> Option<Instant> {
        let requested = self.requested.then_some(now);
        let retry = self.retry.map(|retry| retry.at);
        let at = [requested, retry, self.repair_at]
            .into_iter()
            .flatten()
            .min()?;
        Some(at.max(self.not_before.unwrap_or(at)))
    }

    /// There was nothing to sync with yet; whatever comes asks again.
    pub fn not_ready(&mut self, now: Instant) {
        self.requested = false;
        self.checked(now);
    }

    /// A sync has ended; what it left behind may stay so long.
    pub fn synced(&mut self, succeeded: bool, leftovers: Option<Duration>, now: Instant) {
        self.requested = false;
        if self.repair_at.take().is_some() {
            self.last_repair = Some(now);
        }
        self.retry = (!succeeded).then(|| self.next_retry(now));
        let rest = self.retry.map_or(Duration::ZERO, |retry| retry.pause);
        let rest = rest.min(LONGEST_WAIT_OF_A_CHANGE);
        self.not_before = Some(now + self.pace.min_sync_period.max(rest));
        // However busy it is: another sync puts nothing off.
        self.tidy_at = leftovers.map(|after| {
            let at = now + after;
            self.tidy_at.map_or(at, |planned| planned.min(at))
        });
    }

    /// Some leftovers are gone, and others may stay so long. What else is due stays due.
    pub fn tidied(&mut self, succeeded: bool, leftovers: Option<Duration>, now: Instant) {
        if !succeeded {
            self.retry = Some(self.next_retry(now));
        }
        self.tidy_at = leftovers.map(|after| now + after);
    }

    fn next_retry(&self, now: Instant) -> Retry {
        let longest = self.pace.sync_period.max(FIRST_RETRY);
        let pause = self
            .retry
            .map_or(FIRST_RETRY, |last| last.pause * 2)
            .min(longest);
        Retry {
            at: now + pause,
            pause,
        }
    }

    /// A check has ended.
    pub fn checked(&mut self, now: Instant) {
        self.check_at = now + self.pace.sync_period;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn pacer(min: Duration) -> (Pacer, Instant) {
        let now = Instant::now();
        (
            Pacer::new(
                Pace {
                    min_sync_period: min,
                    sync_period: 30_000 * MS,
                },
                now,
            ),
            now,
        )
    }

    #[test]
    fn a_change_is_due_at_once() {
        let (mut pacer, now) = pacer(Duration::ZERO);
        assert_eq!(pacer.due(now), None);
        pacer.request();
        assert_eq!(pacer.due(now), Some(Due::Sync));
        pacer.synced(true, None, now);
        assert_eq!(pacer.due(now), None);
        pacer.request();
        assert_eq!(pacer.due(now), Some(Due::Sync));
    }

    #[test]
    fn requests_within_the_minimum_period_make_one_run_at_its_end() {
        let (mut pacer, now) = pacer(1000 * MS);
        pacer.request();
        assert_eq!(pacer.due(now), Some(Due::Sync), "the first is not delayed");
        pacer.synced(true, None, now + 10 * MS);
        pacer.request();
        pacer.request();
        assert_eq!(pacer.due(now + 500 * MS), None);
        assert_eq!(pacer.idle(now + 500 * MS), 510 * MS);
        assert_eq!(pacer.due(now + 1010 * MS), Some(Due::Sync));
        pacer.synced(true, None, now + 1020 * MS);
        assert_eq!(pacer.due(now + 5000 * MS), None);
    }

    #[test]
    fn a_failure_is_tried_again_with_growing_pauses_up_to_the_sync_period() {
        let (mut pacer, start) = pacer(Duration::ZERO);
        let mut now = start;
        let mut pauses = Vec::new();
        for _ in 0..12 {
            pacer.synced(false, None, now);
            let pause = pacer.retry.map(|retry| retry.at - now).unwrap();
            assert_eq!(
                pacer.due(now + pause - MS).filter(|due| *due == Due::Sync),
                None
            );
            now += pause;
            assert_eq!(pacer.due(now), Some(Due::Sync));
            pauses.push(pause.as_millis());
        }
        assert_eq!(pauses[..4], [100, 200, 400, 800]);
        assert_eq!(pauses.last(), Some(&30_000));
        pacer.synced(true, None, now);
        pacer.synced(false, None, now);
        assert_eq!(
            pacer.retry.map(|retry| retry.pause),
            Some(FIRST_RETRY),
            "a success forgets"
        );
    }

    #[test]
    fn a_change_after_a_failure_waits_for_the_pause_but_not_for_a_long_one() {
        let (mut pacer, mut now) = pacer(Duration::ZERO);
        let mut waits = Vec::new();
        for _ in 0..8 {
            pacer.synced(false, None, now);
            pacer.request();
            let wait = pacer.idle(now);
            assert_eq!(pacer.due(now + wait - MS), None);
            assert_eq!(pacer.due(now + wait), Some(Due::Sync));
            waits.push(wait.as_millis());
            now += wait;
        }
        assert_eq!(waits, [100, 200, 400, 800, 1000, 1000, 1000, 1000]);
        pacer.synced(true, None, now);
        pacer.request();
        assert_eq!(pacer.due(now), Some(Due::Sync), "a success forgets");
    }

    #[test]
    fn a_retry_waits_for_the_minimum_period() {
        let (mut pacer, now) = pacer(1000 * MS);
        pacer.synced(false, None, now);
        assert_eq!(pacer.due(now + 100 * MS), None);
        assert_eq!(pacer.due(now + 1000 * MS), Some(Due::Sync));
    }

    #[test]
    fn a_repair_is_due_soon_but_not_again_and_again() {
        let (mut pacer, now) = pacer(Duration::ZERO);
        pacer.request_repair(now - REPAIR_AFTER);
        assert_eq!(pacer.due(now), Some(Due::Sync));
        pacer.synced(true, None, now);
        pacer.request_repair(now + 10 * MS);
        assert_eq!(pacer.due(now + 49 * MS), None);
        assert_eq!(pacer.idle(now + 10 * MS), 40 * MS);
        assert_eq!(pacer.due(now + 50 * MS), Some(Due::Sync));
        pacer.request();
        assert_eq!(
            pacer.due(now + 20 * MS),
            Some(Due::Sync),
            "a change does not wait for it"
        );
    }

    #[test]
    fn the_rules_are_checked_every_sync_period() {
        let (mut pacer, now) = pacer(Duration::ZERO);
        assert_eq!(pacer.idle(now), 30_000 * MS);
        assert_eq!(pacer.due(now + 30_000 * MS), Some(Due::Check));
        pacer.checked(now + 30_000 * MS);
        assert_eq!(pacer.due(now + 59_999 * MS), None);
    }

    #[test]
    fn leftovers_go_after_a_stay_however_busy_it_is() {
        let (mut pacer, now) = pacer(Duration::ZERO);
        let stay = 60_000 * MS;
        pacer.checked(now + 3600 * 1000 * MS);
        pacer.synced(true, Some(stay), now);
        pacer.synced(true, Some(stay), now + stay / 2);
        assert_eq!(pacer.due(now + stay - MS), None);
        assert_eq!(pacer.due(now + stay), Some(Due::Tidy));
        pacer.tidied(true, Some(10 * MS), now + stay);
        assert_eq!(pacer.due(now + stay + 9 * MS), None, "what had to stay");
        assert_eq!(pacer.due(now + stay + 10 * MS), Some(Due::Tidy));
        pacer.tidied(true, None, now + stay + 10 * MS);
        assert_eq!(pacer.due(now + stay * 2), None);
    }

    #[test]
    fn leftovers_that_are_soon_due_do_not_wait_for_those_that_are_not() {
        let (mut pacer, now) = pacer(Duration::ZERO);
        pacer.synced(true, Some(60_000 * MS), now);
        pacer.synced(true, Some(1000 * MS), now);
        assert_eq!(pacer.due(now + 1000 * MS), Some(Due::Tidy));
    }

    #[test]
    fn tidying_forgets_nothing_else() {
        let (mut pacer, now) = pacer(5000 * MS);
        pacer.synced(true, Some(1000 * MS), now);
        pacer.request();
        pacer.request_repair(now);
        pacer.tidied(true, None, now + 10 * MS);
        assert_eq!(pacer.due(now + 5000 * MS), Some(Due::Sync));
        pacer.synced(false, None, now);
        pacer.tidied(true, None, now + 10 * MS);
        assert!(pacer.retry.is_some());
    }

    #[test]
    fn the_first_sync_is_not_delayed_by_having_nothing_to_sync() {
        let (mut pacer, now) = pacer(5000 * MS);
        pacer.request();
        pacer.not_ready(now);
        assert_eq!(pacer.due(now), None);
        pacer.request();
        assert_eq!(pacer.due(now), Some(Due::Sync));
    }
}
