//! Decoders against bytes that no kernel would send: whatever comes, they must answer and not
//! panic. Built for tests and for the fuzzer only.

use std::collections::{BTreeSet, VecDeque};

use ferrovia_core::family::Family;

use super::{decode, monitor, userdata};
use crate::addr;
use crate::netlink::{Attrs, Refusal, messages};

#[cfg(test)]
mod tests;

/// Everything that reads what the kernel sends.
pub fn decode_all(bytes: &[u8]) {
    let (mut elements, mut touched, mut changes) = (Vec::new(), BTreeSet::new(), VecDeque::new());
    let tables = ["ferrovia".to_owned()];
    for message in messages(bytes) {
        for family in Family::ALL {
            decode::rule(&message, family);
        }
        decode::chain(&message);
        decode::set(&message);
        decode::generation(&message);
        decode::elements(&mut elements, &message);
        monitor::note(&message, &tables, &mut touched, &mut changes);
        addr::address(&message);
        Refusal::read(&message);
    }
    decode::join_ranges(elements);
    // And from the middle, without a header.
    let comments = Attrs::new(bytes).filter_map(|attr| userdata::comment(attr.value));
    assert!(comments.count() <= bytes.len());
}
