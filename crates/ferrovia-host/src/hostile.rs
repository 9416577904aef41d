//! Decoders against bytes that no kernel would send: whatever comes, they must answer and not panic. Built for tests and for the fuzzer
//! only.

use ferrovia_netlink::{Refusal, messages, rtnetlink};

use crate::{addr, conntrack, ipset, ipvs, nft, survey};

#[cfg(test)]
mod tests;

/// Datagrams of a real kernel.
#[cfg(test)]
pub(crate) const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/netlink");

/// Everything that reads what the kernel sends over netlink.
pub fn decode_all(bytes: &[u8]) {
    nft::hostile::decode_all(bytes);
    ipset::read_hostile(messages(bytes));
    for message in messages(bytes) {
        conntrack::read_hostile(&message);
        ipvs::read_hostile(&message);
        rtnetlink::interface_index(&message);
        survey::links::read_hostile(&message);
        addr::address(&message);
        Refusal::read(&message);
    }
}
