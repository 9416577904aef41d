//! A short, repeatable round with changed datagrams of a real kernel.

use std::fs;

use ferrovia_core::family::Family;

use super::decode_all;
use crate::netlink::{Refusal, messages};
use crate::nft::decode;

const ROUNDS: usize = 300_000;

#[test]
fn decoders_survive_hostile_bytes() {
    let seeds = seeds();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..ROUNDS {
        let seed = &seeds[round % seeds.len()];
        // Short pieces make more of the changes hit a length or a kind.
        let mut bytes = seed[..seed.len().min(2048)].to_vec();
        for _ in 0..=random.below(6) {
            mutate(&mut bytes, &mut random);
        }
        decode_all(&bytes);
    }
}

#[test]
fn seeds_are_understood() {
    let read = |name: &str| fs::read(format!("{CORPUS}/{name}")).unwrap();
    let rules = read("rules");
    let decoded: Vec<_> = messages(&rules)
        .filter_map(|message| decode::rule(&message, Family::V4))
        .collect();
    assert!(decoded.len() > 10 && decoded.iter().all(|(_, code)| !code.is_empty()));
    let mut elements = decode::Elements::default();
    messages(&read("elements-endpoints"))
        .for_each(|message| decode::elements(&mut elements, &message));
    let list = elements.list;
    assert!(list.len() > 10 && list.iter().all(|element| element.rest.data.is_some()));
    let refusal = read("refusal");
    let refusal = Refusal::read(&messages(&refusal).next().unwrap())
        .unwrap()
        .unwrap_err();
    assert_eq!((refusal.errno, refusal.offset), (libc::ENOENT, Some(20)));
}

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/netlink");

fn seeds() -> Vec<Vec<u8>> {
    let mut paths: Vec<_> = fs::read_dir(CORPUS)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths
        .into_iter()
        .map(|path| fs::read(path).unwrap())
        .collect()
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    const EXTREMES: [u8; 6] = [0, 1, 3, 4, 0x7f, 0xff];
    let at = random.below(bytes.len().max(1));
    match random.below(5) {
        0 => bytes.truncate(at),
        1 => bytes.drain(..at).for_each(drop),
        2 => bytes.extend_from_within(at..),
        // Where a length is likely to stand.
        3 => bytes
            .iter_mut()
            .skip(at & !3)
            .take(2)
            .for_each(|byte| *byte = EXTREMES[random.below(EXTREMES.len())]),
        _ => bytes
            .iter_mut()
            .skip(at)
            .take(1)
            .for_each(|byte| *byte ^= 1 << random.below(8)),
    }
    bytes.truncate(4096);
}

/// Xorshift: numbers that look random and are always the same.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}
