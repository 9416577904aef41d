//! nf_tables' decoders against bytes that no kernel would send. Built for tests and for the fuzzer only.

use std::collections::{BTreeSet, VecDeque};

use ferrovia_core::family::Family;
use ferrovia_netlink::{Attrs, messages};

use super::decode::RawElements;
use super::{compat, decode, hooked, monitor, oddities, userdata};

#[cfg(test)]
mod tests;

/// Everything that reads what nf_tables sends.
pub(crate) fn decode_all(bytes: &[u8]) {
    let (mut touched, mut changes) = (BTreeSet::new(), VecDeque::new());
    let mut elements = RawElements::default();
    let tables = ["ferrovia".to_owned()];
    for message in messages(bytes) {
        for family in Family::ALL {
            decode::rule(&message, family);
        }
        decode::chain(&message);
        decode::set(&message);
        decode::generation(&message);
        oddities::of_table(&message);
        oddities::of_chain(&message);
        oddities::of_set(&message);
        oddities::of_object(&message);
        decode::elements(&mut elements, &message);
        monitor::note(&message, &tables, &mut touched, &mut changes);
    }
    decode::join_ranges(elements.list);
    hooked::read_hostile(messages(bytes));
    compat::read_hostile(messages(bytes));
    // And from the middle, without a header.
    for attr in Attrs::new(bytes) {
        userdata::comment(attr.value);
    }
}
