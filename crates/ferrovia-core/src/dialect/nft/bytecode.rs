//! Rules as the kernel runs them: small instructions on 32-bit registers.
//!
//! [`lower`] turns a [`NftRule`](super::NftRule) into instructions. What is read back from the kernel decodes into the same type, so that "is this
//! rule what we want" is a comparison.

mod lower;

use smallvec::SmallVec;

pub(super) use self::lower::HASH_SEED;
pub use self::lower::lower;
use super::{NftName, NftVerdict};
use crate::family::Family;

/// A 32-bit register by its kernel number, 8 to 23. The kernel also has names for groups of four (1 is 8 to 11, and so on); those never
/// occur here, decoding turns them into the number of their first register.
pub type Reg = u32;

pub type Bytes = SmallVec<[u8; 16]>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// Loads bytes of the packet.
    Payload {
        dreg: Reg,
        base: PayloadBase,
        offset: u32,
        len: u32,
    },
    /// Loads a packet's metadata.
    Meta {
        dreg: Reg,
        key: MetaKey,
    },
    /// Writes a packet's metadata.
    MetaSet {
        key: MetaKey,
        sreg: Reg,
    },
    /// Loads a connection's state or status bits.
    Ct {
        dreg: Reg,
        key: CtKey,
    },
    /// Loads what a connection was addressed to.
    CtOriginal {
        dreg: Reg,
        key: OriginalKey,
    },
    /// Ends the rule unless registers compare.
    Cmp {
        sreg: Reg,
        op: CmpOp,
        data: Bytes,
    },
    /// `(sreg & mask) ^ xor`.
    Bitwise {
        sreg: Reg,
        dreg: Reg,
        mask: Bytes,
        /// Bits flipped after that.
        xor: Bytes,
    },
    /// Ends the rule unless a key is in a set; with `dreg`, loads the data (register 0 takes a verdict).
    Lookup {
        set: NftName,
        /// Where the key is.
        sreg: Reg,
        /// Where the data go.
        dreg: Option<Reg>,
        /// Ends the rule if the key *is* in the set.
        invert: bool,
    },
    Immediate {
        dreg: Reg,
        data: Bytes,
    },
    /// Ends the chain with a verdict.
    Verdict(NftVerdict),
    /// Loads the type of an address by asking the routing table.
    FibAddrType {
        dreg: Reg,
        /// The source rather than the destination.
        source: bool,
    },
    /// Loads a random number.
    Random {
        dreg: Reg,
        modulus: u32,
    },
    Hash {
        dreg: Reg,
        sreg: Reg,
        /// How many bytes of it.
        len: u32,
        modulus: u32,
        seed: u32,
    },
    Dnat {
        /// The family of the address.
        family: Family,
        /// Where the address is.
        addr: Reg,
        /// Where the port is.
        port: Reg,
    },
    /// Translates the source to this node's own, fully random port.
    Masquerade,
    /// Answers with port unreachable.
    Reject,
    /// Changes a dynamic set or map from the packet's path.
    Dynset {
        set: NftName,
        op: DynsetOp,
        /// Where the key is.
        key: Reg,
        /// Where the data are, if it is a map.
        data: Option<Reg>,
        /// How long the element lives, 0 for the set's own.
        timeout_ms: u64,
    },
    /// Counts the packet. What it has counted is no part of the rule.
    Counter,
    /// An instruction we never write: someone else's.
    Foreign(String),
}

/// A header of the packet. The numbers are the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadBase {
    Network = 1,
    Transport = 2,
}

/// A packet's metadata. The numbers are the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaKey {
    Priority = 2,
    Mark = 3,
    /// Name of the interface it came in by.
    InputInterface = 6,
    L4Proto = 16,
}

/// What is known of a connection. The numbers are the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CtKey {
    State = 0,
    Status = 2,
}

/// Part of the destination a connection was made to. The numbers are the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginalKey {
    Port = 12,
    Ipv4 = 20,
    Ipv6 = 22,
}

/// A comparison. The numbers are the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmpOp {
    Eq = 0,
    Neq = 1,
}

/// A change to a dynamic set. The numbers are the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DynsetOp {
    /// Adds, or resets the timeout.
    Update = 1,
    Delete = 2,
}
