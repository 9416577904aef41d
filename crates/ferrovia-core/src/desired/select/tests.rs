//! Tests of endpoint choice, as tables.
//!
//! An endpoint is written in a word: its number, then letters. `r` ready, `s` serving, `t` terminating, `l` on this node, `Z` hinted for
//! this zone, `z` for another, `N` hinted for this node, `n` for another.

use super::*;
use crate::model::TrafficPolicy::{Cluster, Local};

const HERE: NodeLocation<'_> = NodeLocation {
    node: "n1",
    zone: Some("a"),
};

/// A parsed word: candidates borrow their hints.
struct Word {
    endpoint: Endpoint,
    letters: String,
    hints: Hints,
}

fn word(text: &str) -> Word {
    let (number, letters) = text.split_at(1);
    let has = |letter: char| letters.contains(letter);
    let names = |own: (char, &str), other: (char, &str)| {
        [own, other]
            .iter()
            .filter(|(letter, _)| has(*letter))
            .map(|(_, name)| (*name).into())
            .collect()
    };
    Word {
        endpoint: Endpoint {
            ip: format!("10.0.0.{number}").parse().unwrap(),
            port: 80,
            weight: 1,
            is_local: has('l'),
        },
        letters: letters.into(),
        hints: Hints {
            zones: names(('Z', "a"), ('z', "b")),
            nodes: names(('N', "n1"), ('n', "n2")),
        },
    }
}

/// Selects among words; `cluster | local | any` as text, and the topology.
fn pick(words: &str, need: RequiredLists, here: NodeLocation<'_>) -> (String, Topology) {
    let words: Vec<Word> = words.split_whitespace().map(word).collect();
    let candidates: Vec<EndpointCandidate<'_>> = words
        .iter()
        .map(|w| EndpointCandidate {
            endpoint: w.endpoint,
            ready: w.letters.contains('r'),
            serving: w.letters.contains(['r', 's']),
            terminating: w.letters.contains('t'),
            hints: Some(&w.hints).filter(|hints| **hints != Hints::default()),
            node: None,
        })
        .collect();
    let selection = select(&candidates, need, here);
    let show = |list: &[Endpoint]| {
        list.iter()
            .map(|e| e.ip.to_string().replace("10.0.0.", ""))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let any = if selection.any { "any" } else { "none" };
    (
        format!(
            "{} | {} | {any}",
            show(&selection.cluster),
            show(&selection.local)
        ),
        SelectionRules::new(&candidates, need, here).topology,
    )
}

const CLUSTER: RequiredLists = RequiredLists {
    cluster: true,
    local: false,
};
const BOTH: RequiredLists = RequiredLists {
    cluster: true,
    local: true,
};
const LOCAL: RequiredLists = RequiredLists {
    cluster: false,
    local: true,
};

#[test]
fn required_lists_follow_policies() {
    let cases = [
        (Cluster, Cluster, false, CLUSTER),
        (Cluster, Cluster, true, CLUSTER),
        (Cluster, Local, false, CLUSTER),
        (Cluster, Local, true, BOTH),
        (Local, Cluster, false, LOCAL),
        (Local, Cluster, true, BOTH),
        (Local, Local, false, LOCAL),
        (Local, Local, true, BOTH),
    ];
    for (internal, external, accessible, expected) in cases {
        assert_eq!(
            RequiredLists::new(internal, external, accessible),
            expected,
            "{internal:?} {external:?} {accessible}"
        );
    }
}

#[test]
fn readiness_and_fallback_to_terminating() {
    let cases = [
        ("", BOTH, " |  | none"),
        ("1r 2r", CLUSTER, "1 2 |  | any"),
        ("1r 2", CLUSTER, "1 |  | any"),
        ("1 2", CLUSTER, " |  | none"),
        // Serving alone is not enough, and neither is terminating.
        ("1s 2t", BOTH, " |  | none"),
        ("1st 2st 3", CLUSTER, "1 2 |  | any"),
        ("1st 2r", CLUSTER, "2 |  | any"),
        // Published although not ready: ready is what the slice says, whatever else it says.
        ("1rt 2r", CLUSTER, "1 2 |  | any"),
        ("1rl 2r", LOCAL, " | 1 | any"),
        // Endpoints elsewhere only: dropped rather than rejected.
        ("1r 2r", LOCAL, " |  | any"),
        ("1st", LOCAL, " |  | any"),
        ("1l", LOCAL, " |  | none"),
        // Both lists fall back on their own.
        ("1stl 2r", BOTH, "2 | 1 | any"),
        ("1stl 2st", BOTH, "1 2 | 1 | any"),
        ("1st 2st", BOTH, "1 2 |  | any"),
        ("1stl 2rl", BOTH, "2 | 2 | any"),
        ("1l 2r", BOTH, "2 |  | any"),
    ];
    for (words, need, expected) in cases {
        assert_eq!(pick(words, need, HERE).0, expected, "{words} {need:?}");
    }
}

#[test]
fn topology_hints() {
    use Topology::*;
    let cases = [
        ("1rZ 2rz 3rZ", CLUSTER, "1 3 |  | any", SameZone),
        ("1rZ 2rz 3r", CLUSTER, "1 2 3 |  | any", SomeWithoutHint),
        ("1r 2r", CLUSTER, "1 2 |  | any", NoHints),
        ("1rz 2rz", CLUSTER, "1 2 |  | any", NoneForHere),
        // Unready endpoints neither satisfy nor disable.
        ("1Z 2rz 3rz", CLUSTER, "2 3 |  | any", NoneForHere),
        ("1rZ 2rz 3", CLUSTER, "1 |  | any", SameZone),
        ("1rZz 2rz", CLUSTER, "1 |  | any", SameZone),
        // Node hints first, then zone hints, then none.
        ("1rN 2rn", CLUSTER, "1 |  | any", SameNode),
        ("1rNz 2rnZ", CLUSTER, "1 |  | any", SameNode),
        ("1rnZ 2rnz", CLUSTER, "1 |  | any", SameZone),
        ("1rn 2rn", CLUSTER, "1 2 |  | any", NoneForHere),
        ("1rNZ 2rz", CLUSTER, "1 |  | any", SameZone),
        ("1rN 2r", CLUSTER, "1 2 |  | any", SomeWithoutHint),
        ("1rN 2rZ", CLUSTER, "1 2 |  | any", SomeWithoutHint),
        ("1rnZ 2rn", CLUSTER, "1 2 |  | any", SomeWithoutHint),
        // The fall-back to terminating endpoints ignores hints.
        ("1stz 2stZ", CLUSTER, "1 2 |  | any", NothingToNarrow),
        // Local lists know no hints.
        ("1rlz 2rZ", BOTH, "2 | 1 | any", SameZone),
        ("1rlz 2rZ", LOCAL, " | 1 | any", NothingToNarrow),
    ];
    for (words, need, expected, topology) in cases {
        assert_eq!(
            pick(words, need, HERE),
            (expected.into(), topology),
            "{words} {need:?}"
        );
    }
}

#[test]
fn without_a_zone_zone_hints_are_ignored() {
    let nowhere = NodeLocation { zone: None, ..HERE };
    assert_eq!(
        pick("1rZ 2rz", CLUSTER, nowhere),
        ("1 2 |  | any".into(), Topology::ZoneUnknown)
    );
    assert_eq!(
        pick("1rNZ 2rnz", CLUSTER, nowhere),
        ("1 |  | any".into(), Topology::SameNode)
    );
}
