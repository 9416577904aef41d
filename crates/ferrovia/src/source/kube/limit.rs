//! The client's own rate limit: a bucket of tokens, as `clientConnection.qps` and `burst` describe it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What is used where the configuration says nothing.
const DEFAULT_QPS: f32 = 5.0;
const DEFAULT_BURST: u32 = 10;

/// No rate is slower than this for one token; it keeps the arithmetic of times far from its end.
const SLOWEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Says how long each request has to wait.
#[derive(Debug)]
pub(super) struct Limit {
    bucket: Option<Mutex<Bucket>>,
}

#[derive(Debug)]
struct Bucket {
    /// The time it takes for one token to appear.
    interval: Duration,
    /// How much time's worth of tokens it holds at most.
    depth: Duration,
    /// When the bucket would be full. In the future by as much time as tokens are missing.
    full_at: Instant,
}

impl Limit {
    /// So many requests a second, and so many at once. Zero means the default; a negative or senseless rate means no limit.
    pub(super) fn new(qps: f32, burst: u32, now: Instant) -> Self {
        let qps = if qps == 0.0 { DEFAULT_QPS } else { qps };
        let burst = if burst == 0 { DEFAULT_BURST } else { burst };
        let interval = (qps > 0.0).then(|| {
            Duration::try_from_secs_f32(1.0 / qps).map_or(SLOWEST, |time| time.min(SLOWEST))
        });
        let bucket = interval.map(|interval| {
            Mutex::new(Bucket {
                interval,
                depth: interval.saturating_mul(burst),
                full_at: now,
            })
        });
        Self { bucket }
    }

    /// Takes a token; the request may be made after this long.
    pub(super) fn take(&self, now: Instant) -> Duration {
        let Some(bucket) = &self.bucket else {
            return Duration::ZERO;
        };
        let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let full_at = bucket.full_at.max(now) + bucket.interval;
        bucket.full_at = full_at;
        full_at
            .saturating_duration_since(now)
            .saturating_sub(bucket.depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_free_and_then_the_rate_holds() {
        let now = Instant::now();
        let limit = Limit::new(5.0, 3, now);
        let waits: Vec<_> = (0..5).map(|_| limit.take(now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 200, 400]);
        let later = now + Duration::from_secs(60);
        let waits: Vec<_> = (0..4).map(|_| limit.take(later).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 200]);
    }

    #[test]
    fn zero_is_the_default_and_less_is_no_limit() {
        let now = Instant::now();
        let default = Limit::new(0.0, 0, now);
        let waits: Vec<_> = (0..11).map(|_| default.take(now).as_millis()).collect();
        assert_eq!(waits[..10], [0; 10]);
        assert_eq!(waits[10], 200);
        for senseless in [-1.0, f32::NAN, f32::NEG_INFINITY] {
            let none = Limit::new(senseless, 1, now);
            assert!((0..1000).all(|_| none.take(now).is_zero()), "{senseless}");
        }
    }

    #[test]
    fn extreme_rates_do_not_overflow() {
        let now = Instant::now();
        assert_eq!(Limit::new(f32::INFINITY, 1, now).take(now), Duration::ZERO);
        assert_eq!(Limit::new(1e-6, u32::MAX, now).take(now), Duration::ZERO);
        let slow = Limit::new(f32::MIN_POSITIVE, 1, now);
        assert_eq!(slow.take(now), Duration::ZERO);
        assert_eq!(slow.take(now), SLOWEST);
    }
}
