//! Rules as the kernel runs them: small instructions on 32-bit registers.
//!
//! [`lower`] turns a [`Rule`](super::Rule) into instructions. What is read back from the kernel decodes into the same type, so that "is this
//! rule what we want" is a comparison.

mod lower;

use smallvec::SmallVec;

pub(super) use self::lower::HASH_SEED;
pub use self::lower::lower;
use super::{Name, Verdict};
use crate::family::Family;

/// A 32-bit register by its kernel number, 8 to 23. The kernel also has names for groups of four (1 is 8 to 11, and so on); those never
/// occur here, decoding turns them into the number of their first register.
pub type Reg = u32;

/// Immediate bytes.
pub type Bytes = SmallVec<[u8; 16]>;

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// Loads bytes of the packet.
    Payload {
        /// Where to.
        dreg: Reg,
        /// Which header.
        base: Header,
        /// Where in it.
        offset: u32,
        /// How many.
        len: u32,
    },
    /// Loads a packet's metadata.
    Meta {
        /// Where to.
        dreg: Reg,
        /// Which.
        key: MetaKey,
    },
    /// Writes a packet's metadata.
    MetaSet {
        /// Which.
        key: MetaKey,
        /// Where from.
        sreg: Reg,
    },
    /// Loads a connection's state or status bits.
    Ct {
        /// Where to.
        dreg: Reg,
        /// Which.
        key: CtKey,
    },
    /// Loads what a connection was addressed to.
    CtOriginal {
        /// Where to.
        dreg: Reg,
        /// Which part.
        key: OriginalKey,
    },
    /// Ends the rule unless registers compare.
    Cmp {
        /// What is compared.
        sreg: Reg,
        /// How.
        op: CmpOp,
        /// With what.
        data: Bytes,
    },
    /// `(sreg & mask) ^ xor`.
    Bitwise {
        /// Where from.
        sreg: Reg,
        /// Where to.
        dreg: Reg,
        /// Bits kept.
        mask: Bytes,
        /// Bits flipped after that.
        xor: Bytes,
    },
    /// Ends the rule unless a key is in a set; with `dreg`, loads the data (register 0 takes a verdict).
    Lookup {
        /// The set.
        set: Name,
        /// Where the key is.
        sreg: Reg,
        /// Where the data go.
        dreg: Option<Reg>,
        /// Ends the rule if the key *is* in the set.
        invert: bool,
    },
    /// Loads bytes.
    Immediate {
        /// Where to.
        dreg: Reg,
        /// What.
        data: Bytes,
    },
    /// Ends the chain with a verdict.
    Verdict(Verdict),
    /// Loads the type of an address by asking the routing table.
    FibAddrType {
        /// Where to.
        dreg: Reg,
        /// The source rather than the destination.
        source: bool,
    },
    /// Loads a random number.
    Random {
        /// Where to.
        dreg: Reg,
        /// Below this.
        modulus: u32,
    },
    /// Loads a hash.
    Hash {
        /// Where to.
        dreg: Reg,
        /// Of what.
        sreg: Reg,
        /// How many bytes of it.
        len: u32,
        /// Below this.
        modulus: u32,
        /// Started with this.
        seed: u32,
    },
    /// Translates the destination.
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
        /// The set.
        set: Name,
        /// What to do.
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
pub enum Header {
    /// IP.
    Network = 1,
    /// TCP, UDP, SCTP.
    Transport = 2,
}

/// A packet's metadata. The numbers are the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaKey {
    /// The scratch register.
    Priority = 2,
    /// The packet mark.
    Mark = 3,
    /// Name of the interface it came in by.
    InputInterface = 6,
    /// Transport protocol.
    L4Proto = 16,
}

/// What is known of a connection. The numbers are the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CtKey {
    /// New, established, …
    State = 0,
    /// Translated, confirmed, …
    Status = 2,
}

/// Part of the destination a connection was made to. The numbers are the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginalKey {
    /// The port.
    Port = 12,
    /// The IPv4 address.
    Ipv4 = 20,
    /// The IPv6 address.
    Ipv6 = 22,
}

/// A comparison. The numbers are the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmpOp {
    /// Equal.
    Eq = 0,
    /// Not equal.
    Neq = 1,
}

/// A change to a dynamic set. The numbers are the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DynsetOp {
    /// Adds, or starts the time-out anew.
    Update = 1,
    /// Removes.
    Delete = 2,
}
