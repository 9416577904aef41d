//! The iptables mode: kube-proxy's chains and rules to the letter, written without its costs.
//!
//! `names.rs` has the chain names, `base_chains.rs` the rules that exist without any services, `service_rules.rs` and `endpoint_rules.rs` the rules of a
//! service port, `shared_chains.rs` edits the chains that all services share. `observed.rs` parses the observed rules and `full.rs` compares them with the
//! desired ones; `stale_chains.rs` finds chains to delete, `foreign_rules.rs` reports foreign rules in our chains, and `added_rules.rs` handles tools
//! that print rules differently. `writer.rs` and `sections.rs` order the changes. This file is the planner.
//!
//! A service port's rules follow from the port and the node's settings alone, so nothing that was written needs to be remembered: what the
//! kernel holds for a port is derived from its old state. Chains come before what leads to them and go after it. The two tables are not
//! written at once: refusals come before the way to endpoints goes, and go after it has come, because a packet that has been given an
//! endpoint does not meet them.

pub(super) mod added_rules;
pub(super) mod base_chains;
pub(super) mod context;
mod endpoint_rules;
mod foreign_rules;
mod full;
mod health_check_ports;
pub(super) mod names;
pub(super) mod observed;
mod sections;
mod service_rules;
mod shared_chains;
mod stale_chains;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::HashSet;
use std::sync::Arc;

use self::added_rules::AddedRules;
pub use self::base_chains::{INVALID_COUNTER, LOCALHOST_COUNTER};
use self::context::IptablesContext;
pub use self::context::{DROP_MARK, IptablesOptions};
use self::full::IptablesFullPlan;
use self::health_check_ports::HealthCheckPorts;
pub use self::names::{CANARY, fixed_names, is_own_chain};
pub use self::observed::IptablesObserved;
use self::shared_chains::SharedChain;
use self::writer::IptablesWriter;
use super::{ObservedPolicy, Plan, Planner};
use crate::desired::{Delta, Desired, ServicePort};
use crate::dialect::iptables::{Restore, RuleCount};
use crate::family::Family;
use crate::model::Algorithm;

/// Plans one family's rules.
#[derive(Debug)]
pub struct IptablesPlanner {
    family: Family,
    options: IptablesOptions,
    /// The context of the last plan.
    context: Option<IptablesContext>,
    /// How many endpoints there are in all.
    endpoints: usize,
    /// How many rules of ours there are.
    rules: RuleCount,
    health: HealthCheckPorts,
    added_rules: AddedRules,
}

impl Plan for Restore {
    fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl IptablesPlanner {
    /// A planner that needs a full plan first.
    pub fn new(family: Family, options: IptablesOptions) -> Self {
        Self {
            family,
            options,
            context: None,
            endpoints: 0,
            rules: RuleCount::default(),
            health: HealthCheckPorts::default(),
            added_rules: AddedRules::default(),
        }
    }
}

impl Planner for IptablesPlanner {
    type Observed = IptablesObserved;
    type Plan = Restore;

    fn full(
        &mut self,
        desired: &Desired,
        observed: &IptablesObserved,
        found: ObservedPolicy,
    ) -> Restore {
        let ports = desired.ports.values();
        self.endpoints = ports.map(|port| count(port)).sum();
        let context =
            IptablesContext::new(self.family, self.options, &desired.node, self.endpoints);
        self.health = HealthCheckPorts::new(desired);
        let mut plan =
            IptablesFullPlan::new(&context, observed, found, desired, &mut self.added_rules)
                .plan(desired, &self.health);
        // Reported once, not with every full plan.
        if self.context.replace(context).is_none() {
            plan.notes.extend(desired.ports.values().filter_map(note));
        }
        self.rules = plan.in_force;
        plan
    }

    fn incremental(&mut self, desired: &Desired, delta: &Delta) -> Restore {
        for change in &delta.ports {
            let counts = |port: &Option<_>| port.as_deref().map_or(0, count);
            self.endpoints += counts(&change.new);
            self.endpoints = self.endpoints.saturating_sub(counts(&change.old));
        }
        let new = IptablesContext::new(self.family, self.options, &desired.node, self.endpoints);
        // Whether comments name endpoints makes no difference to a rule; a chain that stays is not rewritten for it.
        let old = IptablesContext {
            is_large: new.is_large,
            ..self.context.take().unwrap_or_else(|| new.clone())
        };
        let mut plan = IptablesWriter::new(&new, self.rules);
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
            plan.edit(SharedChain::FilterNodePorts, &changes);
        }
        self.context = Some(new);
        let mut plan = plan.finish();
        let changed = delta.ports.iter().filter_map(|change| change.new.as_ref());
        plan.notes.extend(changed.filter_map(note));
        self.rules = plan.in_force;
        plan
    }

    fn deferred_removals(&mut self) -> Restore {
        Restore::default()
    }
}

/// The endpoints of a service port.
fn count(port: &ServicePort) -> usize {
    endpoint_rules::reachable(port).count()
}

/// A note about what this mode does not support.
fn note(port: &Arc<ServicePort>) -> Option<String> {
    (port.algorithm == Algorithm::SourceHash).then(|| {
        format!(
            "{}: the iptables mode does not support source-hash; endpoints are selected at random",
            port.key
        )
    })
}
