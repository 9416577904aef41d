//! In which order the changes of a batch are sent.
//!
//! What is to be made comes first, and what goes follows when all of that is there: the kernel does not have "make or change" in one, so
//! what turns out to be there already is tried a second time, and by then a service's last other destination must not be gone. Where a batch
//! both makes and removes one thing it is cut between the two, and its parts are sent one after the other.

use std::collections::HashMap;
use std::net::SocketAddr;

use ferrovia_core::dialect::ipvs::{IpvsOp, VirtualServerKey};

/// A server, or one of its destinations.
type Thing = (VirtualServerKey, Option<SocketAddr>);

/// The change makes something go.
pub(super) fn is_removal(op: &IpvsOp) -> bool {
    matches!(
        op,
        IpvsOp::DeleteServer(_) | IpvsOp::RemoveDestination { .. }
    )
}

/// Where a batch is cut so that no part of it both makes and removes something: before the changes at these places.
pub(super) fn cuts(ops: &[IpvsOp]) -> Vec<usize> {
    let mut cuts = Vec::new();
    let removals = ops.iter().filter(|op| is_removal(op)).count();
    if removals == 0 || removals == ops.len() {
        return cuts;
    }
    // What this part has made or removed so far.
    let mut is_removed: HashMap<Thing, bool> = HashMap::new();
    for (at, op) in ops.iter().enumerate() {
        let things = things(op);
        let is_other = |thing| is_removed.get(thing) == Some(&!is_removal(op));
        if things.iter().flatten().any(is_other) {
            is_removed.clear();
            cuts.push(at);
        }
        let things = things.into_iter().flatten();
        is_removed.extend(things.map(|thing| (thing, is_removal(op))));
    }
    cuts
}

/// What a change makes or removes. A destination needs its server to be made; that it goes means nothing to its server.
fn things(op: &IpvsOp) -> [Option<Thing>; 2] {
    match *op {
        IpvsOp::PutServer(server) => [Some((server.key, None)), None],
        IpvsOp::DeleteServer(key) => [Some((key, None)), None],
        IpvsOp::PutDestination(key, to) => [Some((key, None)), Some((key, Some(to.address)))],
        IpvsOp::RemoveDestination {
            server,
            destination,
            ..
        } => [Some((server, Some(destination))), None],
    }
}

#[cfg(test)]
mod tests {
    use ferrovia_core::dialect::ipvs::{
        DestinationRemoval, IpvsDestination, Scheduler, VirtualServer,
    };
    use ferrovia_core::model::Protocol;

    use super::*;

    fn key(last: u8) -> VirtualServerKey {
        VirtualServerKey {
            address: [10, 96, 0, last].into(),
            port: 80,
            protocol: Protocol::Tcp,
        }
    }

    fn server(last: u8) -> IpvsOp {
        IpvsOp::PutServer(VirtualServer {
            key: key(last),
            scheduler: Scheduler::RR,
            flags: 0,
            persistence: None,
        })
    }

    fn to(last: u8) -> SocketAddr {
        ([10, 244, 1, last], 8080).into()
    }

    fn put(of: u8, last: u8) -> IpvsOp {
        let address = to(last);
        IpvsOp::PutDestination(key(of), IpvsDestination { address, weight: 1 })
    }

    fn remove(of: u8, last: u8) -> IpvsOp {
        IpvsOp::RemoveDestination {
            server: key(of),
            destination: to(last),
            removal: DestinationRemoval::Drain,
        }
    }

    #[test]
    fn what_planners_say_is_not_cut() {
        let ops = [server(1), put(1, 1), remove(1, 2), put(2, 2), remove(2, 1)];
        let gone = [remove(1, 1), IpvsOp::DeleteServer(key(1)), server(2)];
        for whole in [&ops[..], &ops[..2], &gone, &[]] {
            assert_eq!(cuts(whole), [0; 0]);
        }
    }

    #[test]
    fn a_batch_is_cut_where_it_changes_its_mind() {
        assert_eq!(cuts(&[put(1, 1), remove(1, 1), put(1, 1)]), [1, 2]);
        let recreated = [
            put(1, 1),
            IpvsOp::DeleteServer(key(1)),
            server(1),
            put(1, 1),
        ];
        assert_eq!(cuts(&recreated), [1, 2]);
    }
}
