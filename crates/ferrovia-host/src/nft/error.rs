//! Errors of reading and writing the ruleset, which name the operation that failed.

use std::fmt::{self, Display, Formatter};

use ferrovia_core::dialect::nft::{Element, NftOp, SetSpec, Transaction};
use ferrovia_netlink::uapi::nf_tables::NFTA_SET_ELEM_LIST_ELEMENTS;
use ferrovia_netlink::{self as netlink, Attrs, Message, Refusal, messages};

use super::encode::{BatchPart, EncodedBatch};

/// Reading or writing the ruleset failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action}: {cause}")]
    Netlink {
        action: &'static str,
        cause: netlink::Error,
    },
    /// The kernel refused a transaction. Nothing of it was done.
    #[error("{}", Refusals(.0))]
    Refused(Vec<RefusedOperation>),
}

impl Error {
    /// What was asked for is not there.
    pub fn is_not_found(&self) -> bool {
        self.errno() == Some(libc::ENOENT)
    }

    /// The error number, of the first failure if there are several.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Netlink { cause, .. } => cause.errno(),
            Self::Refused(failures) => failures.first().map(|failure| failure.refusal.errno),
        }
    }
}

/// One operation of a transaction that the kernel did not accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedOperation {
    /// Its place in the transaction; none if the transaction as a whole was refused.
    pub op: Option<usize>,
    /// What it was to do, to be read after "cannot".
    pub action: String,
    /// The element it was about, as the tool would write its command.
    pub element: Option<String>,
    pub refusal: Refusal,
}

impl RefusedOperation {
    /// Finds the operation of a refused message.
    pub(super) fn new(
        transaction: &Transaction,
        batch: &EncodedBatch,
        seq: u32,
        refusal: Refusal,
    ) -> Self {
        // The message that begins the batch stands for all of it: what fails there is the commit.
        let number = seq.wrapping_sub(batch.first_seq).checked_sub(1);
        let part = number.and_then(|number| batch.parts.get(number as usize));
        let Some((part, op)) = part.and_then(|part| Some((part, transaction.ops.get(part.op)?)))
        else {
            let action = format!("commit the changes to table {}", transaction.table);
            return Self {
                op: None,
                action,
                element: None,
                refusal,
            };
        };
        let element = refusal
            .offset
            .and_then(|offset| refused_element(transaction, op, batch, part, offset));
        Self {
            op: Some(part.op),
            action: describe(transaction, op),
            element,
            refusal,
        }
    }
}

impl Display for RefusedOperation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.action, self.refusal)?;
        match &self.element {
            Some(element) => write!(f, ", at `{element}`"),
            None => Ok(()),
        }
    }
}

/// The first failure in full; the others are usually its consequences.
struct Refusals<'a>(&'a [RefusedOperation]);

impl Display for Refusals<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("cannot commit a transaction: the kernel gave no reason"),
            [only] => only.fmt(f),
            [first, others @ ..] => write!(f, "{first} (and {} more)", others.len()),
        }
    }
}

fn describe(transaction: &Transaction, op: &NftOp) -> String {
    let table = &transaction.table;
    match op {
        NftOp::AddTable => format!("add table {table}"),
        NftOp::DeleteTable => format!("delete table {table}"),
        NftOp::DeleteOtherTable(other) => format!("delete table {other}"),
        NftOp::AddSet(set) => format!("add {} {}", kind(set), set.name),
        NftOp::AddChain(chain) => format!("add chain {}", chain.name),
        NftOp::FlushChain(chain) => format!("flush chain {chain}"),
        NftOp::DeleteChain(chain) => format!("delete chain {chain}"),
        NftOp::AddRule(chain, _) => format!("add rule to chain {chain}"),
        NftOp::AddElements(set, _) => format!("add element to {} {}", kind(set), set.name),
        NftOp::DeleteElements(set, _) => format!("delete element from {} {}", kind(set), set.name),
    }
}

fn kind(set: &SetSpec) -> &'static str {
    if set.data.is_some() { "map" } else { "set" }
}

/// The command for the one element at which the kernel stopped: the offset is that of its attribute
/// in the message.
fn refused_element(
    transaction: &Transaction,
    op: &NftOp,
    batch: &EncodedBatch,
    part: &BatchPart,
    offset: usize,
) -> Option<String> {
    let (set, elements, command): (_, _, fn(SetSpec, Vec<Element>) -> NftOp) = match op {
        NftOp::AddElements(set, elements) => (set, elements, NftOp::AddElements),
        NftOp::DeleteElements(set, elements) => (set, elements, NftOp::DeleteElements),
        _ => return None,
    };
    // A range over one field is two items of the list, or one if it has no end: not worth
    // counting.
    if set.interval && set.key.len() == 1 {
        return None;
    }
    let message = messages(batch.bytes.get(part.start..)?).next()?;
    let found = elements.get(part.first_element + items_before(&message, offset)?)?;
    let one = Transaction {
        family: transaction.family,
        table: transaction.table.clone(),
        ops: vec![command(*set, vec![found.clone()])],
        notes: Vec::new(),
    };
    Some(one.to_string().trim_end().to_owned())
}

/// How many items of the message's list stand before an offset.
fn items_before(message: &Message<'_>, offset: usize) -> Option<usize> {
    let list = super::decode::attrs(message)
        .get(NFTA_SET_ELEM_LIST_ELEMENTS)?
        .value;
    let list_start = list.as_ptr().addr() - message.body.as_ptr().addr() + Message::HEADER_LEN;
    let before = list.get(..offset.checked_sub(list_start)?)?;
    Some(Attrs::new(before).count())
}
