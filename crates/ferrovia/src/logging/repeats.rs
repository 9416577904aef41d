//! Holding back lines that only say again what was said a moment ago.
//!
//! A failure that comes a thousand times a second says as much in the first few lines. Only records that are equal in every word are
//! counted together: the same problem of another object is news.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::record::{Record, Value};

/// For how long equal records are counted together.
const WINDOW: Duration = Duration::from_secs(10);
/// How many equal records are written in that time.
const ALLOWED: u64 = 5;
/// How many different records are remembered. What does not find room is written.
const REMEMBERED: usize = 64;

/// The records of the last moments, counted.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    bursts: HashMap<Record, Burst>,
}

#[derive(Debug)]
struct Burst {
    since: Instant,
    count: u64,
}

impl Repeats {
    /// What is to be written now that a record has come: what was held back and is over by now, once, with how often it was; then the record
    /// itself, unless it is held back.
    pub(super) fn admit(&mut self, record: Record, now: Instant) -> Vec<Record> {
        let mut due = self.finished(now);
        if let Some(burst) = self.bursts.get_mut(&record) {
            burst.count += 1;
            if burst.count > ALLOWED {
                return due;
            }
        } else if self.bursts.len() < REMEMBERED {
            let burst = Burst {
                since: now,
                count: 1,
            };
            self.bursts.insert(record.clone(), burst);
        }
        due.push(record);
        due
    }

    /// Forgets what is long ago; of that, what was held back.
    fn finished(&mut self, now: Instant) -> Vec<Record> {
        self.bursts
            .extract_if(|_, burst| now.duration_since(burst.since) >= WINDOW)
            .filter(|(_, burst)| burst.count > ALLOWED)
            .map(|(mut record, burst)| {
                let times = Value::Bare((burst.count - ALLOWED).to_string());
                record.fields.push(("repeated", times));
                record
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Severity;
    use super::*;

    fn record(message: impl Into<String>) -> Record {
        Record {
            severity: Severity::Warning,
            verbosity: 0,
            file: "a.rs",
            line: 1,
            message: message.into(),
            error: None,
            fields: Vec::new(),
        }
    }

    #[test]
    fn a_flood_is_a_few_lines_and_a_number() {
        let mut repeats = Repeats::default();
        let start = Instant::now();
        let written: usize = (0..1000)
            .map(|_| repeats.admit(record("down"), start).len())
            .sum();
        assert_eq!(written as u64, ALLOWED);

        let due = repeats.admit(record("other"), start + WINDOW);
        assert_eq!(due.len(), 2);
        assert_eq!(due[0].message, "down");
        assert_eq!(due[0].fields, [("repeated", Value::Bare("995".into()))]);
        assert_eq!(due[1], record("other"));
        // Told once.
        assert_eq!(repeats.admit(record("other"), start + WINDOW * 3).len(), 1);
    }

    #[test]
    fn a_new_window_begins_after_the_old_one() {
        let mut repeats = Repeats::default();
        let start = Instant::now();
        for _ in 0..=ALLOWED {
            repeats.admit(record("down"), start);
        }
        let due = repeats.admit(record("down"), start + WINDOW);
        assert_eq!(due.len(), 2, "{due:?}");
        assert_eq!(due[1], record("down"));
    }

    #[test]
    fn what_now_and_then_comes_again_is_written() {
        let mut repeats = Repeats::default();
        let start = Instant::now();
        for n in 0..100 {
            assert_eq!(
                repeats.admit(record("down"), start + WINDOW * n / 4),
                [record("down")]
            );
        }
    }

    #[test]
    fn different_records_are_all_written_and_few_are_remembered() {
        let mut repeats = Repeats::default();
        let start = Instant::now();
        for n in 0..10 * REMEMBERED {
            assert_eq!(repeats.admit(record(n.to_string()), start).len(), 1);
        }
        assert_eq!(repeats.bursts.len(), REMEMBERED);
    }
}
