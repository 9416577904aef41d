//! Fuzzing with any toolchain: mutated seeds of a corpus as input of a parser, for a limited time.
//!
//! The number of a round determines its input, so that failures can be reproduced: a failure prints round and input, and
//! `FUZZ_ROUND=<number>` runs only that round. `FUZZ_SECONDS=<n>` runs longer, beginning with another round each time.

use std::any::Any;
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::random::Random;

/// How long one target runs by default. All targets together take about ten seconds.
const USUALLY: Duration = Duration::from_millis(1500);

/// The time limit of one input. Far more than any needs, even on a busy machine.
const LONGEST: Duration = Duration::from_secs(60);

/// How much of an input a failure prints.
const SHOWN_BYTES: usize = 4096;

/// A file of the corpus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed {
    /// The name of the file, which may indicate its format.
    pub name: String,
    pub bytes: Vec<u8>,
}

/// A parser to fuzz.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget<'a> {
    /// The name in failure messages.
    pub name: &'a str,
    pub corpus: &'a Path,
    /// Tokens of the parser's language.
    pub pieces: &'a [&'a [u8]],
    /// The maximum length of inputs.
    pub longest: usize,
}

impl FuzzTarget<'_> {
    /// Runs all seeds unchanged, then mutated ones until the time is up.
    ///
    /// # Panics
    /// If the parser panics or takes too long, after printing the input; or if there is no corpus.
    pub fn run(&self, check: impl Fn(&Seed, &[u8])) {
        let seeds = self.seeds();
        let only = number("FUZZ_ROUND");
        if only.is_none() {
            for seed in &seeds {
                self.one(&format!("seed {}", seed.name), seed, &seed.bytes, &check);
            }
        }
        let seconds = number("FUZZ_SECONDS");
        let limit = seconds.map_or(USUALLY, Duration::from_secs);
        let first = only.unwrap_or_else(|| {
            if seconds.is_some() {
                round_from_clock()
            } else {
                0
            }
        });
        let begin = Instant::now();
        let mut rounds = 0;
        while begin.elapsed() < limit {
            let round = first.wrapping_add(rounds);
            let (seed, bytes) = self.input(&seeds, round);
            self.one(&format!("FUZZ_ROUND={round}"), seed, &bytes, &check);
            rounds += 1;
            if only.is_some() {
                break;
            }
        }
        println!("{}: {rounds} inputs from {} seeds", self.name, seeds.len());
    }

    fn seeds(&self) -> Vec<Seed> {
        let folder = fs::read_dir(self.corpus);
        let folder = folder.unwrap_or_else(|error| panic!("{}: {error}", self.corpus.display()));
        let mut seeds: Vec<Seed> = folder
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let bytes = fs::read(entry.path()).ok()?;
                Some(Seed { name, bytes })
            })
            .collect();
        // Folders are not listed in the same order everywhere.
        seeds.sort_by(|a, b| a.name.cmp(&b.name));
        assert!(!seeds.is_empty(), "{} is empty", self.corpus.display());
        seeds
    }

    fn input<'s>(&self, seeds: &'s [Seed], round: u64) -> (&'s Seed, Vec<u8>) {
        let mut random = Random::new(round);
        let seed = &seeds[random.below(seeds.len())];
        let other = &seeds[random.below(seeds.len())].bytes;
        let mut bytes = seed.bytes.clone();
        for _ in 0..=random.below(6) {
            bytes.truncate(self.longest);
            self.mutate(&mut bytes, other, &mut random);
        }
        bytes.truncate(self.longest);
        (seed, bytes)
    }

    /// Applies one small mutation.
    fn mutate(&self, bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
        const EXTREMES: [u8; 6] = [0, 1, 3, 4, 0x7f, 0xff];
        let at = random.below(bytes.len() + 1);
        let length = random.below(32).min(bytes.len() - at);
        match random.below(8) {
            0 => drop(bytes.drain(at..at + length)),
            1 if !self.pieces.is_empty() => {
                let piece = self.pieces[random.below(self.pieces.len())];
                let times = if random.below(16) == 0 { 300 } else { 1 };
                bytes.splice(at..at, piece.repeat(times));
            }
            2 => {
                let copy = bytes[at..at + length].to_vec();
                let to = random.below(bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
            3 => bytes.truncate(at),
            4 => {
                let from = random.below(other.len() + 1);
                let to = (from + random.below(200)).min(other.len());
                bytes.splice(at..at, other[from..to].iter().copied());
            }
            // Likely offsets of length fields in binary messages.
            5 => bytes
                .iter_mut()
                .skip(at & !3)
                .take(2)
                .for_each(|byte| *byte = EXTREMES[random.below(EXTREMES.len())]),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
    }

    fn one(&self, what: &str, seed: &Seed, bytes: &[u8], check: &impl Fn(&Seed, &[u8])) {
        let begin = Instant::now();
        let tried = panic::catch_unwind(AssertUnwindSafe(|| check(seed, bytes)));
        if let Err(panic) = tried {
            self.print_failure(what, seed, bytes);
            panic::resume_unwind(panic as Box<dyn Any + Send>);
        }
        let took = begin.elapsed();
        if took > LONGEST {
            self.print_failure(what, seed, bytes);
            panic!("{}: {what} took {took:?}", self.name);
        }
    }

    fn print_failure(&self, what: &str, seed: &Seed, bytes: &[u8]) {
        let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
        eprintln!(
            "{}: {what} (from {}), {} bytes: \"{}\"",
            self.name,
            seed.name,
            bytes.len(),
            shown.escape_ascii()
        );
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
    )
}

fn round_from_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() << 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_determines_its_input() {
        let target = FuzzTarget {
            name: "test",
            corpus: Path::new("."),
            pieces: &[b"{", b"}"],
            longest: 100,
        };
        let seed = |bytes: &[u8]| Seed {
            name: "a".to_owned(),
            bytes: bytes.to_vec(),
        };
        let seeds = [seed(b"{ \"some\": \"text\" }"), seed(&[7; 300])];
        let mut different = 0;
        for round in 0..1000 {
            let (seed, bytes) = target.input(&seeds, round);
            assert_eq!(target.input(&seeds, round), (seed, bytes.clone()));
            assert!(bytes.len() <= 100);
            different += u32::from(bytes != seed.bytes);
        }
        assert!(different > 900, "{different}");
    }
}
