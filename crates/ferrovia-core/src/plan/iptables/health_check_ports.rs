//! Rules that let load balancers ask whether this node has endpoints.
//!
//! They belong to a Service and not to one of its ports, so a port's old state does not say what is in the kernel: that is remembered.
//! Few Services have them.

use std::collections::{BTreeMap, BTreeSet};

use super::shared_chains::RuleChanges;
use crate::desired::{Delta, Desired};
use crate::dialect::iptables::{IptablesMatch, IptablesRule, IptablesTarget};
use crate::model::{Protocol, ServiceKey};

/// The rules that are in the kernel, by Service.
#[derive(Clone, Debug, Default)]
pub(super) struct HealthCheckPorts {
    rules: BTreeMap<ServiceKey, Vec<String>>,
}

impl HealthCheckPorts {
    /// Those of all Services.
    pub(super) fn new(desired: &Desired) -> Self {
        let services = desired.health_checks.keys();
        Self {
            rules: services
                .map(|service| (service.clone(), rules(desired, service)))
                .collect(),
        }
    }

    /// The rules, Service by Service.
    pub(super) fn groups(&self) -> Vec<Vec<String>> {
        self.rules.values().cloned().collect()
    }

    /// Takes a change in; says what has to be written for it.
    pub(super) fn update(&mut self, desired: &Desired, delta: &Delta) -> Vec<RuleChanges> {
        let ports = delta.ports.iter().map(|change| &change.key.service);
        let touched: BTreeSet<&ServiceKey> = ports.chain(&delta.checks).collect();
        touched
            .into_iter()
            .map(|service| {
                let new = rules(desired, service);
                let old = self.rules.remove(service).unwrap_or_default();
                let changes = RuleChanges::between(&texts(&old), &texts(&new));
                if !new.is_empty() {
                    self.rules.insert(service.clone(), new);
                }
                changes
            })
            .collect()
    }
}

fn texts(rules: &[String]) -> Vec<&str> {
    rules.iter().map(String::as_str).collect()
}

/// One rule for each name among a Service's ports.
fn rules(desired: &Desired, service: &ServiceKey) -> Vec<String> {
    let Some(check) = desired.health_checks.get(service) else {
        return Vec::new();
    };
    let ports = desired.ports_of(service);
    let names: BTreeSet<String> = ports.map(|(key, _)| key.to_string()).collect();
    names
        .into_iter()
        .map(|name| {
            IptablesRule::to(IptablesTarget::Accept)
                .protocol(Protocol::Tcp)
                .comment(format!("{name} health check node port"))
                .with(IptablesMatch::DestinationPort(check.port))
                .to_string()
        })
        .collect()
}
