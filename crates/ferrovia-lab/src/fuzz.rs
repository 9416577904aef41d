//! Fuzzing that any toolchain can run: seeds from a folder, changed a little, given to a parser until the time is up.
//!
//! Everything follows from the number of a round, so a failure comes back: it is told with that number and with the input, and
//! `FUZZ_ROUND=<number>` tries nothing else. `FUZZ_SECONDS=<n>` tries for longer, and then from another round each time.

use std::any::Any;
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long one target is tried in a usual test run. All of them together take some ten seconds.
const USUALLY: Duration = Duration::from_millis(1500);

/// No input may keep a parser busy for longer. Far more than any takes, even while the machine does other things.
const LONGEST: Duration = Duration::from_secs(60);

/// How much of an input is told when it is the cause of a failure.
const TOLD: usize = 4096;

/// A file of the corpus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed {
    /// Its name, which may say what it is.
    pub name: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// A parser to be tried.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// What failures are told under.
    pub name: &'a str,
    /// The folder of the corpus.
    pub corpus: &'a Path,
    /// Words that mean something to the parser.
    pub pieces: &'a [&'a [u8]],
    /// Inputs are cut to this.
    pub longest: usize,
}

impl Target<'_> {
    /// Tries all seeds as they are, then changed ones until the time is up.
    ///
    /// # Panics
    /// If the parser does, if it takes too long, or if there is no corpus. Which input it was is printed.
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
        let first = only.unwrap_or_else(|| if seconds.is_some() { by_the_clock() } else { 0 });
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
        // The order of a folder is not the same everywhere.
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
            self.change(&mut bytes, other, &mut random);
        }
        bytes.truncate(self.longest);
        (seed, bytes)
    }

    /// One small change somewhere.
    fn change(&self, bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
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
            // Where a length is likely to stand in binary messages.
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
            self.tell(what, seed, bytes);
            panic::resume_unwind(panic as Box<dyn Any + Send>);
        }
        let took = begin.elapsed();
        if took > LONGEST {
            self.tell(what, seed, bytes);
            panic!("{}: {what} took {took:?}", self.name);
        }
    }

    fn tell(&self, what: &str, seed: &Seed, bytes: &[u8]) {
        let told = &bytes[..bytes.len().min(TOLD)];
        eprintln!(
            "{}: {what} (from {}), {} bytes: \"{}\"",
            self.name,
            seed.name,
            bytes.len(),
            told.escape_ascii()
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

fn by_the_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() << 24)
}

/// Numbers that look random and are always the same (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Numbers that follow from this one.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below a limit, or 0.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as usize % limit.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_always_gives_the_same_input() {
        let target = Target {
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
