//! Waiting for conditions, instead of sleeping for a fixed time.

use std::thread;
use std::time::{Duration, Instant};

/// The limit for anything that should happen soon. Generous: a loaded machine must not fail a test.
pub const SOON: Duration = Duration::from_secs(240);

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until a condition holds.
///
/// # Panics
/// If it does not hold within [`SOON`].
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    wait(|| match condition() {
        true => Ok(()),
        false => Err(format!("timed out waiting for: {what}")),
    });
}

/// Repeats an attempt until it succeeds; returns its value.
///
/// # Panics
/// With the last error, if it does not succeed within [`SOON`].
#[track_caller]
pub fn wait<T>(attempt: impl FnMut() -> Result<T, String>) -> T {
    wait_at_most(SOON, attempt)
}

/// Like [`wait`], with another limit.
///
/// # Panics
/// With the last error, if it does not succeed in time.
#[track_caller]
pub fn wait_at_most<T>(limit: Duration, attempt: impl FnMut() -> Result<T, String>) -> T {
    match try_at_most(limit, attempt) {
        Ok(value) => value,
        Err(reason) => panic!("{reason}"),
    }
}

/// Like [`wait_at_most`], but returns the last error.
///
/// # Errors
/// With the last error, if it does not succeed in time.
pub fn try_at_most<T>(
    limit: Duration,
    mut attempt: impl FnMut() -> Result<T, String>,
) -> Result<T, String> {
    let start = Instant::now();
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(reason) if start.elapsed() >= limit => return Err(reason),
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_until_an_attempt_succeeds() {
        let mut tries = 0;
        let answer = wait(|| {
            tries += 1;
            if tries < 3 {
                Err(String::new())
            } else {
                Ok(tries)
            }
        });
        assert_eq!(answer, 3);
    }

    #[test]
    #[should_panic(expected = "the reason")]
    fn panics_with_the_last_error() {
        wait_at_most(Duration::ZERO, || Err::<(), _>("the reason".to_owned()));
    }
}
