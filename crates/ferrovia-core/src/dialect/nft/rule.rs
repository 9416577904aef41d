//! Rules: matches, then statements.
//!
//! Only what our ruleset needs exists here. Each form prints as the tool's text and lowers to the kernel's instructions. That the two mean
//! the same is tested in the host crate: the tool loads the text, and the kernel then holds the instructions.

use ipnet::IpNet;

use super::NftName;
use crate::model::Protocol;

/// One rule of a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NftRule {
    /// All must hold for the statements to run.
    pub matches: Vec<NftMatch>,
    /// What is done, in order.
    pub statements: Vec<Statement>,
    /// Why the rule is there, for people who list it.
    pub comment: Option<&'static str>,
}

impl NftRule {
    /// A rule without conditions.
    pub fn always(statement: Statement) -> Self {
        Self {
            statements: vec![statement],
            ..Self::default()
        }
    }

    /// A rule with one condition.
    pub fn when(condition: NftMatch) -> Self {
        Self {
            matches: vec![condition],
            ..Self::default()
        }
    }

    #[must_use]
    pub fn and(mut self, condition: NftMatch) -> Self {
        self.matches.push(condition);
        self
    }

    #[must_use]
    pub fn then(mut self, statement: Statement) -> Self {
        self.statements.push(statement);
        self
    }

    #[must_use]
    pub fn because(mut self, comment: &'static str) -> Self {
        self.comment = Some(comment);
        self
    }
}

/// Something a packet has, as part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    Saddr,
    Daddr,
    L4Proto,
    Dport,
    /// The address its connection was made to, before any translation.
    OriginalDaddr,
    /// The port its connection was made to, before any translation. `nft` takes this only in a rule that asks for one protocol
    /// ([`NftMatch::Protocol`]). If that rule has [`Field::Dport`] too it must come first, or `nft` cannot load its own listing.
    OriginalDport,
    Priority,
    /// Some bits of the scratch register.
    PriorityBits(u32),
    /// A random number below this.
    Random(u32),
    /// A number below this, the same for every packet of a source address.
    SourceHash(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NftMatch {
    /// The first packet of a connection.
    CtStateNew,
    /// The connection's destination has been translated.
    CtStatusDnat,
    Protocol(Protocol),
    /// One of these bits of the packet mark is set.
    MarkBits(u32),
    /// One of these bits of the scratch register is set.
    PriorityBits(u32),
    /// The source address is inside (or outside) a range.
    Source(IpNet, Sense),
    /// The destination address is inside (or outside) a range.
    Destination(IpNet, Sense),
    /// The packet came in by this interface.
    InputInterface(String, Sense),
    /// The packet came in by an interface whose name begins so.
    InputInterfacePrefix(String, Sense),
    /// The source is an address of this node.
    LocalSource,
    /// The destination is an address of this node.
    LocalDestination,
    /// A key is in a set (or map).
    InSet(Vec<Field>, NftName, Sense),
}

/// Whether a condition must hold or must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sense {
    Is,
    IsNot,
}

/// Something done to a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// Sets bits of the packet mark.
    MarkOr(u32),
    /// Flips bits of the packet mark.
    MarkXor(u32),
    /// Writes the scratch register.
    SetPriority(PriorityValue),
    /// Does what a verdict map says for a key; goes on if it says nothing.
    Vmap(Vec<Field>, NftName),
    /// Goes on in another chain and comes back.
    Jump(NftName),
    /// Goes on in another chain and does not come back.
    Goto(NftName),
    /// Returns to the calling chain.
    Return,
    /// Throws the packet away.
    Drop,
    /// Rejects the packet with an ICMP error.
    Reject,
    /// Gives the connection this node's address as source, with a random port.
    Masquerade,
    /// Gives the connection the destination a map holds for a key; goes on if it holds none.
    Dnat(Vec<Field>, NftName),
    /// Changes a dynamic set or map. The rule ends here if the set is full.
    Dynamic(SetUpdate),
    Counter,
}

/// A value for the scratch register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PriorityValue {
    /// None, as packets have it by default.
    None,
    /// Its own value, only these bits.
    Bits(u32),
    /// Its own value with these bits set.
    With(u32),
    /// What a map holds for a key; the rule ends here if it holds nothing.
    Map(Vec<Field>, NftName),
}

/// A change to a dynamic set, or to a dynamic map whose data is the scratch register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetUpdate {
    /// Adds the key to a set whose elements count, or, if it exists, counts and resets its timeout.
    Count {
        set: NftName,
        key: Vec<Field>,
        /// Seconds until the element goes.
        timeout: u32,
    },
    /// Adds the key with the scratch register as data, or, if it exists, resets its timeout.
    Refresh {
        map: NftName,
        key: Vec<Field>,
        /// Seconds until the element goes.
        timeout: u32,
    },
    /// Takes the key out.
    Delete { map: NftName, key: Vec<Field> },
}
