//! A point in time on both clocks.

use std::ops::Add;
use std::time::{Duration, Instant};

use jiff::Timestamp;

/// Now, as the clock that never jumps has it, for measuring, and as people have it, for showing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// For measuring.
    pub instant: Instant,
    /// For showing.
    pub wall: Timestamp,
}

impl Moment {
    /// This moment.
    pub fn now() -> Self {
        Self {
            instant: Instant::now(),
            wall: Timestamp::now(),
        }
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        Self {
            instant: self.instant + by,
            wall: self.wall.saturating_add(by).unwrap_or(self.wall),
        }
    }
}
