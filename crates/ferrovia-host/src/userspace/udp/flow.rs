//! Flows: what one client sends to one address of ours goes to one endpoint, over a socket of its own, until it has been silent long enough.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Instant;

use crate::userspace::datagrams::Local;
use crate::userspace::shared::{ServiceState, Target};
use crate::userspace::slab::{Slab, SlabKey};

/// Whose flow it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Peer {
    pub(super) client: SocketAddr,
    /// The local address of the flow.
    pub(super) local: Option<Local>,
}

#[derive(Debug)]
pub(super) struct UdpFlow {
    pub(super) socket: UdpSocket,
    pub(super) service: Arc<ServiceState>,
    pub(super) target: Arc<Target>,
    /// The listener it came by.
    pub(super) port: SlabKey,
    pub(super) peer: Peer,
    pub(super) used: Instant,
    /// Its neighbours in the order of use.
    older: Option<SlabKey>,
    newer: Option<SlabKey>,
}

impl UdpFlow {
    pub(super) fn new(
        socket: UdpSocket,
        service: Arc<ServiceState>,
        target: Arc<Target>,
        port: SlabKey,
        peer: Peer,
        used: Instant,
    ) -> Self {
        Self {
            socket,
            service,
            target,
            port,
            peer,
            used,
            older: None,
            newer: None,
        }
    }

    /// Counts bytes that went each way.
    pub(super) fn count(&self, inwards: u64, outwards: u64) {
        self.service.counters.bytes(inwards, outwards);
        self.target.counters.bytes(inwards, outwards);
    }
}

/// The flows of a thread, in the order in which they were last used.
#[derive(Debug)]
pub(super) struct Flows {
    flows: Slab<UdpFlow>,
    most: usize,
    oldest: Option<SlabKey>,
    newest: Option<SlabKey>,
}

impl Flows {
    pub(super) fn new(most: usize) -> Self {
        Self {
            flows: Slab::new(),
            most,
            oldest: None,
            newest: None,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.flows.len() >= self.most
    }

    pub(super) fn get(&self, key: SlabKey) -> Option<&UdpFlow> {
        self.flows.get(key)
    }

    pub(super) fn keys_where(&self, condition: impl Fn(&UdpFlow) -> bool) -> Vec<SlabKey> {
        self.flows.keys_where(condition)
    }

    /// The one that was used least recently.
    pub(super) fn oldest(&self) -> Option<SlabKey> {
        self.oldest
    }

    pub(super) fn insert(&mut self, flow: UdpFlow) -> SlabKey {
        flow.service.counters.opened();
        flow.target.counters.opened();
        let key = self.flows.insert(flow);
        self.append(key);
        key
    }

    /// Notes that a flow was used.
    pub(super) fn touch(&mut self, key: SlabKey, now: Instant) {
        if let Some(flow) = self.flows.get_mut(key) {
            flow.used = now;
            if self.newest != Some(key) {
                self.unlink(key);
                self.append(key);
            }
        }
    }

    pub(super) fn remove(&mut self, key: SlabKey) -> Option<UdpFlow> {
        self.unlink(key);
        let flow = self.flows.remove(key)?;
        flow.service.counters.closed();
        flow.target.counters.closed();
        Some(flow)
    }

    fn append(&mut self, key: SlabKey) {
        let older = self.newest.replace(key);
        if let Some(flow) = self.flows.get_mut(key) {
            flow.older = older;
            flow.newer = None;
        }
        match older.and_then(|older| self.flows.get_mut(older)) {
            Some(older) => older.newer = Some(key),
            None => self.oldest = Some(key),
        }
    }

    fn unlink(&mut self, key: SlabKey) {
        let Some(flow) = self.flows.get(key) else {
            return;
        };
        let (older, newer) = (flow.older, flow.newer);
        match older.and_then(|older| self.flows.get_mut(older)) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
        match newer.and_then(|newer| self.flows.get_mut(newer)) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::userspace::Protocol;
    use std::time::Duration;

    fn flow(port: u16) -> UdpFlow {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let service = ServiceState::new("test".to_owned(), Protocol::Udp, Duration::from_secs(1));
        let target = Target::new(address);
        let peer = Peer {
            client: address,
            local: None,
        };
        let anything = SlabKey::unpack(0);
        let now = Instant::now();
        UdpFlow::new(socket, service.into(), target.into(), anything, peer, now)
    }

    /// All flows, oldest first.
    fn order(flows: &Flows) -> Vec<u16> {
        let mut order = Vec::new();
        let mut at = flows.oldest();
        while let Some(flow) = at.and_then(|key| flows.get(key)) {
            order.push(flow.peer.client.port());
            at = flow.newer;
        }
        order
    }

    #[test]
    fn flows_are_in_order_of_use() {
        let mut flows = Flows::new(4);
        let keys: Vec<SlabKey> = (1..=4).map(|port| flows.insert(flow(port))).collect();
        assert!(flows.is_full());
        assert_eq!(order(&flows), [1, 2, 3, 4]);
        let now = Instant::now();
        flows.touch(keys[0], now);
        flows.touch(keys[2], now);
        flows.touch(keys[2], now);
        assert_eq!(order(&flows), [2, 4, 1, 3]);
        for (place, left) in [
            (3, vec![2, 1, 3]),
            (2, vec![2, 1]),
            (1, vec![1]),
            (0, vec![]),
        ] {
            flows.remove(keys[place]);
            flows.remove(keys[place]);
            assert_eq!(order(&flows), left);
        }
        flows.insert(flow(5));
        assert_eq!(order(&flows), [5]);
    }
}
