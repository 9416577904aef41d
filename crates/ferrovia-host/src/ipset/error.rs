//! Why a set could not be read or changed.

use ferrovia_core::dialect::ipset::IpsetOp;
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
    #[error("cannot use ipset, which this kernel lacks (load or enable the module ip_set): {0}")]
    NoIpset(netlink::Error),
    /// The kernel speaks only other versions of the protocol.
    #[error(
        "cannot use ipset: this kernel supports protocol versions {lowest} to {highest}, Ferrovia uses {ours}"
    )]
    Version { lowest: u8, highest: u8, ours: u8 },
    /// A kind of sets is not there.
    #[error("cannot create sets of type {kind}, which this kernel lacks (load or enable the module ip_set_{}): {cause}", kind.replace(':', "_").replace(',', ""))]
    NoKind {
        kind: &'static str,
        cause: netlink::Error,
    },
    #[error("cannot {action}: {cause}")]
    Netlink {
        action: &'static str,
        cause: netlink::Error,
    },
    #[error("cannot apply `ipset {op}`: {}{}", words(.refusal), and_more(*.others))]
    Refused {
        /// The first change that was refused.
        op: IpsetOp,
        refusal: Refusal,
        others: usize,
    },
}

/// What a refusal means. Most of ipset's own numbers mean nothing to the system's library.
fn words(refusal: &Refusal) -> String {
    let known = match refusal.errno {
        libc::ENOENT => "no set of that name exists",
        libc::EEXIST => "a set of that name exists already",
        IPSET_ERR_PROTOCOL => "the kernel does not understand the request",
        IPSET_ERR_FIND_TYPE => "the kernel lacks this set type",
        IPSET_ERR_MAX_SETS => "the maximum number of sets is reached",
        IPSET_ERR_BUSY | IPSET_ERR_REFERENCED => "rules or other sets refer to it",
        IPSET_ERR_EXIST_SETNAME2 => "a set of the second name exists already",
        IPSET_ERR_TYPE_MISMATCH => "the sets have different types",
        IPSET_ERR_EXIST => "the entry exists already, or does not exist",
        IPSET_ERR_HASH_FULL => "the set is full",
        _ => return refusal.to_string(),
    };
    known.to_owned()
}
