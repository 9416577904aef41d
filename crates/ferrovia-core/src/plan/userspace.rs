//! The userspace mode: this process proxies every service port, and portals lead its clients there.
//!
//! A portal is either a set of rules (`portals.rs`, in the chains of `chains.rs`) or a listener on the service's own addresses (`bind_portals.rs`, where
//! `client_filter.rs` filters clients). `proxy.rs` describes a proxy, `full.rs` compares the desired with the observed state, `writer.rs` orders rules.
//! `localhost.rs` is for other modes: node ports on loopback. `windows.rs` has the commands that add addresses to an interface on Windows.
//! Opening sockets and moving bytes is left to the host crate. This file is the planner.
//!
//! A service port's rules follow from the port and the node's settings alone, and so do its proxies; nothing that was written is remembered.
//! Rules name a proxy's port, whose number is known when it is open. Rules do not depend on endpoints: as long as there is
//! one, no rule changes.
//!
//! A plan is applied in this order: addresses and proxies are added, rules are written, proxies and addresses are removed. So no rule ever leads to a
//! port that is closed.

mod bind_portals;
mod chains;
mod client_filter;
mod context;
mod full;
pub mod localhost;
mod portals;
mod proxy;
#[cfg(test)]
mod tests;
pub mod windows;
mod writer;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::net::IpAddr;

use self::chains::PortalChain;
pub use self::chains::{is_portal_chain, is_portal_or_egress_chain};
pub use self::client_filter::{ClientFilter, ClientSources};
use self::context::UserspaceContext;
pub use self::context::{PortalMode, UserspaceOptions};
use self::portals::Portal;
pub use self::proxy::{ProxyChange, ProxyListen, ProxyName, ProxySpec};
use self::writer::UserspaceWriter;
use super::node_address_frontends::NodeAddressFrontends;
use super::{ObservedPolicy, Plan, Planner};
use crate::desired::{Delta, Desired, ServicePort};
use crate::dialect::iptables::Restore;
use crate::family::Family;

/// The observed state of the kernel and of this process.
#[derive(Clone, Debug, Default)]
pub struct UserspaceObserved {
    /// What the saving tool printed; empty where no rules are written.
    pub save: String,
    /// The proxies that are open, with the port that rules lead to.
    pub open: BTreeMap<ProxyName, Option<u16>>,
    /// The addresses on the interface that are ours to remove.
    pub addresses: Vec<IpAddr>,
}

/// A plan of the userspace mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserspacePlan {
    /// Addresses that the interface gets.
    pub new_addresses: Vec<IpAddr>,
    /// Proxies that are opened, changed and closed.
    pub proxies: Vec<ProxyChange>,
    /// The rules that lead to them.
    pub rules: Restore,
    /// Addresses that the interface loses.
    pub old_addresses: Vec<IpAddr>,
    notes: Vec<String>,
}

impl UserspacePlan {
    pub fn is_empty(&self) -> bool {
        self.new_addresses.is_empty()
            && self.proxies.is_empty()
            && self.rules.is_empty()
            && self.old_addresses.is_empty()
    }
}

impl Plan for UserspacePlan {
    fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl fmt::Display for UserspacePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ip in &self.new_addresses {
            writeln!(f, "add address {ip}")?;
        }
        let closes = |change: &&ProxyChange| matches!(change, ProxyChange::Close(_));
        for change in self.proxies.iter().filter(|change| !closes(change)) {
            change.fmt(f)?;
        }
        self.rules.fmt(f)?;
        for change in self.proxies.iter().filter(closes) {
            change.fmt(f)?;
        }
        for ip in &self.old_addresses {
            writeln!(f, "remove address {ip}")?;
        }
        Ok(())
    }
}

/// Plans one family's proxies and portals.
#[derive(Debug)]
pub struct UserspacePlanner {
    family: Family,
    options: UserspaceOptions,
    /// The context of the last plan.
    context: Option<UserspaceContext>,
    /// How many service ports use an address on the interface.
    claims: BTreeMap<IpAddr, usize>,
}

impl UserspacePlanner {
    /// A planner that needs a full plan first.
    pub fn new(family: Family, options: UserspaceOptions) -> Self {
        Self {
            family,
            options,
            context: None,
            claims: BTreeMap::new(),
        }
    }

    fn uses_bind_portals(&self) -> bool {
        self.options.portals == PortalMode::Bind
    }
}

impl Planner for UserspacePlanner {
    type Observed = UserspaceObserved;
    type Plan = UserspacePlan;

    fn full(
        &mut self,
        desired: &Desired,
        observed: &UserspaceObserved,
        found: ObservedPolicy,
    ) -> UserspacePlan {
        let node_address_frontends = self
            .uses_bind_portals()
            .then(|| NodeAddressFrontends::of(desired));
        let context = self.context_with(desired, node_address_frontends.unwrap_or_default());
        let mut plan = if self.uses_bind_portals() {
            self.full_bind_portals(desired, observed, &context)
        } else {
            full::portals(desired, observed, found, &context)
        };
        // Reported once, not with every full plan.
        if self.context.replace(context).is_none() {
            let ports = desired.ports.values();
            plan.notes = ports.filter_map(|port| note(port)).collect();
        }
        plan
    }

    fn incremental(&mut self, desired: &Desired, delta: &Delta) -> UserspacePlan {
        let new = self.context_with(desired, self.node_address_frontends(desired, delta));
        let old = self.context.take().unwrap_or_else(|| new.clone());
        let mut states: Vec<PortTransition<'_>> = Vec::new();
        if old != new {
            let touched: HashSet<_> = delta.ports.iter().map(|change| &change.key).collect();
            let others = desired.ports.values();
            let others = others.filter(|port| !touched.contains(&port.key));
            states.extend(others.map(|port| (Some(&**port), Some(&**port))));
        }
        let changed = delta.ports.iter();
        states.extend(changed.map(|change| (change.old.as_deref(), change.new.as_deref())));
        let mut plan = if self.uses_bind_portals() {
            self.change_bind_portals(&states, &old, &new)
        } else {
            change_portals(&states, &old, &new)
        };
        let news = delta.ports.iter().filter_map(|change| change.new.as_ref());
        plan.notes = news.filter_map(|port| note(port)).collect();
        self.context = Some(new);
        plan
    }

    fn deferred_removals(&mut self) -> UserspacePlan {
        UserspacePlan::default()
    }
}

/// A service port before and after.
type PortTransition<'a> = (Option<&'a ServicePort>, Option<&'a ServicePort>);

impl UserspacePlanner {
    fn context_with(
        &self,
        desired: &Desired,
        node_address_frontends: NodeAddressFrontends,
    ) -> UserspaceContext {
        UserspaceContext::new(
            self.family,
            self.options,
            &desired.node,
            node_address_frontends,
        )
    }

    /// What Services have at the node's addresses after a change.
    fn node_address_frontends(&self, desired: &Desired, delta: &Delta) -> NodeAddressFrontends {
        if !self.uses_bind_portals() {
            return NodeAddressFrontends::default();
        }
        let before = self
            .context
            .as_ref()
            .map(|old| (&old.node_address_frontends, &old.node));
        NodeAddressFrontends::after(before, desired, delta)
    }

    fn full_bind_portals(
        &mut self,
        desired: &Desired,
        observed: &UserspaceObserved,
        context: &UserspaceContext,
    ) -> UserspacePlan {
        self.claims.clear();
        let mut plan = UserspacePlan::default();
        for port in desired.ports.values() {
            for ip in bind_portals::addresses(port) {
                *self.claims.entry(ip).or_default() += 1;
            }
            let proxies = bind_portals::proxies(port, context);
            plan.proxies
                .extend(proxies.into_iter().map(ProxyChange::Set));
        }
        full::close_others(&mut plan, observed);
        let there: HashSet<_> = observed.addresses.iter().collect();
        let wanted = self.claims.keys();
        plan.new_addresses = wanted.filter(|ip| !there.contains(ip)).copied().collect();
        let found = observed.addresses.iter();
        plan.old_addresses = found
            .filter(|ip| !self.claims.contains_key(ip))
            .copied()
            .collect();
        plan
    }

    fn change_bind_portals(
        &mut self,
        states: &[PortTransition<'_>],
        old: &UserspaceContext,
        new: &UserspaceContext,
    ) -> UserspacePlan {
        let mut plan = UserspacePlan::default();
        let mut touched = BTreeMap::new();
        for (before, after) in states {
            let proxies = |port: Option<&ServicePort>, context| {
                port.map_or_else(Vec::new, |port| bind_portals::proxies(port, context))
            };
            plan.proxies
                .extend(proxy::changes(&proxies(*before, old), proxies(*after, new)));
            for ip in after.iter().flat_map(|port| bind_portals::addresses(port)) {
                let claims = self.claims.entry(ip).or_default();
                touched.entry(ip).or_insert(*claims);
                *claims += 1;
            }
            for ip in before.iter().flat_map(|port| bind_portals::addresses(port)) {
                let claims = self.claims.entry(ip).or_default();
                touched.entry(ip).or_insert(*claims);
                *claims = claims.saturating_sub(1);
            }
        }
        for (ip, before) in touched {
            let now = self.claims.get(&ip).copied().unwrap_or_default();
            if now == 0 {
                self.claims.remove(&ip);
            }
            match (before, now) {
                (0, 1..) => plan.new_addresses.push(ip),
                (1.., 0) => plan.old_addresses.push(ip),
                _ => {}
            }
        }
        plan
    }
}

/// A note about what this mode does not support.
fn note(port: &ServicePort) -> Option<String> {
    (!proxy::is_proxied(port)).then(|| {
        let protocol = port.protocol();
        format!(
            "{}: the userspace mode does not support {protocol}; connections are refused",
            port.key
        )
    })
}

/// What changes in the portals of some service ports, and in the ways there if the node's settings are others.
fn change_portals(
    states: &[PortTransition<'_>],
    old: &UserspaceContext,
    new: &UserspaceContext,
) -> UserspacePlan {
    let mut plan = UserspacePlan::default();
    let mut writer = UserspaceWriter::default();
    if old != new {
        writer.change_jumps(old, new);
    }
    for (before, after) in states {
        let before = before.map_or_else(Portal::default, |port| Portal::of(port, old));
        let after = after.map_or_else(Portal::default, |port| Portal::of(port, new));
        for chain in PortalChain::ALL {
            writer.replace(chain, &before.rules(chain), &after.rules(chain));
        }
        plan.proxies
            .extend(proxy::changes(&before.proxies, after.proxies));
    }
    plan.rules = writer.finish();
    plan
}
