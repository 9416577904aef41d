//! Rules: matches, then statements.
//!
//! Only what our ruleset needs exists here. Each form prints as the tool's text and lowers to the kernel's instructions. That the two mean
//! the same is tested in the host crate: the tool loads the text, and the kernel then holds the instructions.

use ipnet::IpNet;

use super::Name;
use crate::model::Protocol;

/// One rule of a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// All must hold for the statements to run.
    pub matches: Vec<Match>,
    /// What is done, in order.
    pub statements: Vec<Statement>,
    /// Why the rule is there, for people who list it.
    pub comment: Option<&'static str>,
}

impl Rule {
    /// A rule without conditions.
    pub fn always(statement: Statement) -> Self {
        Self {
            statements: vec![statement],
            ..Self::default()
        }
    }

    /// A rule with one condition.
    pub fn when(condition: Match) -> Self {
        Self {
            matches: vec![condition],
            ..Self::default()
        }
    }

    /// Adds a condition.
    #[must_use]
    pub fn and(mut self, condition: Match) -> Self {
        self.matches.push(condition);
        self
    }

    /// Adds a statement.
    #[must_use]
    pub fn then(mut self, statement: Statement) -> Self {
        self.statements.push(statement);
        self
    }

    /// Says why.
    #[must_use]
    pub fn because(mut self, comment: &'static str) -> Self {
        self.comment = Some(comment);
        self
    }
}

/// Something a packet has, as part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Its source address.
    Saddr,
    /// Its destination address.
    Daddr,
    /// Its transport protocol.
    L4Proto,
    /// Its destination port.
    Dport,
    /// The address its connection was made to, before any translation.
    OriginalDaddr,
    /// The port its connection was made to, before any translation. `nft` takes this only in a rule that asks for one protocol
    /// ([`Match::Protocol`]). If that rule has [`Field::Dport`] too it must come first, or `nft` cannot load its own listing.
    OriginalDport,
    /// The scratch register.
    Priority,
    /// Some bits of the scratch register.
    PriorityBits(u32),
    /// A random number below this.
    Random(u32),
    /// A number below this, the same for every packet of a source address.
    SourceHash(u32),
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// The first packet of a connection.
    CtStateNew,
    /// The connection's destination has been translated.
    CtStatusDnat,
    /// The transport protocol.
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
    InSet(Vec<Field>, Name, Sense),
}

/// Whether a condition must hold or must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sense {
    /// It must hold.
    Is,
    /// It must not.
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
    Vmap(Vec<Field>, Name),
    /// Goes on in another chain and comes back.
    Jump(Name),
    /// Goes on in another chain and does not come back.
    Goto(Name),
    /// Returns to the calling chain.
    Return,
    /// Throws the packet away.
    Drop,
    /// Throws the packet away and tells the sender.
    Reject,
    /// Gives the connection this node's address as source, with a random port.
    Masquerade,
    /// Gives the connection the destination a map holds for a key; goes on if it holds none.
    Dnat(Vec<Field>, Name),
    /// Changes a dynamic set or map. The rule ends here if the set is full.
    Dynamic(SetUpdate),
    /// Counts the packet.
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
    Map(Vec<Field>, Name),
}

/// A change to a dynamic set, or to a dynamic map whose data is the scratch register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetUpdate {
    /// Adds the key to a set whose elements count, or, if it is there, counts and starts its time-out anew.
    Count {
        /// The set.
        set: Name,
        /// The key.
        key: Vec<Field>,
        /// Seconds until the element goes.
        timeout: u32,
    },
    /// Adds the key with the scratch register as data, or, if it is there, starts its time-out anew.
    Refresh {
        /// The map.
        map: Name,
        /// The key.
        key: Vec<Field>,
        /// Seconds until the element goes.
        timeout: u32,
    },
    /// Takes the key out.
    Delete {
        /// The map.
        map: Name,
        /// The key.
        key: Vec<Field>,
    },
}
