//! Many durations, a few figures.

use std::time::Duration;

/// Durations of the same thing done many times.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    /// One more.
    pub(crate) fn add(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    /// Half of them took no longer.
    pub(crate) fn p50(&self) -> Duration {
        self.quantile(50)
    }

    /// All but the slowest hundredth took no longer.
    pub(crate) fn p99(&self) -> Duration {
        self.quantile(99)
    }

    /// None took longer.
    pub(crate) fn max(&self) -> Duration {
        self.quantile(100)
    }

    /// Zero if there are none.
    fn quantile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100);
        let index = rank.saturating_sub(1);
        sorted.get(index).copied().unwrap_or_default()
    }
}
