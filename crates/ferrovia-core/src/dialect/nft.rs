//! nftables as values: tables, chains, rules, sets, elements and transactions over them.
//!
//! A [`Transaction`] prints as the text `nft -f` reads (`text.rs`); a [`NftRule`] lowers to the instructions the kernel runs ([`bytecode`]);
//! [`NftObserved`] is what is found in the kernel. Encoding for netlink is left to the host crate.

pub mod bytecode;
mod observed;
mod rule;
mod set;
pub mod sim;
mod text;

use std::borrow::Cow;

pub use observed::{NftObserved, ObservedChain, ObservedElement, ObservedSet};
pub use rule::{Field, NftMatch, NftRule, PriorityValue, Sense, SetUpdate, Statement};
pub use set::{
    DataType, Element, ElementData, ElementKey, FieldType, KeyBuilder, NftVerdict, SetSpec,
};

pub(crate) use text::keyword;

use crate::family::Family;

/// The name of a chain, set or table.
pub type NftName = Cow<'static, str>;

/// Changes to one family's tables that the kernel makes all at once or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The family of the table.
    pub family: Family,
    /// The table the operations are about.
    pub table: NftName,
    /// What to do, in order.
    pub ops: Vec<NftOp>,
    /// What people should know about this transaction; printed as comments, logged by the daemon.
    pub notes: Vec<String>,
}

impl Transaction {
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NftOp {
    /// Makes the table; harmless if it is there.
    AddTable,
    /// Removes the table and all it holds.
    DeleteTable,
    /// Removes another table of the same family, such as a predecessor's.
    DeleteOtherTable(NftName),
    /// Makes a set or map.
    AddSet(SetSpec),
    /// Makes a chain; harmless if it is there and the same.
    AddChain(NftChain),
    /// Empties a chain of its rules.
    FlushChain(NftName),
    /// Removes a chain. Its rules must be gone, nothing may refer to it.
    DeleteChain(NftName),
    /// Appends a rule to a chain.
    AddRule(NftName, NftRule),
    /// Puts elements into a set.
    AddElements(SetSpec, Vec<Element>),
    /// Takes elements out of a set. Each must be there.
    DeleteElements(SetSpec, Vec<Element>),
}

/// A chain, without its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NftChain {
    pub name: NftName,
    /// Where packets enter it; none for a chain that is only jumped to.
    pub hook: Option<Hook>,
}

/// Where a base chain is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hook {
    /// What the chain may do.
    pub kind: ChainKind,
    /// The point in a packet's way.
    pub point: HookPoint,
    /// The order among chains at that point, lower first.
    pub priority: i32,
}

/// The type of a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainKind {
    Filter,
    /// Sees the first packet of a connection and may translate addresses.
    Nat,
}

impl ChainKind {
    /// The name used by tool and kernel.
    pub fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
        }
    }
}

/// A point in a packet's way through the kernel. The numbers are the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookPoint {
    /// Arrived, not yet routed.
    Prerouting = 0,
    Input = 1,
    Forward = 2,
    /// Sent by this node.
    Output = 3,
    Postrouting = 4,
}

impl HookPoint {
    /// The name used by the tool.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prerouting => "prerouting",
            Self::Input => "input",
            Self::Forward => "forward",
            Self::Output => "output",
            Self::Postrouting => "postrouting",
        }
    }

    /// The hook of a kernel number.
    pub fn from_number(number: u32) -> Option<Self> {
        [
            Self::Prerouting,
            Self::Input,
            Self::Forward,
            Self::Output,
            Self::Postrouting,
        ]
        .into_iter()
        .find(|hook| *hook as u32 == number)
    }
}
