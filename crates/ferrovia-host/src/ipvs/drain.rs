//! Destinations that get no new connections and stay until the old ones are done.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use ferrovia_core::dialect::ipvs::{DestinationRemoval, IpvsOp, VirtualServerKey};

use super::encode::IpvsAction;
use super::{Error, Ipvs};

/// When the first look is taken: many have no connections, and closing ones take a moment.
const SOONEST: Duration = Duration::from_secs(1);
/// How long it takes at most from one look to the next. Connections last for hours; each look costs a question for each server.
const LATEST: Duration = Duration::from_secs(60);

/// Destinations that are draining, by server.
#[derive(Debug)]
pub(super) struct Drain {
    draining: BTreeMap<VirtualServerKey, BTreeSet<SocketAddr>>,
    /// How long to wait until the next look.
    pause: Duration,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            draining: BTreeMap::new(),
            pause: SOONEST,
        }
    }
}

impl Drain {
    /// Takes note of changes that were sent, whether the kernel took all of them or not: what is not there is found out by the next look.
    pub(super) fn note(&mut self, ops: &[IpvsOp]) {
        for op in ops {
            match *op {
                IpvsOp::PutServer(_) => {}
                IpvsOp::DeleteServer(key) => drop(self.draining.remove(&key)),
                IpvsOp::PutDestination(key, to) => self.forget(&key, to.address),
                IpvsOp::RemoveDestination {
                    server,
                    destination,
                    removal: DestinationRemoval::AtOnce,
                } => self.forget(&server, destination),
                IpvsOp::RemoveDestination {
                    server,
                    destination,
                    removal: DestinationRemoval::Drain,
                } => {
                    let all = self.draining.entry(server).or_default();
                    if all.insert(destination) {
                        self.pause = SOONEST;
                    }
                }
            }
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.draining.values().map(BTreeSet::len).sum()
    }

    /// How long to wait until the next look; `None` if nothing is draining.
    pub(super) fn pause(&self) -> Option<Duration> {
        (!self.draining.is_empty()).then_some(self.pause)
    }

    /// Removes those whose connections are done, and forgets those that another process removed or took back into service. Returns how
    /// many it removed.
    pub(super) fn reap(&mut self, ipvs: &mut Ipvs) -> Result<usize, Error> {
        let before = self.len();
        let mut done = Vec::new();
        for (server, draining) in &mut self.draining {
            let found = ipvs.destinations(server)?;
            draining.retain(|address| {
                found
                    .iter()
                    .any(|one| one.address == *address && one.weight == 0)
            });
            let is_done = |address: &&SocketAddr| {
                found
                    .iter()
                    .any(|one| one.address == **address && one.active == 0 && one.inactive == 0)
            };
            done.extend(draining.iter().filter(is_done).map(|to| (*server, *to)));
        }
        let result = self.remove(ipvs, &done);
        self.draining.retain(|_, all| !all.is_empty());
        self.pause = match self.len() < before {
            true => SOONEST,
            false => (self.pause * 2).min(LATEST),
        };
        result
    }

    fn remove(
        &mut self,
        ipvs: &mut Ipvs,
        done: &[(VirtualServerKey, SocketAddr)],
    ) -> Result<usize, Error> {
        let delete =
            |(server, to): &(_, _)| ipvs.command(IpvsAction::DeleteDestination(*server, *to));
        let commands: Vec<_> = done.iter().map(delete).collect();
        let refused: BTreeMap<_, _> = ipvs.request(&commands)?.into_iter().collect();
        let mut failure = None;
        for (at, (server, destination)) in done.iter().enumerate() {
            match refused.get(&at) {
                Some(refusal) if !matches!(refusal.errno, libc::ENOENT | libc::ESRCH) => {
                    failure.get_or_insert_with(|| Error::Drained {
                        server: *server,
                        destination: *destination,
                        refusal: refusal.clone(),
                    });
                }
                _ => self.forget(server, *destination),
            }
        }
        failure.map_or(Ok(done.len() - refused.len()), Err)
    }

    fn forget(&mut self, server: &VirtualServerKey, destination: SocketAddr) {
        if let Some(all) = self.draining.get_mut(server) {
            all.remove(&destination);
            if all.is_empty() {
                self.draining.remove(server);
            }
        }
    }
}
