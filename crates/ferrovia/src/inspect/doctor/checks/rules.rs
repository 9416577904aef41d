//! Rules of others that packets meet before ours, or beside them.
//!
//! In the kernel a chain that accepts a packet only speaks for itself, but one that drops it speaks for all; and of the chains that
//! translate addresses at one point, the first to do so has decided. So what can shadow us are refusals anywhere on the way, translations that
//! come before ours, and packets that are not tracked at all.

use std::collections::BTreeSet;

use ferrovia_core::dialect::nft::HookPoint;
use ferrovia_host::survey::chains::HookedChain;

use super::super::facts::Facts;
use super::super::finding::{Area, Finding, In, Severity};
use super::super::owners::{Owner, described, owners};
use super::some_of;

const RULES: In = In(Area::Rules);
/// Where we send connections to endpoints.
const OUR_TRANSLATION: i32 = -100;
/// How many chains are named.
const MOST: usize = 4;

/// A chain of somebody else's.
struct Foreign<'f> {
    chain: &'f HookedChain,
    owners: BTreeSet<Owner>,
}

impl Foreign<'_> {
    fn is_at(&self, points: &[HookPoint]) -> bool {
        points.contains(&self.chain.point)
    }

    /// Nobody knows whose it is, and it sees packets before we do.
    fn is_unknown_and_first(&self) -> bool {
        self.owners.is_empty() && self.chain.priority < OUR_TRANSLATION
    }

    /// The cluster's network has rules here, and knows what it does.
    fn has_network(&self) -> bool {
        let mut owners = self.owners.iter();
        owners.any(|owner| matches!(owner, Owner::Network(_)))
    }
}

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let foreign: Vec<Foreign<'_>> = facts
        .chains
        .iter()
        .map(|chain| Foreign {
            chain,
            owners: owners(chain),
        })
        .filter(|foreign| is_foreign(facts, foreign))
        .collect();
    let findings = [
        forward(&foreign),
        input(&foreign),
        untracked(&foreign),
        translated(&foreign),
        early(&foreign),
        firewalls(facts, &foreign),
    ];
    let mut findings: Vec<_> = findings.into_iter().flatten().collect();
    if findings.is_empty() && !facts.chains.is_empty() {
        findings.push(RULES.ok("rules/none", "no rules of others stand in the way of ours"));
    }
    findings
}

/// Not our own, nor a proxy's, of which another check speaks. In some modes our rules accept forwarded packets of Services.
fn is_foreign(facts: &Facts, foreign: &Foreign<'_>) -> bool {
    let proxies = [Owner::Ferrovia, Owner::KubeProxy, Owner::Kubelet];
    let only_proxies =
        !foreign.owners.is_empty() && foreign.owners.iter().all(|owner| proxies.contains(owner));
    let mode = facts.mode.map(|mode| mode.properties());
    let lets_pass = mode.is_some_and(|mode| mode.accepts_forwarded_packets)
        && foreign.owners.contains(&Owner::KubeProxy)
        && foreign.chain.point == HookPoint::Forward;
    // The policy of a chain is nobody's: it may have been made by the proxy and set by somebody else.
    (!only_proxies || foreign.chain.refuses_rest) && !lets_pass
}

/// The chains among them that a check is about.
fn chosen<'a, 'f>(
    foreign: &'a [Foreign<'f>],
    wanted: impl Fn(&Foreign<'f>) -> bool,
) -> Vec<&'a Foreign<'f>> {
    foreign.iter().filter(|foreign| wanted(foreign)).collect()
}

fn names(chains: &[&Foreign<'_>]) -> String {
    let names: Vec<_> = chains
        .iter()
        .map(|foreign| described(foreign.chain, &foreign.owners))
        .collect();
    some_of(&names, MOST)
}

fn forward(foreign: &[Foreign<'_>]) -> Option<Finding> {
    let refusing = chosen(foreign, |foreign| {
        foreign.is_at(&[HookPoint::Forward]) && foreign.chain.refuses_rest
    });
    let has_network = refusing.iter().all(|foreign| foreign.has_network());
    let severity = if has_network {
        Severity::Note
    } else {
        Severity::Warning
    };
    (!refusing.is_empty()).then(|| {
        RULES.finding(
            severity,
            "rules/forward",
            format!("forwarded packets are refused unless a rule lets them pass: {}", names(&refusing)),
            "Connections to pods are forwarded. The iptables mode of kube-proxy lets those of Services pass by itself; the nftables mode leaves that to the firewall and to the cluster's network.",
            if has_network {
                "The cluster's network has rules there; nothing to do if pods reach each other."
            } else {
                "Let the firewall pass packets from and to the pods' addresses, or set its policy for forwarded packets to accept."
            },
        )
    })
}

fn input(foreign: &[Foreign<'_>]) -> Option<Finding> {
    let refusing = chosen(foreign, |foreign| {
        foreign.is_at(&[HookPoint::Input]) && foreign.chain.refuses_rest
    });
    (!refusing.is_empty()).then(|| {
        RULES.note(
            "rules/input",
            format!("packets to this node are refused unless a rule lets them pass: {}", names(&refusing)),
            "Pods with the node's own network and the ports load balancers ask for health (healthCheckNodePort) are reached this way.",
            "Open these ports in the firewall.",
        )
    })
}

fn untracked(foreign: &[Foreign<'_>]) -> Option<Finding> {
    let untracking = chosen(foreign, |foreign| {
        foreign.is_at(&[HookPoint::Prerouting, HookPoint::Output]) && foreign.chain.effects.untracks
    });
    let severity = if untracking.iter().all(|foreign| foreign.has_network()) {
        Severity::Note
    } else {
        Severity::Warning
    };
    (!untracking.is_empty()).then(|| {
        RULES.finding(
            severity,
            "rules/untracked",
            format!("some packets are kept from being tracked: {}", names(&untracking)),
            "What is not tracked cannot be sent to an endpoint; if packets to Services are among them, these do not work.",
            "See that no such rule matches addresses of Services or node ports.",
        )
    })
}

fn translated(foreign: &[Foreign<'_>]) -> Option<Finding> {
    let translating = chosen(foreign, |foreign| {
        foreign.is_at(&[HookPoint::Prerouting, HookPoint::Output])
            && foreign.chain.effects.translates_destination
            && foreign.chain.priority <= OUR_TRANSLATION
    });
    let severity = if translating
        .iter()
        .any(|foreign| foreign.is_unknown_and_first())
    {
        Severity::Warning
    } else {
        Severity::Note
    };
    (!translating.is_empty()).then(|| {
        RULES.finding(
            severity,
            "rules/translated",
            format!("others send connections elsewhere too, at our place or before it: {}", names(&translating)),
            "Of two rules for the same address and port, the first to see a connection has it. Published ports of containers can take node ports this way.",
            "See that no port they use is a node port or the port of an external address.",
        )
    })
}

fn early(foreign: &[Foreign<'_>]) -> Option<Finding> {
    let refusing = chosen(foreign, |foreign| {
        let before = foreign.is_at(&[HookPoint::Prerouting]) || foreign.is_at(&[HookPoint::Output]);
        before
            && !foreign.chain.is_nat
            && foreign.chain.effects.refuses
            && foreign.chain.priority < 0
    });
    (!refusing.is_empty()).then(|| {
        RULES.note(
            "rules/early",
            format!("some packets are refused before they reach our rules: {}", names(&refusing)),
            "If these rules match packets to Services, the Services seem dead although our rules are right.",
            "If a Service does not answer, look at the counters of these rules.",
        )
    })
}

fn firewalls(facts: &Facts, foreign: &[Foreign<'_>]) -> Option<Finding> {
    let by_rules = foreign.iter().flat_map(|foreign| &foreign.owners);
    let mut active: BTreeSet<&str> = by_rules
        .filter(|owner| matches!(owner, Owner::Firewall(_)))
        .map(|owner| owner.name())
        .collect();
    let mut processes = facts.processes.iter();
    if processes.any(|process| process.name == "firewalld") {
        active.insert("firewalld");
    }
    active.remove("fail2ban");
    let active: Vec<&str> = active.into_iter().collect();
    (!active.is_empty()).then(|| {
        RULES.note(
            "rules/firewall",
            format!("{} is active on this node", active.join(" and ")),
            "Its rules are in force beside ours: what it refuses stays refused, whatever we accept. When it reloads, it may remove iptables rules of others, but not our nftables tables.",
            "Put the pods' interfaces or addresses into a zone that accepts (firewalld: trusted), or allow routed traffic (ufw: ufw default allow routed).",
        )
    })
}

#[cfg(test)]
mod tests;
