//! Mutated files never make the decoder panic, and its errors always point into the file.
//!
//! Deterministic, so that a failure comes back: the mutations follow from the seed file's number and the round.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ferrovia::source::manifest::decode::{Format, decode};

/// Rounds for all seeds together, unless the time is up first.
const ROUNDS: usize = 6_000;
const TIME: Duration = Duration::from_secs(3);

/// Pieces that mean something to the parsers.
const PIECES: [&[u8]; 24] = [
    b"---\n",
    b"...\n",
    b"\n",
    b"\r\n",
    b"\t",
    b"  ",
    b": ",
    b"- ",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"'",
    b"&a ",
    b"*a",
    b"<<: ",
    b"|\n",
    b"null",
    b"!!binary ",
    b"%YAML 1.2\n",
    b"\xef\xbb\xbf",
    b"\xff",
    b"kind: List\n",
];

#[test]
fn mutated_files_give_objects_or_an_error_inside_the_file() {
    let seeds = corpus();
    assert!(seeds.len() >= 8, "the corpus is not where it should be");
    for (bytes, format) in &seeds {
        check(bytes, *format);
    }
    let begin = Instant::now();
    for round in 0..ROUNDS {
        let (seed, format) = &seeds[round % seeds.len()];
        let mut random = Random(round as u64 + 1);
        let mut bytes = seed.clone();
        for _ in 0..=random.below(4) {
            mutate(&mut bytes, &mut random);
        }
        check(&bytes, *format);
        if begin.elapsed() > TIME {
            break;
        }
    }
}

fn check(bytes: &[u8], format: Format) {
    let lines = 1 + bytes.iter().filter(|byte| **byte == b'\n').count();
    let shown = String::from_utf8_lossy(bytes);
    match decode(bytes, format) {
        Ok(objects) => {
            for found in objects {
                assert!(
                    (1..=lines).contains(&found.line),
                    "{} of {lines}:\n{shown}",
                    found.line
                );
                assert!(!found.object.metadata().name.is_empty());
            }
        }
        Err(error) => {
            assert!(
                (1..=lines).contains(&error.line),
                "{error}, of {lines}:\n{shown}"
            );
            assert!(
                error.column != Some(0) && !error.what.is_empty(),
                "{error:?}"
            );
            assert!(!error.what.contains(char::is_control), "{error:?}");
        }
    }
}

fn corpus() -> Vec<(Vec<u8>, Format)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/manifest");
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| (fs::read(path).unwrap(), Format::of(path).unwrap()))
        .collect()
}

/// One small change somewhere.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    let length = random.below(24).min(bytes.len() - at);
    match random.below(5) {
        0 => drop(bytes.drain(at..at + length)),
        1 => drop(bytes.splice(at..at, PIECES[random.below(PIECES.len())].iter().copied())),
        2 => {
            let copy = bytes[at..at + length].to_vec();
            let to = random.below(bytes.len() + 1);
            bytes.splice(to..to, copy);
        }
        3 => bytes.truncate(at),
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
    }
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as usize % limit.max(1)
    }
}
