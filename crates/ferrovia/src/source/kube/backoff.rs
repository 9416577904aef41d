//! How long to wait after a failure.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use super::times::Times;

/// How long to leave a server alone. That it failed before is no reason to let it wait when it is well and only cannot go on from where we
/// are, so each has pauses of its own.
#[derive(Debug)]
pub(super) struct Backoff {
    failures: Pauses,
    hindrances: Pauses,
    absences: Pauses,
}

impl Backoff {
    pub(super) fn new(times: &Times) -> Self {
        Self {
            failures: Pauses::new(times),
            hindrances: Pauses::new(times),
            absences: Pauses {
                limit: times.absent,
                // Longer than chance can prolong the longest pause.
                reset: times.absent + times.backoff_reset,
                ..Pauses::new(times)
            },
        }
    }

    /// The pause after a failure now.
    pub(super) fn failed(&mut self, now: Instant) -> Duration {
        self.failures.next(now)
    }

    /// The server came back after an outage. While it starts it refuses some requests, and a pause that grew before would be too long.
    pub(super) fn begin_again(&mut self) {
        self.failures.ended = None;
    }

    /// The pause until something is asked for again that the server does not have, or does not let us have.
    pub(super) fn absent(&mut self, now: Instant) -> Duration {
        self.absences.next(now)
    }

    /// For what is no fault of the server's, such as a history that is forgotten: no pause, unless it happens again and again.
    pub(super) fn hindered(&mut self, now: Instant) -> Duration {
        let was_well = self.hindrances.was_well(now);
        let pause = self.hindrances.next(now);
        if was_well { Duration::ZERO } else { pause }
    }
}

/// Pauses that double, with chance in them so that the nodes of a cluster do not all come back at once.
#[derive(Debug)]
struct Pauses {
    first: Duration,
    limit: Duration,
    reset: Duration,
    next: Duration,
    /// When the last one was over, as far as it was not chance.
    ended: Option<Instant>,
}

impl Pauses {
    fn new(times: &Times) -> Self {
        Self {
            first: times.backoff,
            limit: times.backoff_limit,
            reset: times.backoff_reset,
            next: times.backoff,
            ended: None,
        }
    }

    fn next(&mut self, now: Instant) -> Duration {
        if self.was_well(now) {
            self.next = self.first;
        }
        let pause = self.next;
        self.next = (pause * 2).min(self.limit);
        self.ended = Some(now + pause);
        pause + random_below(pause)
    }

    fn was_well(&self, now: Instant) -> bool {
        self.ended
            .is_none_or(|ended| now.saturating_duration_since(ended) >= self.reset)
    }
}

/// A random duration between the two.
pub(super) fn random_between(low: Duration, high: Duration) -> Duration {
    low + random_below(high.saturating_sub(low))
}

/// The keys of the standard library's hash maps are random, and good enough to spread load.
fn random_below(limit: Duration) -> Duration {
    let random = RandomState::new().hash_one(0);
    // The upper half of the bits as a fraction of one, which `f64` holds exactly.
    let fraction = f64::from((random >> 32) as u32) / f64::from(u32::MAX);
    limit.mul_f64(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_the_limit_and_start_again_after_health() {
        let mut backoff = Backoff::new(&Times::default());
        let mut now = Instant::now();
        let expected = [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0];
        for seconds in expected {
            let base = Duration::from_secs_f64(seconds);
            let pause = backoff.failed(now);
            assert!(pause >= base && pause <= base * 2, "{pause:?} for {base:?}");
            now += pause;
        }
        now += Duration::from_secs(121);
        let pause = backoff.failed(now);
        assert!(pause <= Duration::from_millis(1600), "{pause:?}");
    }

    #[test]
    fn after_an_outage_the_first_pause_is_the_short_one_again() {
        let mut backoff = Backoff::new(&Times::default());
        let now = Instant::now();
        for _ in 0..5 {
            backoff.failed(now);
        }
        backoff.begin_again();
        assert!(backoff.failed(now) <= Duration::from_millis(1600));
        assert!(backoff.failed(now) >= Duration::from_millis(1600));
    }

    #[test]
    fn the_first_hindrance_is_free_and_the_next_ones_are_not() {
        let mut backoff = Backoff::new(&Times::default());
        let now = Instant::now();
        assert_eq!(backoff.hindered(now), Duration::ZERO);
        assert!(backoff.hindered(now) >= Duration::from_millis(1600));
        let later = now + Duration::from_secs(200);
        assert_eq!(backoff.hindered(later), Duration::ZERO);
    }

    #[test]
    fn what_is_absent_is_asked_for_soon_and_then_ever_more_rarely() {
        let mut backoff = Backoff::new(&Times::default());
        let mut now = Instant::now();
        let mut bases = vec![0.8];
        while bases.len() < 12 {
            bases.push((bases[bases.len() - 1] * 2.0_f64).min(300.0));
        }
        for seconds in bases {
            let base = Duration::from_secs_f64(seconds);
            let pause = backoff.absent(now);
            assert!(pause >= base && pause <= base * 2, "{pause:?} for {base:?}");
            now += pause;
        }
    }

    #[test]
    fn that_the_server_failed_before_does_not_make_a_hindrance_wait() {
        let mut backoff = Backoff::new(&Times::default());
        let now = Instant::now();
        for _ in 0..5 {
            backoff.failed(now);
        }
        assert_eq!(backoff.hindered(now), Duration::ZERO);
        assert!(backoff.failed(now) >= Duration::from_secs(25));
    }

    #[test]
    fn chance_stays_between_its_bounds() {
        let (low, high) = (Duration::from_secs(300), Duration::from_secs(600));
        let drawn: Vec<_> = (0..100).map(|_| random_between(low, high)).collect();
        assert!(drawn.iter().all(|time| (low..=high).contains(time)));
        assert!(drawn.iter().any(|time| *time != drawn[0]));
    }
}
