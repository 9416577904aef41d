//! The ipvs mode: virtual servers of the kernel's own load balancer, with kube-proxy's device, sets and rules round them.
//!
//! `service.rs` says what a service port adds, with `schedule.rs` for the scheduler; `state.rs` is the value that holds it. `sets.rs` and
//! `rules.rs` are what is there whatever services there are. `full.rs` compares everything with what was found, with `owned.rs` for whose
//! servers are whose; `writer.rs` puts changes into an order. `cleanup.rs` removes everything. This file is the planner.
//!
//! A port's servers, entries and addresses follow from the port and the node's settings alone, so what the kernel holds for it is made
//! anew from its old state. Only what several ports may have in common is counted: the device's addresses, entries for local endpoints and
//! ports of health checks. Rules do not depend on services, but for one that keeps the node from a load balancer it may not use: most
//! changes touch servers and sets only.
//!
//! Destinations on their way out stay in the kernel until their connections are done, so a full comparison finds them and plans their
//! removal again. Whoever writes remembers them, and knows that this is nothing new.

mod cleanup;
mod context;
mod full;
mod owned;
mod plan;
mod rules;
mod schedule;
mod service;
mod sets;
#[cfg(test)]
mod sim;
mod state;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;

pub use self::cleanup::cleanup;
use self::context::Context;
pub use self::context::IpvsOptions;
use self::full::Full;
pub use self::plan::{AddressOp, DEVICE, IpvsPlan, Observed, Step};
pub use self::rules::is_own_chain;
use self::sets::SetId;
use self::state::{Counted, State};
use self::writer::Writer;
use super::iptables::spelling::Spelling;
use super::listed::Listed;
use super::{Found, Planner};
use crate::desired::{Delta, Desired, ServicePort};
use crate::dialect::ipset::Entry;
use crate::family::Family;
use crate::model::ServiceKey;

/// Plans one family's load balancing.
#[derive(Debug)]
pub struct IpvsPlanner {
    family: Family,
    options: IpvsOptions,
    /// What is in the kernel was made with this.
    context: Option<Context>,
    /// How many service ports have an address on the device.
    addresses: Counted<IpAddr>,
    /// How many service ports have a local endpoint.
    loops: Counted<Entry>,
    /// The ports of health checks, by Service.
    checks: BTreeMap<ServiceKey, u16>,
    /// How many Services have a port for health checks.
    check_ports: Counted<u16>,
    spelling: Spelling,
}

impl IpvsPlanner {
    /// A planner that knows nothing yet.
    pub fn new(family: Family, options: IpvsOptions) -> Self {
        Self {
            family,
            options,
            context: None,
            addresses: Counted::default(),
            loops: Counted::default(),
            checks: BTreeMap::new(),
            check_ports: Counted::default(),
            spelling: Spelling::default(),
        }
    }

    /// Changes the rules to what other settings of the node make of them.
    fn change_rules(plan: &mut Writer, old: &Context, new: &Context) {
        let before = rules::chains(old);
        for chain in rules::chains(new) {
            if !before.contains(&chain) {
                plan.section(chain.table).fill(chain.name, &chain.rules);
            }
        }
    }

    /// Changes the set of health checks' ports.
    fn change_checks(&mut self, plan: &mut Writer, desired: &Desired, delta: &Delta) {
        let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
        for service in &delta.checks {
            if let Some(port) = self.checks.remove(service) {
                *before.entry(port).or_default() += 1;
            }
            if let Some(check) = desired.health_checks.get(service) {
                self.checks.insert(service.clone(), check.port);
                *after.entry(check.port).or_default() += 1;
            }
        }
        let turned = self.check_ports.change(&before, &after);
        plan.turned(SetId::HealthCheck, turned.map(Entry::Port));
    }
}

impl Planner for IpvsPlanner {
    type Observed = Observed;
    type Plan = IpvsPlan;

    fn full(&mut self, desired: &Desired, observed: &Observed, found: Found) -> IpvsPlan {
        let listed = Listed::of(desired);
        let context = Context::new(self.family, &self.options, &desired.node, listed);
        let mut wanted = State::default();
        for port in desired.ports.values() {
            wanted.merge(service::state(port, &context));
        }
        let checks = desired.health_checks.iter();
        self.checks = checks
            .map(|(key, check)| (key.clone(), check.port))
            .collect();
        let mut ports = BTreeMap::new();
        for port in self.checks.values() {
            *ports.entry(*port).or_default() += 1;
        }
        self.check_ports = Counted::new(&ports);
        self.addresses = Counted::new(&wanted.addresses);
        self.loops = Counted::new(&wanted.loops);
        let ports: BTreeSet<u16> = ports.into_keys().collect();
        let mut plan =
            Full::new(&context, observed, found, &mut self.spelling).compare(&wanted, &ports);
        // Said once, and not at every comparison.
        if self.context.replace(context).is_none() {
            let ports = desired.ports.values();
            plan.notes
                .extend(ports.filter_map(|port| schedule::note(port, &self.options)));
        }
        plan.finish()
    }

    fn partial(&mut self, desired: &Desired, delta: &Delta) -> IpvsPlan {
        let before = self.context.as_ref().map(|old| (&old.listed, &old.node));
        let listed = Listed::after(before, desired, delta);
        let new = Context::new(self.family, &self.options, &desired.node, listed);
        let old = self.context.take().unwrap_or_else(|| new.clone());
        let mut plan = Writer::new(self.family);
        // All changes together: what one port gives up another may take.
        let (mut before, mut after) = (State::default(), State::default());
        let mut change = |from: Option<&ServicePort>, to: Option<&ServicePort>| {
            from.into_iter()
                .for_each(|port| before.merge(service::state(port, &old)));
            to.into_iter()
                .for_each(|port| after.merge(service::state(port, &new)));
        };
        for port in &delta.ports {
            change(port.old.as_deref(), port.new.as_deref());
        }
        if old != new {
            let touched: HashSet<_> = delta.ports.iter().map(|change| &change.key).collect();
            let others = desired.ports.values();
            for port in others.filter(|port| !touched.contains(&port.key)) {
                change(Some(port), Some(port));
            }
            Self::change_rules(&mut plan, &old, &new);
        }
        plan.entries(&before.entries, &after.entries);
        plan.out_rules(&before.out_rules, &after.out_rules);
        plan.servers(&before.servers, &after.servers, true, &new);
        plan.turned(
            SetId::LoopBack,
            self.loops.change(&before.loops, &after.loops),
        );
        let addresses = self.addresses.change(&before.addresses, &after.addresses);
        plan.turned(SetId::Addresses, addresses.clone().map(Entry::Ip));
        plan.addresses(addresses);
        self.change_checks(&mut plan, desired, delta);
        let changed = delta
            .ports
            .iter()
            .filter_map(|change| change.new.as_deref());
        plan.notes
            .extend(changed.filter_map(|port| schedule::note(port, &new.options)));
        self.context = Some(new);
        plan.finish()
    }

    fn tidy(&mut self) -> IpvsPlan {
        IpvsPlan::default()
    }
}
