//! Waiting for what must come true. Nobody sleeps for a while and hopes.

use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take that should happen soon. Generous: a loaded machine must not fail a test.
pub const SOON: Duration = Duration::from_secs(240);

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until something is so.
///
/// # Panics
/// If it does not happen [`SOON`].
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    wait(|| match is_so() {
        true => Ok(()),
        false => Err(format!("it never came true: {what}")),
    });
}

/// Tries until it succeeds; answers with what came of it.
///
/// # Panics
/// With the last reason, if it does not succeed [`SOON`].
#[track_caller]
pub fn wait<T>(attempt: impl FnMut() -> Result<T, String>) -> T {
    wait_at_most(SOON, attempt)
}

/// The same with another limit.
///
/// # Panics
/// With the last reason, if it does not succeed in time.
#[track_caller]
pub fn wait_at_most<T>(limit: Duration, attempt: impl FnMut() -> Result<T, String>) -> T {
    match try_at_most(limit, attempt) {
        Ok(value) => value,
        Err(reason) => panic!("{reason}"),
    }
}

/// The same for callers that can add to the reason.
///
/// # Errors
/// With the last reason, if it does not succeed in time.
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
    fn it_is_tried_until_it_succeeds() {
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
    fn the_last_reason_is_told() {
        wait_at_most(Duration::ZERO, || Err::<(), _>("the reason".to_owned()));
    }
}
