//! Addresses of this node that Services list as their own: there their ports go before node ports of the same number.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use crate::desired::{Delta, Desired, NodeRules, ServicePort};
use crate::model::Protocol;

/// What Services have at the node's addresses by listing them. There is little of it, if anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listed(BTreeSet<(SocketAddr, Protocol)>);

impl Listed {
    /// Of all service ports.
    pub(super) fn of(desired: &Desired) -> Self {
        let ports = desired.ports.values();
        let all = ports.flat_map(|port| listed(port, &desired.node));
        Self(all.collect())
    }

    /// The same after a change, with work for the change only, unless nothing is known of before or the node has other addresses now.
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
        // What one port gives up another may take.
        let new = delta.ports.iter().filter_map(|change| change.new.as_ref());
        all.extend(new.flat_map(|port| listed(port, node)));
        Self(all)
    }

    /// A Service has this address and port by listing it.
    pub(super) fn has(&self, at: SocketAddr, protocol: Protocol) -> bool {
        self.0.contains(&(at, protocol))
    }
}

/// What a service port has at addresses of the node.
fn listed<'a>(
    port: &'a ServicePort,
    node: &'a NodeRules,
) -> impl Iterator<Item = (SocketAddr, Protocol)> + 'a {
    let addresses = port.frontends.iter().filter_map(|f| f.address());
    let own = addresses.filter(|at| node.addresses.contains(&at.ip()));
    own.map(|at| (at, port.protocol()))
}
