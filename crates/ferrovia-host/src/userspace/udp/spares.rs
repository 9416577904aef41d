//! Sockets of flows that are over, kept for a while for new flows to the same endpoint: clients that use a fresh port for each question,
//! as DNS clients do, would else cost a socket to be opened, connected and closed for each.

use std::collections::{HashMap, VecDeque};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// How long a socket is kept unused.
pub(super) const KEPT: Duration = Duration::from_secs(2);
/// How many a thread keeps at most.
pub(super) const MOST: usize = 1024;

/// A thread's spare sockets, by the endpoint they are connected to.
#[derive(Debug)]
pub(super) struct Spares {
    sockets: HashMap<SocketAddr, VecDeque<(Instant, UdpSocket)>>,
    count: usize,
    most: usize,
}

impl Spares {
    pub(super) fn new(most: usize) -> Self {
        Self {
            sockets: HashMap::new(),
            count: 0,
            most,
        }
    }

    /// Whether there are any.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Keeps a socket that is watched no longer; closes it if there are enough.
    pub(super) fn keep(&mut self, now: Instant, endpoint: SocketAddr, socket: UdpSocket) {
        if self.count < self.most {
            self.count += 1;
            let there = self.sockets.entry(endpoint).or_default();
            there.push_back((now, socket));
        }
    }

    /// A socket connected to this endpoint, the one that has been silent longest. One that received something after the end of its flow is closed.
    ///
    /// An answer that comes later still goes to the wrong client, which cannot distinguish it from a forged one. That is the same with ports that
    /// the system gives out again, and just as rare: the flow before had been silent for all of its time.
    pub(super) fn take(&mut self, endpoint: SocketAddr) -> Option<UdpSocket> {
        loop {
            let (_, socket) = self.sockets.get_mut(&endpoint)?.pop_front()?;
            self.count -= 1;
            // Anything but silence, and the socket is of no use.
            match socket.recv(&mut [0]) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    return Some(socket);
                }
                _ => {}
            }
        }
    }

    /// Closes those that have been unused for long enough.
    pub(super) fn expire(&mut self, now: Instant) {
        self.sockets.retain(|_, there| {
            let expired = there.partition_point(|(since, _)| *since + KEPT <= now);
            self.count -= there.drain(..expired).len();
            !there.is_empty()
        });
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> (UdpSocket, SocketAddr) {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        (server, address)
    }

    fn client(of: SocketAddr) -> (UdpSocket, SocketAddr) {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(of).unwrap();
        client.set_nonblocking(true).unwrap();
        let address = client.local_addr().unwrap();
        (client, address)
    }

    #[test]
    fn a_socket_is_given_out_once_and_for_its_endpoint_only() {
        let ((_one, first), (_other, second)) = (server(), server());
        let (socket, address) = client(first);
        let mut spares = Spares::new(3);
        spares.keep(Instant::now(), first, socket);
        assert!(spares.take(second).is_none());
        let taken = spares.take(first).unwrap();
        assert_eq!(taken.local_addr().unwrap(), address);
        assert!(spares.take(first).is_none());
        assert!(spares.is_empty());
    }

    #[test]
    fn socket_with_a_late_reply_is_closed() {
        let (server, endpoint) = server();
        let (late, address) = client(endpoint);
        let mut spares = Spares::new(3);
        spares.keep(Instant::now(), endpoint, late);
        server.send_to(b"late", address).unwrap();
        assert!(spares.take(endpoint).is_none());
        assert!(spares.is_empty());
    }

    #[test]
    fn none_is_kept_for_long_and_only_so_many_are() {
        let (_server, endpoint) = server();
        let (socket, _) = client(endpoint);
        let start = Instant::now();
        let mut spares = Spares::new(3);
        for _ in 0..2 {
            spares.keep(start, endpoint, socket.try_clone().unwrap());
        }
        let later = start + Duration::from_secs(1);
        for _ in 0..2 {
            spares.keep(later, endpoint, socket.try_clone().unwrap());
        }
        assert_eq!(spares.count, 3);
        spares.expire(start + KEPT);
        assert_eq!(spares.count, 1);
        spares.expire(later + KEPT);
        assert!(spares.is_empty() && spares.sockets.is_empty());
    }
}
