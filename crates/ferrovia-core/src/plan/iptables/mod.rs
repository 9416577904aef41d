//! The iptables mode: kube-proxy's chains and rules to the letter, written without its costs.
//!
//! `names.rs` says what chains are called, `base.rs` what is there without any services, `service.rs` and `endpoint.rs` what a service port
//! adds, `shared.rs` how the chains of all services are edited. `kernel.rs` is what was found, and `full.rs` compares everything with it,
//! with `stale.rs` for what goes, `strangers.rs` for what others put into our chains and `spelling.rs` for tools that print rules
//! differently. `writer.rs` and `sections.rs` put changes into an order. This file is the planner.
//!
//! A service port's rules follow from the port and the node's settings alone, so nothing that was written needs to be remembered: what the
//! kernel holds for a port is made anew from its old state. Chains come before what leads to them and go after it. The two tables are not
//! written at once: refusals come before the way to endpoints goes, and go after it has come, because a packet that has been given an
//! endpoint does not meet them.

pub(super) mod base;
pub(super) mod context;
mod endpoint;
mod full;
mod health;
pub(super) mod kernel;
pub(super) mod names;
mod sections;
mod service;
mod shared;
pub(super) mod spelling;
mod stale;
mod strangers;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::HashSet;
use std::sync::Arc;

pub use self::base::{INVALID_COUNTER, LOCALHOST_COUNTER};
use self::context::Context;
pub use self::context::{DROP_MARK, IptablesOptions};
use self::full::Full;
use self::health::Health;
pub use self::kernel::Observed;
pub use self::names::{CANARY, fixed_names, is_own_chain};
use self::shared::Shared;
use self::spelling::Spelling;
use self::writer::Writer;
use super::{Found, Plan, Planner};
use crate::desired::{Delta, Desired, ServicePort};
use crate::dialect::iptables::{Restore, RuleCount};
use crate::family::Family;
use crate::model::Algorithm;

/// Plans one family's rules.
#[derive(Debug)]
pub struct IptablesPlanner {
    family: Family,
    options: IptablesOptions,
    /// What the rules in the kernel were made with.
    context: Option<Context>,
    /// How many endpoints there are in all.
    endpoints: usize,
    /// How many rules of ours there are.
    rules: RuleCount,
    health: Health,
    spelling: Spelling,
}

impl Plan for Restore {
    fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl IptablesPlanner {
    /// A planner that knows nothing yet.
    pub fn new(family: Family, options: IptablesOptions) -> Self {
        Self {
            family,
            options,
            context: None,
            endpoints: 0,
            rules: RuleCount::default(),
            health: Health::default(),
            spelling: Spelling::default(),
        }
    }
}

impl Planner for IptablesPlanner {
    type Observed = Observed;
    type Plan = Restore;

    fn full(&mut self, desired: &Desired, observed: &Observed, found: Found) -> Restore {
        let ports = desired.ports.values();
        self.endpoints = ports.map(|port| count(port)).sum();
        let context = Context::new(self.family, self.options, &desired.node, self.endpoints);
        self.health = Health::new(desired);
        let mut plan = Full::new(&context, observed, found, desired, &mut self.spelling)
            .plan(desired, &self.health);
        // Said once, and not at every comparison.
        if self.context.replace(context).is_none() {
            plan.notes.extend(desired.ports.values().filter_map(note));
        }
        self.rules = plan.in_force;
        plan
    }

    fn partial(&mut self, desired: &Desired, delta: &Delta) -> Restore {
        for change in &delta.ports {
            let counts = |port: &Option<_>| port.as_deref().map_or(0, count);
            self.endpoints += counts(&change.new);
            self.endpoints = self.endpoints.saturating_sub(counts(&change.old));
        }
        let new = Context::new(self.family, self.options, &desired.node, self.endpoints);
        // Whether comments name endpoints makes no difference to a rule; a chain that stays is not rewritten for it.
        let old = Context {
            is_large: new.is_large,
            ..self.context.take().unwrap_or_else(|| new.clone())
        };
        let mut plan = Writer::new(&new, self.rules);
        if old != new {
            plan.change_base(&old, &new);
            let touched: HashSet<_> = delta.ports.iter().map(|change| &change.key).collect();
            let others = desired.ports.values();
            for port in others.filter(|port| !touched.contains(&port.key)) {
                plan.change_port(Some((port, &old)), Some((port, &new)));
            }
        }
        // Each comes before those that are there, so that in the end they are in the order of their keys.
        for change in delta.ports.iter().rev() {
            let (before, after) = (change.old.as_deref(), change.new.as_deref());
            plan.change_port(
                before.map(|port| (port, &old)),
                after.map(|port| (port, &new)),
            );
        }
        for changes in self.health.update(desired, delta) {
            plan.edit(Shared::FilterNodePorts, &changes);
        }
        self.context = Some(new);
        let mut plan = plan.finish();
        let changed = delta.ports.iter().filter_map(|change| change.new.as_ref());
        plan.notes.extend(changed.filter_map(note));
        self.rules = plan.in_force;
        plan
    }

    fn tidy(&mut self) -> Restore {
        Restore::default()
    }
}

/// The endpoints of a service port.
fn count(port: &ServicePort) -> usize {
    endpoint::reachable(port).count()
}

/// What of a service port cannot be done.
fn note(port: &Arc<ServicePort>) -> Option<String> {
    (port.algorithm == Algorithm::SourceHash).then(|| {
        format!(
            "{}: the iptables mode cannot choose endpoints by the client's address; they are chosen at random",
            port.key
        )
    })
}
