//! One round of cleaning up: looks through the flows, lets the core judge them, deletes those that must go.
//!
//! A look is a walk over the kernel's whole table, which has more lists than most nodes have flows: how it is asked, and that it is asked
//! once rather than several times, decides what cleaning up costs. See [`plan`](super::plan).
//!
//! Flows are deleted a batch at a time, by name. Only where very many go from one address to one endpoint is the kernel asked to find and
//! delete them itself, with one message that costs another walk.

use std::collections::{BTreeSet, HashMap};
use std::net::{SocketAddr, SocketAddrV4};

use ferrovia_core::plan::conntrack::{Cleanup, StaleFlow, StaleReason};

use super::plan::{TableSize, looks};
use super::table::{FlowDeleter, FlowReader, SentTo};
use super::{Error, Flow, FlowKey};

/// So many flows are deleted at a time: enough that the system calls do not count, few enough that a batch takes less than a millisecond.
const BATCH: usize = 128;
/// So many names cost as much as a walk over a table of some three hundred thousand entries.
const CROWD: usize = 30_000;
/// So many crowds are counted; the flows of any further ones are named.
const CROWDS: usize = 256;

/// A flow that is about to be deleted.
#[derive(Clone, Debug)]
pub struct FlowToDelete {
    pub verdict: StaleFlow,
    /// Where its client sends packets.
    pub sent_to: SocketAddr,
    /// Where answers come from.
    pub answered_by: SocketAddr,
    key: FlowKey,
}

/// How many flows were deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovedFlows {
    /// Their endpoint was gone.
    pub endpoint_gone: usize,
    /// They had begun before there was an endpoint.
    pub untranslated: usize,
    /// Their service was gone.
    pub service_gone: usize,
}

impl RemovedFlows {
    pub fn total(&self) -> usize {
        self.endpoint_gone + self.untranslated + self.service_gone
    }

    fn add(&mut self, reason: StaleReason, count: usize) {
        *match reason {
            StaleReason::EndpointGone => &mut self.endpoint_gone,
            StaleReason::Untranslated => &mut self.untranslated,
            StaleReason::ServiceGone => &mut self.service_gone,
        } += count;
    }
}

/// Cleans up flows in the network namespace it was opened in.
#[derive(Debug)]
pub struct FlowCleaner {
    reader: FlowReader,
    deleter: FlowDeleter,
    /// Whether the kernel can find flows to delete by itself; true until it refuses.
    can_delete_crowds: bool,
    looks: u64,
}

impl FlowCleaner {
    /// Opens a cleaner in this thread's network namespace.
    ///
    /// # Errors
    /// If this kernel has no netfilter or a system call fails.
    pub fn open() -> Result<Self, Error> {
        Ok(Self {
            reader: FlowReader::open()?,
            deleter: FlowDeleter::open()?,
            can_delete_crowds: true,
            looks: 0,
        })
    }

    /// How often the kernel was asked to walk its table so far.
    pub fn looks(&self) -> u64 {
        self.looks
    }

    /// Deletes the flows that must go.
    ///
    /// `spare` sees every batch after it was read and before it is deleted, and takes out what must stay after all.
    ///
    /// # Errors
    /// If the netlink socket fails; part of the flows may be gone then.
    pub fn clean(
        &mut self,
        cleanup: &Cleanup,
        mut spare: impl FnMut(&mut Vec<FlowToDelete>),
    ) -> Result<RemovedFlows, Error> {
        // If the kernel does not say how many there are, looking shows it, and what is wrong.
        let table = TableSize::now(self.reader.entries().ok());
        let mut round = Round::new(cleanup, &mut self.deleter, &mut spare);
        round.crowds.is_off = !self.can_delete_crowds;
        for place in looks(cleanup.targets(), table) {
            self.looks += 1;
            round.look(&mut self.reader, place)?;
        }
        let refused = round.delete_crowds()?;
        if !refused.is_empty() {
            // This kernel is too old for that, now and later.
            self.can_delete_crowds = false;
            round.crowds.is_off = true;
            for place in refused {
                self.looks += 1;
                round.look(&mut self.reader, place)?;
            }
        }
        Ok(round.removed)
    }
}

struct Round<'a> {
    cleanup: &'a Cleanup,
    deleter: &'a mut FlowDeleter,
    spare: &'a mut dyn FnMut(&mut Vec<FlowToDelete>),
    batch: Vec<FlowToDelete>,
    crowds: Crowds,
    removed: RemovedFlows,
}

impl<'a> Round<'a> {
    fn new(
        cleanup: &'a Cleanup,
        deleter: &'a mut FlowDeleter,
        spare: &'a mut dyn FnMut(&mut Vec<FlowToDelete>),
    ) -> Self {
        Self {
            cleanup,
            deleter,
            spare,
            batch: Vec::with_capacity(BATCH),
            crowds: Crowds::default(),
            removed: RemovedFlows::default(),
        }
    }

    /// Looks through the flows to a place and deletes by name.
    fn look(&mut self, reader: &mut FlowReader, sent_to: SentTo) -> Result<(), Error> {
        let mut failure = None;
        let (family, cleanup) = (self.cleanup.family(), self.cleanup);
        reader.each(family, sent_to, |flow| {
            let Some(verdict) = cleanup.check_flow(flow.sent_to, flow.answered_by) else {
                return;
            };
            let stale = FlowToDelete {
                verdict,
                sent_to: flow.sent_to,
                answered_by: flow.answered_by,
                key: flow.key(),
            };
            if failure.is_some() || !self.crowds.take_by_name(flow, &stale) {
                return;
            }
            self.batch.push(stale);
            if self.batch.len() >= BATCH {
                failure = self.delete_batch().err();
            }
        })?;
        failure.map_or_else(|| self.delete_batch(), Err)
    }

    fn delete_batch(&mut self) -> Result<(), Error> {
        (self.spare)(&mut self.batch);
        let family = self.cleanup.family();
        // Counted by reason, so deleted by reason; a batch mostly has one.
        self.batch.sort_by_key(|stale| stale.verdict.reason);
        for group in self
            .batch
            .chunk_by(|a, b| a.verdict.reason == b.verdict.reason)
        {
            let keys = group.iter().map(|stale| &stale.key);
            let count = self.deleter.delete(family, keys)?;
            if let Some(first) = group.first() {
                self.removed.add(first.verdict.reason, count);
            }
        }
        self.batch.clear();
        Ok(())
    }

    /// Lets the kernel delete what was too much for names. Returns where the flows were sent for which it cannot do that.
    ///
    /// It also hits flows that begin while it walks. There are none, unless their endpoint comes back in that tenth of a second.
    fn delete_crowds(&mut self) -> Result<BTreeSet<SentTo>, Error> {
        let mut refused = BTreeSet::new();
        for ((sent_to, answered_by), crowd) in std::mem::take(&mut self.crowds.seen) {
            let mut one: Vec<_> = crowd.one.into_iter().collect();
            (self.spare)(&mut one);
            let Some(one) = one.pop() else { continue };
            if self.deleter.delete_between(sent_to, answered_by)? {
                self.removed.add(one.verdict.reason, crowd.left);
            } else {
                refused.insert(SentTo::V4(sent_to));
            }
        }
        Ok(refused)
    }
}

/// Counts stale flows that go from the same address to the same endpoint.
#[derive(Debug, Default)]
struct Crowds {
    /// All are to be deleted by name.
    is_off: bool,
    seen: HashMap<(SocketAddrV4, SocketAddrV4), Crowd>,
}

#[derive(Debug, Default)]
struct Crowd {
    named: usize,
    /// One of those that were too many to be named.
    one: Option<FlowToDelete>,
    left: usize,
}

impl Crowds {
    /// Counts a flow; true if it is to be deleted by name.
    fn take_by_name(&mut self, flow: &Flow<'_>, stale: &FlowToDelete) -> bool {
        let (SocketAddr::V4(sent_to), SocketAddr::V4(answered_by)) =
            (flow.sent_to, flow.answered_by)
        else {
            return true;
        };
        let ends = (sent_to, answered_by);
        if self.is_off || self.seen.len() >= CROWDS && !self.seen.contains_key(&ends) {
            return true;
        }
        let crowd = self.seen.entry(ends).or_default();
        if crowd.named < CROWD {
            crowd.named += 1;
            return true;
        }
        crowd.one.get_or_insert_with(|| stale.clone());
        crowd.left += 1;
        false
    }
}
