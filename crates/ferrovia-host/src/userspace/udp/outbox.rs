//! Answers on their way to clients: gathered from many flows, sent together.

use std::io::{self, ErrorKind};

use super::UdpListener;
use super::flow::UdpFlow;
use crate::userspace::datagrams::DatagramBatch;
use crate::userspace::slab::{Slab, SlabKey};

/// How many answers are gathered before they are sent.
const ROOM: usize = 32;
/// How many of one flow are taken in one call.
const AT_ONCE: usize = 8;

/// Answers, each with the listener it is to go out by.
pub(super) struct Outbox {
    batch: DatagramBatch,
    ports: Vec<SlabKey>,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self {
            batch: DatagramBatch::new(ROOM),
            ports: Vec::with_capacity(ROOM),
        }
    }

    /// Takes answers from a flow's socket, as far as there is room: how many, and whether those were all.
    pub(super) fn receive(&mut self, flow: &UdpFlow) -> io::Result<(usize, bool)> {
        let before = self.ports.len();
        loop {
            let start = self.ports.len();
            let room = start..(start + AT_ONCE).min(ROOM);
            if room.is_empty() {
                return Ok((start - before, false));
            }
            let asked = room.len();
            let count = match self.batch.receive(&flow.socket, room) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(error) => return Err(error),
            };
            let mut bytes = 0;
            for slot in start..start + count {
                bytes += self.batch.len(slot) as u64;
                let peer = &flow.peer;
                self.batch.address(slot, peer.client, peer.local);
                self.ports.push(flow.port);
            }
            flow.count(0, bytes);
            if count < asked {
                return Ok((self.ports.len() - before, true));
            }
        }
    }

    /// Sends all, those in a row that go out by one listener in one call. What a socket does not take is lost, as datagrams may be.
    pub(super) fn flush(&mut self, listeners: &Slab<UdpListener>) {
        let count = self.ports.len();
        let mut slot = 0;
        while slot < count {
            let port = self.ports[slot];
            let end = (slot..count).find(|next| self.ports[*next] != port);
            let run = slot..end.unwrap_or(count);
            slot = run.end;
            if let Some(listener) = listeners.get(port) {
                let mut start = run.start;
                while start < run.end {
                    let sent = (self.batch).reply(&listener.port.socket, start..run.end);
                    // The first one failed, if none went.
                    start += sent.unwrap_or(0).max(1);
                }
            }
        }
        self.ports.clear();
    }
}
