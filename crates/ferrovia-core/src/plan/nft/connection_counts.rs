//! Counting connections and refusals, and reading the counts back.
//!
//! Maps that services are written to have no counters: making one for every element would take the kernel as long as making the elements.
//! Instead, the first packet of a connection counts itself, in a set that packets fill, under what it was addressed to and where it went.
//! So the counts do not depend on slots, survive a restart, and cost nothing for unused services.

use std::collections::HashMap;

use super::adopt::target;
use super::base_chains::NftChainRules;
use super::layout::{
    NftSetId, chain, connection_key, original_node_port_key, original_service_key, service_key,
};
use super::slots::SlotTarget;
pub use super::view::PacketDestination;
use super::view::{FrontendPath, KernelFrontend, ServiceTableView, destination};
use crate::desired::{NodePortAddresses, NodeRules};
use crate::dialect::nft::{
    ChainKind, ElementKey, Field, Hook, HookPoint, NftChain, NftMatch, NftRule, Sense, SetUpdate,
    Statement,
};
use crate::model::Protocol;

/// Just before sources are translated. Of the chains at this point of a packet's way, the first that translates is the last that sees
/// the packet; a network plugin's would hide connections from us.
const BEFORE_SNAT: i32 = 99;

/// Seconds after its last update at which a count expires, so that those of removed endpoints make room.
const REMEMBERED: u32 = 24 * 60 * 60;

/// The chains that count connections.
///
/// Chains for translation see the first packet of a connection and no other, so established ones do not notice. They see it once:
/// about to leave this node or, for an endpoint in the node's own network, about to be delivered; not both, even over loopback.
pub(super) fn chains(node: &NodeRules) -> [NftChainRules; 4] {
    let hook = |name: &'static str, point| NftChainRules {
        chain: NftChain {
            name: name.into(),
            hook: Some(Hook {
                kind: ChainKind::Nat,
                point,
                priority: BEFORE_SNAT,
            }),
        },
        rules: vec![NftRule::always(Statement::Jump(chain::COUNTING.into()))],
    };
    [
        NftChainRules::plain(chain::COUNT, count_connection()),
        NftChainRules::plain(chain::COUNTING, counting(node)),
        hook("nat-input-count", HookPoint::Input),
        hook("nat-postrouting-count", HookPoint::Postrouting),
    ]
}

/// Finds out whether a connection was addressed to a service. Whatever else passes this node or is translated here is not counted: the
/// set must not fill with it.
///
/// A service's address and port are ours alone. A node port is only a number, which connections to any address may have, so of those only
/// connections count that were translated, and where node ports answer on some addresses only, that were made to one of these. (The
/// address they were made to cannot be looked up in the routing table: the kernel does that for the present destination only.)
fn counting(node: &NodeRules) -> Vec<NftRule> {
    let count = || Statement::Goto(chain::COUNT.into());
    let in_set = |original, set: NftSetId| NftMatch::InSet(original, set.name().into(), Sense::Is);
    let rules = Protocol::ALL.map(|protocol| {
        let service = NftRule::when(NftMatch::Protocol(protocol))
            .and(in_set(original_service_key(), NftSetId::Services));
        let node_port = NftRule::when(NftMatch::CtStatusDnat).and(NftMatch::Protocol(protocol));
        let node_port = match &node.node_ports {
            NodePortAddresses::Any => node_port,
            NodePortAddresses::Only(_) => {
                node_port.and(in_set(vec![Field::OriginalDaddr], NftSetId::NodePortIps))
            }
        };
        let node_port = node_port.and(in_set(original_node_port_key(), NftSetId::NodePorts));
        [service.then(count()), node_port.then(count())]
    });
    rules.into_iter().flatten().collect()
}

/// Here too a rule for each protocol, for the sake of the tool ([`Field::OriginalDport`]). A rule ends where the set is full, so only
/// connections that were not counted get to the last one. The daemon watches its counter.
fn count_connection() -> Vec<NftRule> {
    let rule = |protocol| {
        NftRule::when(NftMatch::Protocol(protocol))
            .then(count(NftSetId::Connections, connection_key()))
            .then(Statement::Return)
    };
    let no_room = NftRule::always(Statement::Counter).because("no room to count the connection");
    Protocol::ALL
        .map(rule)
        .into_iter()
        .chain([no_room])
        .collect()
}

/// Counts a packet that is about to be refused. In a rule of its own: where the set is full a rule ends, and must not take the refusal
/// with it.
pub(super) fn count_refusal() -> NftRule {
    NftRule::always(count(NftSetId::Refusals, service_key()))
}

fn count(set: NftSetId, key: Vec<Field>) -> Statement {
    Statement::Dynamic(SetUpdate::Count {
        set: set.name().into(),
        key,
        timeout: REMEMBERED,
    })
}

impl ServiceTableView {
    /// Adds what was counted, from the elements of the sets [`NftSetId::Connections`] and [`NftSetId::Refusals`].
    #[must_use]
    pub fn counted(
        mut self,
        connections: &[(ElementKey, u64)],
        refusals: &[(ElementKey, u64)],
    ) -> Self {
        let is_refused =
            |f: &KernelFrontend| matches!(f.path, FrontendPath::Rejected | FrontendPath::Dropped);
        let served = Index::of(&self.frontends, |f| !is_refused(f));
        let refused = Index::of(&self.frontends, is_refused);
        for (key, count) in connections {
            let Some((to, target)) = connection(key) else {
                continue;
            };
            if let Some(frontend) = served.find(&mut self.frontends, to) {
                let sum = frontend.connections.entry(target).or_default();
                *sum = sum.saturating_add(*count);
            }
        }
        for (key, count) in refusals {
            if let Some(frontend) =
                refusal(key).and_then(|to| refused.find(&mut self.frontends, to))
            {
                frontend.refused = frontend.refused.saturating_add(*count);
            }
        }
        self
    }
}

/// What refused packets were addressed to, from the key of an element of [`NftSetId::Refusals`].
pub fn refusal(key: &ElementKey) -> Option<PacketDestination> {
    destination(key.as_bytes())
}

/// What connections were addressed to and where they went, from the key of an element of [`NftSetId::Connections`].
pub fn connection(key: &ElementKey) -> Option<(PacketDestination, SlotTarget)> {
    let bytes = key.as_bytes();
    // An address and a port, then an address, a protocol and a port: the second part has four bytes more.
    let (went, addressed) = bytes.split_at_checked(bytes.len().checked_sub(4)? / 2)?;
    Some((destination(addressed)?, target(went)?))
}

/// Frontends by what packets to them are addressed to.
struct Index(HashMap<PacketDestination, usize>);

impl Index {
    fn of(frontends: &[KernelFrontend], wanted: impl Fn(&KernelFrontend) -> bool) -> Self {
        let places = frontends.iter().enumerate().filter(|(_, f)| wanted(f));
        Self(places.map(|(place, f)| (f.destination(), place)).collect())
    }

    /// The frontend that packets to a destination were for: an address of its own comes before a node port.
    fn find<'a>(
        &self,
        all: &'a mut [KernelFrontend],
        to: PacketDestination,
    ) -> Option<&'a mut KernelFrontend> {
        let node_port = PacketDestination {
            address: None,
            ..to
        };
        let place = self.0.get(&to).or_else(|| self.0.get(&node_port))?;
        all.get_mut(*place)
    }
}

#[cfg(test)]
mod tests;
