//! The ipvs mode: virtual servers of the kernel's own load balancer, with kube-proxy's device, sets and rules around them.
//!
//! `service.rs` builds the state of a service port (`service_state.rs`), with the scheduler from `schedule.rs`. `sets.rs` and `rules.rs` do not depend on
//! services. `full.rs` compares the desired with the observed state, `ownership.rs` identifies our virtual servers, and `writer.rs` orders the changes.
//! `cleanup.rs` removes everything. This file is the planner.
//!
//! A port's servers, entries and addresses follow from the port and the node's settings alone, so what the kernel holds for it is
//! derived from its old state. Only what several ports may have in common is counted: the device's addresses, entries for local endpoints and
//! ports of health checks. Rules do not depend on services, but for one that keeps the node from a load balancer it may not use: most
//! changes touch servers and sets only.
//!
//! Draining destinations stay in the kernel until their connections end, so a full plan observes them and plans their
//! removal again. The applier remembers them, so this is no new change.

mod cleanup;
mod context;
mod full;
mod ownership;
mod plan;
mod rules;
mod schedule;
mod service;
mod service_state;
mod sets;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;

pub use self::cleanup::cleanup;
use self::context::IpvsContext;
pub use self::context::IpvsOptions;
use self::full::IpvsFullPlan;
pub use self::plan::{AddressOp, DEVICE, IpvsObserved, IpvsPlan, IpvsStep};
pub use self::rules::is_own_chain;
use self::service_state::{RefCounts, ServiceState};
use self::sets::IpvsSetId;
use self::writer::IpvsWriter;
use super::iptables::added_rules::AddedRules;
use super::node_address_frontends::NodeAddressFrontends;
use super::{ObservedPolicy, Planner};
use crate::desired::{Delta, Desired, ServicePort};
use crate::dialect::ipset::IpsetEntry;
use crate::family::Family;
use crate::model::ServiceKey;

/// Plans one family's load balancing.
#[derive(Debug)]
pub struct IpvsPlanner {
    family: Family,
    options: IpvsOptions,
    /// What is in the kernel was made with this.
    context: Option<IpvsContext>,
    /// How many service ports have an address on the device.
    addresses: RefCounts<IpAddr>,
    /// How many service ports have a local endpoint.
    loops: RefCounts<IpsetEntry>,
    /// The ports of health checks, by Service.
    checks: BTreeMap<ServiceKey, u16>,
    /// How many Services have a port for health checks.
    check_ports: RefCounts<u16>,
    added_rules: AddedRules,
}

impl IpvsPlanner {
    /// A planner that knows nothing yet.
    pub fn new(family: Family, options: IpvsOptions) -> Self {
        Self {
            family,
            options,
            context: None,
            addresses: RefCounts::default(),
            loops: RefCounts::default(),
            checks: BTreeMap::new(),
            check_ports: RefCounts::default(),
            added_rules: AddedRules::default(),
        }
    }

    /// Changes the rules to what other settings of the node make of them.
    fn change_rules(plan: &mut IpvsWriter, old: &IpvsContext, new: &IpvsContext) {
        let before = rules::chains(old);
        for chain in rules::chains(new) {
            if !before.contains(&chain) {
                plan.section(chain.table).fill(chain.name, &chain.rules);
            }
        }
    }

    /// Changes the set of health checks' ports.
    fn change_checks(&mut self, plan: &mut IpvsWriter, desired: &Desired, delta: &Delta) {
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
        let ref_count_changes = self.check_ports.change(&before, &after);
        plan.ref_count_changes(
            IpvsSetId::HealthCheck,
            ref_count_changes.map(IpsetEntry::Port),
        );
    }
}

impl Planner for IpvsPlanner {
    type Observed = IpvsObserved;
    type Plan = IpvsPlan;

    fn full(
        &mut self,
        desired: &Desired,
        observed: &IpvsObserved,
        found: ObservedPolicy,
    ) -> IpvsPlan {
        let node_address_frontends = NodeAddressFrontends::of(desired);
        let context = IpvsContext::new(
            self.family,
            &self.options,
            &desired.node,
            node_address_frontends,
        );
        let mut wanted = ServiceState::default();
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
        self.check_ports = RefCounts::new(&ports);
        self.addresses = RefCounts::new(&wanted.addresses);
        self.loops = RefCounts::new(&wanted.loops);
        let ports: BTreeSet<u16> = ports.into_keys().collect();
        let mut plan = IpvsFullPlan::new(&context, observed, found, &mut self.added_rules)
            .compare(&wanted, &ports);
        // Said once, and not at every comparison.
        if self.context.replace(context).is_none() {
            let ports = desired.ports.values();
            plan.notes
                .extend(ports.filter_map(|port| schedule::note(port, &self.options)));
        }
        plan.finish()
    }

    fn incremental(&mut self, desired: &Desired, delta: &Delta) -> IpvsPlan {
        let before = self
            .context
            .as_ref()
            .map(|old| (&old.node_address_frontends, &old.node));
        let node_address_frontends = NodeAddressFrontends::after(before, desired, delta);
        let new = IpvsContext::new(
            self.family,
            &self.options,
            &desired.node,
            node_address_frontends,
        );
        let old = self.context.take().unwrap_or_else(|| new.clone());
        let mut plan = IpvsWriter::new(self.family);
        // All changes together: what one port gives up another may take.
        let (mut before, mut after) = (ServiceState::default(), ServiceState::default());
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
        plan.ref_count_changes(
            IpvsSetId::LoopBack,
            self.loops.change(&before.loops, &after.loops),
        );
        let addresses = self.addresses.change(&before.addresses, &after.addresses);
        plan.ref_count_changes(IpvsSetId::Addresses, addresses.clone().map(IpsetEntry::Ip));
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

    fn deferred_removals(&mut self) -> IpvsPlan {
        IpvsPlan::default()
    }
}
