//! Service frontends on addresses of this node: they take precedence over node ports of the same number.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use crate::desired::{Delta, Desired, NodeRules, ServicePort};
use crate::model::Protocol;

/// External and load balancer frontends whose address is one of the node's. Usually empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeAddressFrontends(BTreeSet<(SocketAddr, Protocol)>);

impl NodeAddressFrontends {
    /// Those of all service ports.
    pub(super) fn of(desired: &Desired) -> Self {
        let ports = desired.ports.values();
        let all = ports.flat_map(|port| listed(port, &desired.node));
        Self(all.collect())
    }

    /// The set after a delta. Work is proportional to the delta, unless there is no previous set or the node's addresses changed.
    pub(super) fn after(
        before: Option<(&Self, &NodeRules)>,
        desired: &Desired,
        delta: &Delta,
    ) -> Self {
        let node = &desired.node;
        let Some((Self(before), _)) = before.filter(|(_, old)| old.addresses == node.addresses)
        else {
            return Self::of(desired);
        };
        let mut all = before.clone();
        let old = delta.ports.iter().filter_map(|change| change.old.as_ref());
        for gone in old.flat_map(|port| listed(port, node)) {
            all.remove(&gone);
        }
        // Another port may take over a frontend.
        let new = delta.ports.iter().filter_map(|change| change.new.as_ref());
        all.extend(new.flat_map(|port| listed(port, node)));
        Self(all)
    }

    /// A Service has a frontend at this address and port.
    pub(super) fn has(&self, at: SocketAddr, protocol: Protocol) -> bool {
        self.0.contains(&(at, protocol))
    }
}

/// The frontends of a service port at addresses of the node.
fn listed<'a>(
    port: &'a ServicePort,
    node: &'a NodeRules,
) -> impl Iterator<Item = (SocketAddr, Protocol)> + 'a {
    let addresses = port.frontends.iter().filter_map(|f| f.address());
    let own = addresses.filter(|at| node.addresses.contains(&at.ip()));
    own.map(|at| (at, port.protocol()))
}
