//! A short, repeatable round with changed datagrams, and whether the seeds are worth changing.

use std::fs;
use std::path::Path;

use ferrovia_lab::fuzz::FuzzTarget;
use ferrovia_netlink::messages;

use super::{CORPUS, decode_all};
use crate::{conntrack, ipset, ipvs, survey};

#[test]
fn decoders_survive_hostile_bytes() {
    let target = FuzzTarget {
        name: "netlink",
        corpus: Path::new(CORPUS),
        pieces: &[
            b"\x08\x00\x01\x00",
            b"\x04\x00\x01\x80",
            b"\x00\x00\x00\x00",
            b"\xff\xff\xff\xff",
        ],
        // Short pieces make more of the changes hit a length or a kind.
        longest: 2048,
    };
    target.run(|_, bytes| decode_all(bytes));
}

#[test]
fn seeds_of_all_families_are_understood() {
    let read = |name: &str| fs::read(format!("{CORPUS}/{name}")).unwrap();
    let flows = read("conntrack");
    let flows: usize = messages(&flows)
        .map(|message| conntrack::read_hostile(&message))
        .sum();
    assert!(flows >= 2, "{flows} flows");
    let links = read("links");
    let links: Vec<_> = messages(&links)
        .map(|message| survey::links::read_hostile(&message))
        .collect();
    assert!(
        links.len() >= 2 && links.iter().all(|read| *read == 1),
        "{links:?}"
    );
    let answers = read("ipvs");
    let answers: Vec<_> = messages(&answers)
        .map(|message| ipvs::read_hostile(&message))
        .collect();
    assert!(
        answers.len() >= 4 && answers.iter().all(|read| *read > 0),
        "{answers:?}"
    );
    let sets = read("ipset");
    assert!(ipset::read_hostile(messages(&sets)) >= 6);
}
