//! Why a set could not be read or changed.

use ferrovia_core::dialect::ipset::Op;
use ferrovia_netlink::uapi::ip_set::{
    IPSET_ERR_BUSY, IPSET_ERR_EXIST, IPSET_ERR_EXIST_SETNAME2, IPSET_ERR_FIND_TYPE,
    IPSET_ERR_MAX_SETS, IPSET_ERR_PROTOCOL, IPSET_ERR_REFERENCED, IPSET_ERR_TYPE_MISMATCH,
};
use ferrovia_netlink::uapi::ip_set_hash::IPSET_ERR_HASH_FULL;
use ferrovia_netlink::{self as netlink, Refusal, and_more};

/// Why a set could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel does not have ipset.
    #[error("this kernel has no ipset (load or enable the module ip_set): {0}")]
    NoIpset(netlink::Error),
    /// The kernel speaks only other versions of the protocol.
    #[error(
        "this kernel's ipset speaks versions {lowest} to {highest} of its protocol, Ferrovia speaks {ours}"
    )]
    Version {
        /// The lowest it speaks.
        lowest: u8,
        /// The highest.
        highest: u8,
        /// What we speak.
        ours: u8,
    },
    /// A kind of sets is not there.
    #[error("this kernel has no sets of type {kind} (load or enable the module ip_set_{}): {cause}", kind.replace(':', "_").replace(',', ""))]
    NoKind {
        /// Its name.
        kind: &'static str,
        /// What the kernel said.
        cause: netlink::Error,
    },
    /// The conversation broke.
    #[error("cannot {action}: {cause}")]
    Netlink {
        /// What was tried.
        action: &'static str,
        /// Why not.
        cause: netlink::Error,
    },
    /// The kernel refused changes.
    #[error("ipset {op}: {}{}", words(.refusal), and_more(*.others))]
    Refused {
        /// The first change that was refused.
        op: Op,
        /// The kernel's word.
        refusal: Refusal,
        /// How many others were refused.
        others: usize,
    },
}

/// What a refusal means. Most of ipset's own numbers mean nothing to the system's library.
fn words(refusal: &Refusal) -> String {
    let known = match refusal.errno {
        libc::ENOENT => "there is no set of that name",
        libc::EEXIST => "there is a set of that name",
        IPSET_ERR_PROTOCOL => "the kernel does not understand the request",
        IPSET_ERR_FIND_TYPE => "the kernel lacks this type of sets",
        IPSET_ERR_MAX_SETS => "the kernel has no room for more sets",
        IPSET_ERR_BUSY | IPSET_ERR_REFERENCED => "rules or other sets refer to it",
        IPSET_ERR_EXIST_SETNAME2 => "there is a set of the other name",
        IPSET_ERR_TYPE_MISMATCH => "the sets are of different kinds",
        IPSET_ERR_EXIST => "the entry is there already, or was not there",
        IPSET_ERR_HASH_FULL => "the set is full",
        _ => return refusal.to_string(),
    };
    known.to_owned()
}
