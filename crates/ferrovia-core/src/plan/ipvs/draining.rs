//! Destinations that are on their way out.
//!
//! They stay in the kernel with weight 0 until their connections are done, so a full comparison finds them. Those whose removal has been
//! planned already are nothing new.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

use super::plan::Observed;
use crate::dialect::ipvs::{Op, Removal, ServerKey};

/// The destinations whose removal has been planned.
#[derive(Clone, Debug, Default)]
pub(super) struct Draining {
    known: BTreeSet<(ServerKey, SocketAddr)>,
}

impl Draining {
    /// A change tells nothing new: the destination is draining, and whoever removes it knows.
    pub(super) fn is_old_news(&self, op: &Op, observed: &Observed) -> bool {
        let Op::RemoveDestination {
            server,
            destination,
            ..
        } = op
        else {
            return false;
        };
        self.known.contains(&(*server, *destination))
            && weight(observed, server, destination) == Some(0)
    }

    /// Forgets those that are gone.
    pub(super) fn forget_gone(&mut self, observed: &Observed) {
        self.known
            .retain(|(server, destination)| weight(observed, server, destination) == Some(0));
    }

    /// Takes note of what is planned.
    pub(super) fn follow<'a>(&mut self, ops: impl Iterator<Item = &'a Op>) {
        for op in ops {
            match op {
                Op::PutServer(_) => {}
                Op::DeleteServer(server) => self.forget(server),
                Op::PutDestination(server, destination) => {
                    self.known.remove(&(*server, destination.address));
                }
                Op::RemoveDestination {
                    server,
                    destination,
                    removal: Removal::Drain,
                } => {
                    self.known.insert((*server, *destination));
                }
                Op::RemoveDestination { .. } => {}
            }
        }
    }

    /// Forgets those of a server. They lie side by side.
    fn forget(&mut self, server: &ServerKey) {
        let first = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let of_server = self.known.range((*server, first)..);
        let gone: Vec<_> = of_server
            .take_while(|(of, _)| of == server)
            .copied()
            .collect();
        for one in &gone {
            self.known.remove(one);
        }
    }
}

fn weight(observed: &Observed, server: &ServerKey, destination: &SocketAddr) -> Option<u32> {
    let (_, destinations) = observed.servers.get(server)?;
    destinations.get(destination).copied()
}
