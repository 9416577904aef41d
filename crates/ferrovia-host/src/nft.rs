//! nf_tables over netlink: transactions go in, what is in the kernel comes back.
//!
//! [`Nft`] writes and reads, [`Monitor`] reports changes by other processes. Planners in the core decide what is
//! written.

mod applier;
mod compat;
mod decode;
mod encode;
mod error;
mod expr;
mod forget;
mod hooked;
#[cfg(any(test, fuzzing))]
pub(crate) mod hostile;
mod monitor;
mod oddities;
mod owner;
mod read;
mod rehearse;
mod sets;
mod userdata;
mod value;

use std::time::{Duration, Instant};

use ferrovia_core::dialect::nft::{ElementKey, NftObserved, Transaction};
use ferrovia_core::family::Family;
use ferrovia_core::plan::nft::sweep::DynamicEntry;
use ferrovia_netlink::uapi::nf_tables::{
    NFT_MSG_GETGEN, NFT_MSG_GETRULE, NFT_MSG_GETSETELEM, NFTA_OBJ_TABLE, NFTA_SET_ELEM_LIST_SET,
    NFTA_SET_ELEM_LIST_TABLE,
};
use ferrovia_netlink::uapi::nfnetlink::NFNL_SUBSYS_NFTABLES;
use ferrovia_netlink::{
    self as netlink, Message, Protocol, Refusal, Socket, Writer, messages, nfnetlink,
};

pub use applier::{NftApplier, NftConnection};
pub use error::{Error, RefusedOperation};
pub use monitor::{Monitor, RulesetChange};
pub(crate) use owner::TableClaim;
pub use rehearse::Rehearsal;

use self::encode::EncodedBatch;

/// The name of the counter expression.
const COUNTER: &str = "counter";

/// How often a read is restarted because another process committed meanwhile.
const ATTEMPTS: usize = 4;

/// A connection to nf_tables in the network namespace it was opened in.
#[derive(Debug)]
pub struct Nft {
    socket: Socket,
}

/// What a transaction cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitStats {
    /// Messages sent, without those that begin and end the batch.
    pub messages: usize,
    pub bytes: usize,
    /// From the first byte sent to the acknowledgement of the kernel.
    pub took: Duration,
}

impl Nft {
    /// Opens a connection.
    ///
    /// # Errors
    /// If this kernel has no netfilter or a system call fails.
    pub fn open() -> Result<Self, Error> {
        let socket = Socket::open(Protocol::Netfilter)
            .map_err(failed("open a netlink socket for nf_tables"))?;
        Ok(Self { socket })
    }

    /// The same; nothing on a kernel without nf_tables, or without netfilter's way to ask for it.
    ///
    /// # Errors
    /// If the kernel does not answer, or with another error.
    pub fn open_if_there() -> Result<Option<Self>, Error> {
        match Self::open().and_then(|mut nft| nft.generation().map(|_| nft)) {
            Ok(nft) => Ok(Some(nft)),
            Err(error) if matches!(error.errno(), Some(libc::EINVAL | libc::EPROTONOSUPPORT)) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// What notifications about our own changes carry as their origin.
    pub fn port_id(&self) -> u32 {
        self.socket.port_id()
    }

    /// Makes the changes of a transaction, all or none.
    ///
    /// # Errors
    /// [`Error::Refused`] names the operations that the kernel did not accept; nothing was changed
    /// then.
    pub fn apply(&mut self, transaction: &Transaction) -> Result<CommitStats, Error> {
        let broken = failed("write the ruleset");
        let batch = encode::batch(transaction, self.socket.next_seq())
            .map_err(|error| broken(error.into()))?;
        let (messages, bytes) = (batch.parts.len(), batch.bytes.len());
        // An empty batch would be accepted, but not acknowledged.
        if messages == 0 {
            return Ok(CommitStats {
                messages: 0,
                bytes: 0,
                took: Duration::ZERO,
            });
        }
        let (refusals, took) = self.send(&batch).map_err(broken)?;
        if refusals.is_empty() {
            return Ok(CommitStats {
                messages,
                bytes,
                took,
            });
        }
        let failure = |(seq, refusal)| RefusedOperation::new(transaction, &batch, seq, refusal);
        Err(Error::Refused(refusals.into_iter().map(failure).collect()))
    }

    /// Reads a table, and which of the tables of previous proxies are there.
    ///
    /// A picture taken while another process commits is taken again; but the commit may have been to any table of this namespace, and some
    /// programs never stop, so the last of a few is believed. A write that rests on a wrong one is refused as a whole.
    ///
    /// # Errors
    /// If the netlink socket fails.
    pub fn observe(
        &mut self,
        family: Family,
        table: &str,
        previous_tables: &[&str],
    ) -> Result<NftObserved, Error> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let before = self.generation()?;
            match self.read(family, table, previous_tables) {
                // Deleted between two of the reads: the next attempt finds it gone.
                Err(ref error) if error.is_not_found() => {}
                Err(error) => return Err(error),
                Ok(observed) if self.generation()? == before => return Ok(observed),
                Ok(observed) => last = Some(observed),
            }
        }
        last.ok_or_else(|| failed("read the ruleset")(netlink::Error::DumpInterrupted))
    }

    /// The packets each element of a set has counted.
    ///
    /// # Errors
    /// If there is no such set or the netlink socket fails.
    pub fn counters(
        &mut self,
        family: Family,
        table: &str,
        set: &str,
    ) -> Result<Vec<(ElementKey, u64)>, Error> {
        let elements = self.read_elements(family, table, set)?;
        let counted = elements
            .list
            .into_iter()
            .filter(|element| !element.ends_range);
        Ok(counted
            .map(|element| (element.key, element.packets))
            .collect())
    }

    /// Entries of a set that packets fill, up to about `most`: the kernel takes the longer for each the more it has given. They come in the
    /// order of their hashes, so some are a sample of all. Packets add and remove entries meanwhile.
    ///
    /// # Errors
    /// If there is no such set or the netlink socket fails.
    pub fn entries(
        family: Family,
        table: &str,
        set: &str,
        most: usize,
    ) -> Result<Vec<DynamicEntry>, Error> {
        let question = |w: &mut Writer| {
            w.raw(&fixed_header(Some(family)));
            w.text(NFTA_SET_ELEM_LIST_TABLE, table);
            w.text(NFTA_SET_ELEM_LIST_SET, set);
        };
        let enough = |entries: &Vec<DynamicEntry>| entries.len() >= most;
        // A connection of its own, because a dump that is left in the middle ends only with it.
        let mut nft = Self::open()?;
        nft.socket
            .dump_inconsistent(
                message_type(NFT_MSG_GETSETELEM),
                question,
                decode::entries,
                enough,
            )
            .map_err(failed("list elements"))
    }

    /// The packets that rules of a table have counted, by chain; rules without a counter are left out.
    ///
    /// # Errors
    /// If the netlink socket fails.
    pub fn rule_counters(
        &mut self,
        family: Family,
        table: &str,
    ) -> Result<Vec<(String, u64)>, Error> {
        let question = |w: &mut Writer| {
            w.raw(&fixed_header(Some(family)));
            w.text(NFTA_OBJ_TABLE, table);
        };
        let each = |all: &mut Vec<_>, message: &Message<'_>| {
            all.extend(decode::rule_counter(message));
        };
        self.socket
            .dump_inconsistent(message_type(NFT_MSG_GETRULE), question, each, |_| false)
            .map_err(failed("list rules"))
    }

    /// The number of the last commit by anyone in this namespace.
    ///
    /// # Errors
    /// If the kernel has no nf_tables or the netlink socket fails.
    pub fn generation(&mut self) -> Result<u32, Error> {
        self.socket
            .query(
                message_type(NFT_MSG_GETGEN),
                |w| w.raw(&fixed_header(None)),
                decode::generation,
            )
            .map_err(failed("read the generation of nf_tables"))
    }

    /// Sends a batch; returns what was refused, by sequence number.
    fn send(
        &mut self,
        batch: &EncodedBatch,
    ) -> Result<(Vec<(u32, Refusal)>, Duration), netlink::Error> {
        let count = batch.parts.len() as u32;
        self.socket.skip_seqs(count + 2);
        let start = Instant::now();
        self.socket.send(&batch.bytes)?;
        let (mut refusals, mut acknowledged) = (Vec::new(), false);
        // The kernel works inside the sending call: when that returns, all answers are there.
        while let Some(answers) = self.socket.try_receive()? {
            for message in messages(answers) {
                let number = message.seq.wrapping_sub(batch.first_seq);
                match Refusal::read(&message) {
                    Some(Err(refusal)) if number <= count => refusals.push((message.seq, refusal)),
                    Some(Ok(())) => acknowledged |= number == count,
                    _ => {}
                }
            }
        }
        if acknowledged || !refusals.is_empty() {
            Ok((refusals, start.elapsed()))
        } else {
            Err(netlink::Error::UnexpectedReply)
        }
    }

    /// Lists objects of a family; `filter` narrows the question, `each` folds the answers.
    fn dump<T: Default>(
        &mut self,
        action: &'static str,
        message: u8,
        family: Family,
        filter: impl Fn(&mut Writer),
        each: impl FnMut(&mut T, &Message<'_>),
    ) -> Result<T, Error> {
        let body = |w: &mut Writer| {
            w.raw(&fixed_header(Some(family)));
            filter(w);
        };
        self.socket
            .dump(message_type(message), body, each)
            .map_err(failed(action))
    }
}

fn failed(action: &'static str) -> impl Fn(netlink::Error) -> Error + Copy {
    move |cause| Error::Netlink { action, cause }
}

/// The header of every nf_tables message; no family means all of them.
fn fixed_header(family: Option<Family>) -> [u8; nfnetlink::HEADER_LEN] {
    nfnetlink::header(family.map_or(libc::AF_UNSPEC as u8, family_number))
}

/// The message type of an `NFT_MSG_*`.
const fn message_type(message: u8) -> u16 {
    nfnetlink::message_type(NFNL_SUBSYS_NFTABLES, message)
}

fn family_number(family: Family) -> u8 {
    match family {
        Family::V4 => libc::NFPROTO_IPV4 as u8,
        Family::V6 => libc::NFPROTO_IPV6 as u8,
    }
}
