//! What would be written.

use std::sync::Arc;

use ferrovia_core::desired::Desired;
use ferrovia_core::difference::services::delta;
use ferrovia_core::model::ServiceKey;
use serde::{Deserialize, Serialize};

use crate::mode::Mode;

/// What would be written, family by family.
#[derive(Debug, Serialize, Deserialize)]
pub struct Plans {
    /// The mode that would write it.
    pub mode: String,
    /// One for each family that was asked about.
    pub families: Vec<FamilyPlan>,
}

/// What would be written for one family.
#[derive(Debug, Serialize, Deserialize)]
pub struct FamilyPlan {
    /// The family.
    pub family: String,
    /// As the mode's tool would read it.
    pub plan: String,
}

impl Plans {
    /// The whole ruleset.
    pub fn whole<'a>(mode: &dyn Mode, desired: impl IntoIterator<Item = &'a Desired>) -> Self {
        Self::new(mode, desired, |desired| mode.plan(desired))
    }

    /// What the only Service of these adds to a node with none: numbers may differ from a running proxy's, which depend on what was there
    /// before. See [`alone`].
    pub fn of_service<'a>(mode: &dyn Mode, desired: impl IntoIterator<Item = &'a Desired>) -> Self {
        Self::new(mode, desired, |with| {
            let without = with.without_services();
            mode.plan_change(&without, with, &delta(&without, with))
        })
    }

    fn new<'a>(
        mode: &dyn Mode,
        desired: impl IntoIterator<Item = &'a Desired>,
        plan: impl Fn(&Desired) -> String,
    ) -> Self {
        let family = |desired: &Desired| FamilyPlan {
            family: desired.family.name().to_owned(),
            plan: plan(desired),
        };
        Self {
            mode: mode.name().to_owned(),
            families: desired.into_iter().map(family).collect(),
        }
    }
}

/// The same node with one Service only.
pub fn alone(whole: &Desired, service: &ServiceKey) -> Desired {
    let checks = whole.health_checks.iter();
    let checks = checks.filter(|(key, _)| *key == service);
    Desired {
        ports: (whole.ports_of(service))
            .map(|(key, port)| (key.clone(), Arc::clone(port)))
            .collect(),
        health_checks: Arc::new(checks.map(|(key, check)| (key.clone(), *check)).collect()),
        ..whole.without_services()
    }
}
