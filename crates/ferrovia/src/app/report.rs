//! What becomes of the sync loop's news: metrics, health, the health checks of services, stale flows to be removed.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferrovia_core::desired::{Desired, HealthChecks, NodePortAddresses};
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::model::Warning;
use ferrovia_host::memory;
use jiff::Timestamp;

use super::authors::Authors;
use crate::conntrack::worker::{Cleaner, Syncing};
use crate::mode::DynamicSets;
use crate::serve::admin::History;
use crate::serve::health::{Health, Moment, NodeState};
use crate::serve::http::{ServiceChecks, WantedChecks};
use crate::serve::metrics::{Metrics, Traffic};
use crate::sync::{Engine, Observer, Outcome, Received, SyncKind};

/// Checks that have to hold before the first write.
pub(super) type Preflight = Box<dyn FnOnce(&Engine) -> Result<(), String>>;
/// What is done once, when all rules are in force.
pub(super) type WhenReady = Box<dyn FnOnce()>;

/// Tells everyone who wants to know.
pub(super) struct Reporter {
    pub(super) metrics: Arc<Metrics>,
    pub(super) health: Arc<Health>,
    pub(super) checks: ServiceChecks,
    pub(super) cleaner: Cleaner,
    pub(super) dynamic_sets: Option<DynamicSets>,
    /// Done once, before the first write.
    pub(super) preflight: Option<Preflight>,
    /// Done once, when all rules are in force.
    pub(super) when_ready: Option<WhenReady>,
    /// Triggers from before are not ours to answer for.
    pub(super) started: Timestamp,
    pub(super) counted: Received,
    pub(super) checked: PerFamily<Option<(Arc<HealthChecks>, NodePortAddresses)>>,
    /// Held while rules are being written, so that no flow is judged by the rules before.
    pub(super) syncing: Option<Syncing>,
    /// What people may want to know of later.
    pub(super) history: Arc<History>,
    /// Hear what is wrong with their Services.
    pub(super) authors: Authors,
}

impl Observer for Reporter {
    fn received(&mut self, engine: &Engine) {
        self.count_events(engine);
        self.health.set_node(match engine.node() {
            None => NodeState::Unknown,
            Some(node) if node.eligible => NodeState::Eligible,
            Some(_) => NodeState::Ineligible,
        });
        if engine.is_ready() {
            self.queued(engine);
        }
    }

    fn ready(&mut self, engine: &Engine) -> Result<(), String> {
        self.preflight
            .take()
            .map_or(Ok(()), |check| check(engine))?;
        // Health begins to count here: a family whose first write never succeeds must not pass for one that has nothing to do.
        for family in enabled(engine) {
            self.health.started(family, Moment::now());
        }
        self.queued(engine);
        // The objects were read by other threads, whose freed memory the first sync, which takes the most of all, cannot use.
        memory::give_back();
        Ok(())
    }

    fn warned(&mut self, warnings: &[Warning]) {
        self.authors.report(warnings, Instant::now());
    }

    fn syncing(&mut self) {
        self.syncing = Some(self.cleaner.syncing());
    }

    fn synced(&mut self, engine: &Engine, outcomes: &[Outcome]) -> ControlFlow<()> {
        for outcome in outcomes {
            self.metrics.synced(outcome, Timestamp::now());
            self.history.record(outcome, Timestamp::now());
            self.observe_latency(outcome);
            if let Some(cleanup) = &outcome.cleanup {
                self.cleaner.submit(cleanup.clone());
            }
            if let (Some(sets), Some(departed)) = (&self.dynamic_sets, &outcome.departed) {
                sets.submit(outcome.family, departed.clone());
            }
        }
        self.syncing = None;
        for family in Family::ALL {
            if let Some(desired) = engine.desired(family).filter(|_| engine.is_in_sync(family)) {
                self.in_sync(family, desired);
            }
        }
        self.tell_pending(engine);
        if is_success(outcomes)
            && let Some(when_ready) = self.when_ready.take()
        {
            when_ready();
        }
        // A full sync held all that is in the kernel, the first one also objects as they were read; little of that is kept.
        if outcomes
            .iter()
            .any(|outcome| outcome.kind == SyncKind::Full)
        {
            memory::give_back();
        }
        ControlFlow::Continue(())
    }
}

impl Reporter {
    fn count_events(&mut self, engine: &Engine) {
        let now = engine.received();
        let services = now.services - self.counted.services;
        let slices = now.slices - self.counted.slices;
        self.metrics.changes(services, slices);
        self.counted = now;
        self.tell_pending(engine);
    }

    fn tell_pending(&self, engine: &Engine) {
        let Received { services, slices } = engine.pending();
        self.metrics.pending(services, slices);
    }

    fn queued(&self, engine: &Engine) {
        for family in enabled(engine) {
            self.health.queued(family, Moment::now());
            self.metrics.queued(family, Timestamp::now());
        }
    }

    fn in_sync(&mut self, family: Family, desired: &Desired) {
        self.health.updated(family, Moment::now());
        let lacking = desired.without_local;
        for (traffic, ports) in [
            (Traffic::Internal, lacking.internal),
            (Traffic::External, lacking.external),
        ] {
            self.metrics.no_local_endpoints(family, traffic, ports);
        }
        self.update_checks(family, desired);
    }

    /// Most syncs change no health check, so the listeners are only told when one did.
    fn update_checks(&mut self, family: Family, desired: &Desired) {
        let (checks, addresses) = (&desired.health_checks, &desired.node.health_checks);
        let is_known = self.checked[family]
            .as_ref()
            .is_some_and(|(known, at)| Arc::ptr_eq(known, checks) && at == addresses);
        if is_known {
            return;
        }
        self.checks.update(
            family,
            WantedChecks {
                addresses: addresses.clone(),
                checks: Arc::clone(checks),
            },
        );
        self.checked[family] = Some((Arc::clone(checks), addresses.clone()));
    }

    /// How long ago somebody did what is in the kernel now.
    fn observe_latency(&self, outcome: &Outcome) {
        let now = Timestamp::now();
        for trigger in &outcome.triggers {
            let Some(at) = trigger
                .parse::<Timestamp>()
                .ok()
                .filter(|at| *at >= self.started)
            else {
                continue;
            };
            let latency = Duration::try_from(now.duration_since(at)).unwrap_or_default();
            self.metrics.programmed(outcome.family, latency);
        }
    }
}

/// Ends the loop with its first sync.
#[derive(Default)]
pub(super) struct FirstSync {
    pub(super) succeeded: bool,
}

impl Observer for FirstSync {
    fn synced(&mut self, _: &Engine, outcomes: &[Outcome]) -> ControlFlow<()> {
        self.succeeded = is_success(outcomes);
        if outcomes.is_empty() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}

/// The families that are written.
fn enabled(engine: &Engine) -> impl Iterator<Item = Family> {
    let families = Family::ALL.into_iter();
    families.filter(|family| engine.desired(*family).is_some())
}

/// Something was synced, and nothing failed.
fn is_success(outcomes: &[Outcome]) -> bool {
    !outcomes.is_empty() && outcomes.iter().all(|outcome| outcome.result.is_ok())
}
