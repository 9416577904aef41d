//! Figures as people read them, with the goal beside what was reached.

use std::time::Duration;

use crate::figures::Samples;

/// A time, and the longest it should be.
pub(crate) fn goal(reached: Duration, goal: Option<Duration>) -> String {
    let text = show(reached);
    match goal {
        Some(goal) => format!("{text} (≤ {} {})", show_short(goal), mark(reached <= goal)),
        None => text,
    }
}

/// Half took no longer than the first figure, all but the slowest hundredth no longer than the second.
pub(crate) fn both(samples: &Samples) -> String {
    format!("{} / {}", show(samples.p50()), show(samples.p99()))
}

/// An amount of memory, and the most it should be, in KiB.
pub(crate) fn memory(kibibytes: u64, goal: Option<u64>) -> String {
    let mebibytes = |kibibytes: u64| kibibytes as f64 / 1024.0;
    let text = format!("{:.1} MiB", mebibytes(kibibytes));
    match goal {
        Some(goal) => format!(
            "{text} (≤ {:.0} {})",
            mebibytes(goal),
            mark(kibibytes <= goal)
        ),
        None => text,
    }
}

/// Whether a goal was reached.
pub(crate) fn mark(reached: bool) -> char {
    if reached { '✓' } else { '✗' }
}

/// How many times as long.
pub(crate) fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64()
}

/// Three figures or so, in a unit that suits.
pub(crate) fn show(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        1.0.. => format!("{seconds:.2} s"),
        0.01.. => format!("{:.0} ms", seconds * 1e3),
        0.001.. => format!("{:.2} ms", seconds * 1e3),
        _ => format!("{:.0} µs", seconds * 1e6),
    }
}

/// A round figure.
fn show_short(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{} s", time.as_secs_f64())
    }
}
