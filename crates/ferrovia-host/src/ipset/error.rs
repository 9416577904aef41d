//! Why a set could not be read or changed.

use ferrovia_core::dialect::ipset::IpsetOp;

use super::uapi::error;
use crate::netlink::{self, Refusal, and_more};

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
        op: IpsetOp,
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
        error::VERSION => "the kernel does not understand the request",
        error::NO_TYPE => "the kernel lacks this type of sets",
        error::TOO_MANY_SETS => "the kernel has no room for more sets",
        error::IN_USE | error::REFERENCED => "rules or other sets refer to it",
        error::NAME_TAKEN => "there is a set of the other name",
        error::OTHER_KIND => "the sets are of different kinds",
        error::NOTHING_TO_DO => "the entry is there already, or was not there",
        error::FULL => "the set is full",
        _ => return refusal.to_string(),
    };
    known.to_owned()
}
