//! The userspace mode: every service port is proxied by this process, and rules or addresses lead its clients there.
//!
//! `proxy.rs` says what a proxy is, `portals.rs` which rules lead to it and `chains.rs` which chains they are in; `bind.rs` does without
//! rules, on the service's own addresses, where `gate.rs` tells clients apart. `full.rs` compares everything with what is there, and
//! `writer.rs` puts rules into an order.
//! `localhost.rs` is for other modes: node ports on loopback. `windows.rs` has the commands that put addresses on an interface there. Opening
//! sockets and moving bytes is left to the host crate. This file is the planner.
//!
//! A service port's rules follow from the port and the node's settings alone, and so do its proxies; nothing that was written is remembered.
//! Rules name a proxy's port, whose number is known when it is open. Which endpoints there are is no matter of rules: as long as there is
//! one, no rule changes.
//!
//! A plan is carried out in this order: addresses and proxies come, rules are written, proxies and addresses go. So at no time does a rule lead to a
//! port that is closed.

mod bind;
mod chains;
mod context;
mod full;
mod gate;
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

use self::chains::Chain;
pub use self::chains::{is_portal_chain, is_portal_or_egress_chain};
use self::context::Context;
pub use self::context::{Portals, UserspaceOptions};
pub use self::gate::{Gate, Sources};
use self::portals::Portal;
pub use self::proxy::{Listen, Proxy, ProxyChange, ProxyName};
use self::writer::Writer;
use super::listed::Listed;
use super::{Found, Plan, Planner};
use crate::desired::{Delta, Desired, ServicePort};
use crate::dialect::iptables::Restore;
use crate::family::Family;

/// What is there: in the kernel, and in this process.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// What the saving tool printed; empty where no rules are written.
    pub save: String,
    /// The proxies that are open, with the port that rules lead to.
    pub open: BTreeMap<ProxyName, Option<u16>>,
    /// The addresses on the interface that are ours to remove.
    pub addresses: Vec<IpAddr>,
}

/// What has to change.
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
    /// There is nothing to do.
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

/// Plans one family's proxies and the ways to them.
#[derive(Debug)]
pub struct UserspacePlanner {
    family: Family,
    options: UserspaceOptions,
    /// What is in force was made with.
    context: Option<Context>,
    /// How many service ports want an address on the interface.
    claims: BTreeMap<IpAddr, usize>,
}

impl UserspacePlanner {
    /// A planner that knows nothing yet.
    pub fn new(family: Family, options: UserspaceOptions) -> Self {
        Self {
            family,
            options,
            context: None,
            claims: BTreeMap::new(),
        }
    }

    fn binds(&self) -> bool {
        self.options.portals == Portals::Bind
    }
}

impl Planner for UserspacePlanner {
    type Observed = Observed;
    type Plan = UserspacePlan;

    fn full(&mut self, desired: &Desired, observed: &Observed, found: Found) -> UserspacePlan {
        let listed = self.binds().then(|| Listed::of(desired));
        let context = self.context_with(desired, listed.unwrap_or_default());
        let mut plan = if self.binds() {
            self.full_bind(desired, observed, &context)
        } else {
            full::portals(desired, observed, found, &context)
        };
        // Said once, and not at every comparison.
        if self.context.replace(context).is_none() {
            let ports = desired.ports.values();
            plan.notes = ports.filter_map(|port| note(port)).collect();
        }
        plan
    }

    fn partial(&mut self, desired: &Desired, delta: &Delta) -> UserspacePlan {
        let new = self.context_with(desired, self.listed_now(desired, delta));
        let old = self.context.take().unwrap_or_else(|| new.clone());
        let mut states: Vec<State<'_>> = Vec::new();
        if old != new {
            let touched: HashSet<_> = delta.ports.iter().map(|change| &change.key).collect();
            let others = desired.ports.values();
            let others = others.filter(|port| !touched.contains(&port.key));
            states.extend(others.map(|port| (Some(&**port), Some(&**port))));
        }
        let changed = delta.ports.iter();
        states.extend(changed.map(|change| (change.old.as_deref(), change.new.as_deref())));
        let mut plan = if self.binds() {
            self.change_bind(&states, &old, &new)
        } else {
            change_portals(&states, &old, &new)
        };
        let news = delta.ports.iter().filter_map(|change| change.new.as_ref());
        plan.notes = news.filter_map(|port| note(port)).collect();
        self.context = Some(new);
        plan
    }

    fn tidy(&mut self) -> UserspacePlan {
        UserspacePlan::default()
    }
}

/// A service port before and after.
type State<'a> = (Option<&'a ServicePort>, Option<&'a ServicePort>);

impl UserspacePlanner {
    fn context_with(&self, desired: &Desired, listed: Listed) -> Context {
        Context::new(self.family, self.options, &desired.node, listed)
    }

    /// What Services have at the node's addresses after a change.
    fn listed_now(&self, desired: &Desired, delta: &Delta) -> Listed {
        if !self.binds() {
            return Listed::default();
        }
        let before = self.context.as_ref().map(|old| (&old.listed, &old.node));
        Listed::after(before, desired, delta)
    }

    fn full_bind(
        &mut self,
        desired: &Desired,
        observed: &Observed,
        context: &Context,
    ) -> UserspacePlan {
        self.claims.clear();
        let mut plan = UserspacePlan::default();
        for port in desired.ports.values() {
            for ip in bind::addresses(port) {
                *self.claims.entry(ip).or_default() += 1;
            }
            let proxies = bind::proxies(port, context);
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

    fn change_bind(&mut self, states: &[State<'_>], old: &Context, new: &Context) -> UserspacePlan {
        let mut plan = UserspacePlan::default();
        let mut touched = BTreeMap::new();
        for (before, after) in states {
            let proxies = |port: Option<&ServicePort>, context| {
                port.map_or_else(Vec::new, |port| bind::proxies(port, context))
            };
            plan.proxies
                .extend(proxy::changes(&proxies(*before, old), proxies(*after, new)));
            for ip in after.iter().flat_map(|port| bind::addresses(port)) {
                let claims = self.claims.entry(ip).or_default();
                touched.entry(ip).or_insert(*claims);
                *claims += 1;
            }
            for ip in before.iter().flat_map(|port| bind::addresses(port)) {
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

/// What of a service port cannot be done.
fn note(port: &ServicePort) -> Option<String> {
    (!proxy::is_proxied(port)).then(|| {
        let protocol = port.protocol();
        format!(
            "{}: the userspace mode cannot proxy {protocol}; it is refused",
            port.key
        )
    })
}

/// What changes in the portals of some service ports, and in the ways there if the node's settings are others.
fn change_portals(states: &[State<'_>], old: &Context, new: &Context) -> UserspacePlan {
    let mut plan = UserspacePlan::default();
    let mut writer = Writer::default();
    if old != new {
        writer.change_jumps(old, new);
    }
    for (before, after) in states {
        let before = before.map_or_else(Portal::default, |port| Portal::of(port, old));
        let after = after.map_or_else(Portal::default, |port| Portal::of(port, new));
        for chain in Chain::ALL {
            writer.replace(chain, &before.rules(chain), &after.rules(chain));
        }
        plan.proxies
            .extend(proxy::changes(&before.proxies, after.proxies));
    }
    plan.rules = writer.finish();
    plan
}
