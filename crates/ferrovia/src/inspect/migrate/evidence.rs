//! What the kernel shows of how a node is used now. Only read.

use ferrovia_core::dialect::nft::HookPoint;
use ferrovia_host::iptables::{AcctCounter, AcctCounters, Backend, saved};
use ferrovia_host::nft::Nft;
use ferrovia_host::survey::chains::{HookedChain, of_saved};

use super::hooks;
use crate::inspect::doctor::owners::{Owner, described, owners};

/// What was seen; none where it could not be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Connections to node ports on 127.0.0.1 that the old rules counted.
    pub localhost_packets: Option<u64>,
    /// Packets that the old rules dropped because they fit into no connection.
    pub invalid_packets: Option<u64>,
    /// Chains that refuse forwarded packets which no rule lets pass.
    pub forward_refused: Option<Vec<String>>,
    /// Chains that do so with packets to the node itself.
    pub input_refused: Option<Vec<String>>,
    /// Rules of others that use kube-proxy's chains.
    pub hooks: Vec<String>,
}

/// Looks at this node, in the network namespace of this thread. Changes nothing.
pub fn gather() -> Evidence {
    let mut evidence = Evidence::default();
    if let Ok(mut counters) = AcctCounters::open() {
        evidence.localhost_packets = counters.packets(AcctCounter::Localhost).ok();
        evidence.invalid_packets = counters.packets(AcctCounter::Invalid).ok();
    }
    // Whoever may not read the kernel's rules may not run the tools either.
    let Ok(mut chains) = Nft::open().and_then(|mut nft| nft.hooked_chains()) else {
        return evidence;
    };
    for ruleset in saved() {
        let Ok(text) = &ruleset.text else {
            continue;
        };
        if ruleset.backend == Backend::Legacy {
            chains.extend(of_saved(ruleset.family, text));
        }
        evidence.hooks.extend(hooks::hooks(&ruleset.tool, text));
    }
    evidence.forward_refused = Some(refusing(&chains, HookPoint::Forward));
    evidence.input_refused = Some(refusing(&chains, HookPoint::Input));
    evidence
}

/// Chains that refuse what is not allowed, where the cluster's network has no rules of its own to allow it.
fn refusing(chains: &[HookedChain], point: HookPoint) -> Vec<String> {
    let chains = chains.iter();
    chains
        .filter(|chain| chain.point == point && chain.refuses_rest)
        .map(|chain| (chain, owners(chain)))
        .filter(|(_, owners)| {
            !owners
                .iter()
                .any(|owner| matches!(owner, Owner::Network(_)))
        })
        .map(|(chain, owners)| described(chain, &owners))
        .collect()
}
