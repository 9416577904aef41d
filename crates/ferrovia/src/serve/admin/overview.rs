//! `overview`: is all well, and how large is it?

use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::problem::Problem;
use super::snapshot::{Snapshot, Standing};
use super::{Admin, VERSION};
use crate::serve::health::Moment;

/// So many problems of objects are told.
const WARNINGS: usize = 50;

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Counts {
    services: usize,
    ports: usize,
    endpoints: usize,
    /// Services of which some frontends turn everybody away.
    partly: usize,
    /// Services of which all do.
    down: usize,
}

/// Counts as of a change. What is wanted changes only with a sync, so nothing is counted twice.
#[derive(Debug, Default)]
pub(super) struct CountsCache(Mutex<Option<(u64, Counts)>>);

impl Counts {
    fn of(snapshot: &Snapshot) -> Self {
        let mut counts = Self {
            ports: snapshot.port_count(),
            ..Self::default()
        };
        for service in snapshot.services() {
            counts.services += 1;
            counts.endpoints += service.endpoints();
            match service.standing() {
                Standing::Served => {}
                Standing::Partly => counts.partly += 1,
                Standing::Down => counts.down += 1,
            }
        }
        counts
    }
}

impl Admin {
    /// All of it; the plot of latencies only if it is wanted.
    pub(super) async fn overview(&self, with_latencies: bool) -> Result<Value, Problem> {
        let counts = self.counts().await?;
        let warned = self.ask(|engine| {
            let warned = engine.warned();
            let latest: Vec<_> = warned.latest().rev().take(WARNINGS).cloned().collect();
            (engine.is_ready(), warned.total(), latest)
        });
        let (is_ready, warnings, latest) = warned.await?;
        let latest: Vec<Value> = latest
            .into_iter()
            .map(|it| json!({ "object": it.object, "field": it.field, "problem": it.problem_in_full() }))
            .collect();
        let families: Vec<_> = self.about.families.iter().map(|it| it.name()).collect();
        let now = Moment::now();
        let uptime = now.wall.as_second() - self.started.as_second();
        let mut overview = json!({
            "version": VERSION,
            "node": self.about.node,
            "mode": self.about.mode.name(),
            "families": families,
            "source": self.about.source,
            "started": self.started.to_string(),
            "now": now.wall.to_string(),
            "uptimeSeconds": uptime.max(0),
            "ready": is_ready,
            "counting": self.rates.is_counting(),
            "health": self.health(now),
            "dataAgeSeconds": self.health.data_age(now).map(|age| age.as_secs_f64()),
            "counts": counts,
            "syncs": { "totals": self.history.totals(), "last": self.history.last().as_deref() },
            "warnings": { "total": warnings, "latest": latest },
        });
        if with_latencies {
            overview["syncs"]["latencies"] = json!(self.history.latencies());
        }
        Ok(overview)
    }

    async fn counts(&self) -> Result<Counts, Problem> {
        // Before the snapshot is taken: a change in between is then counted again, and not missed.
        let number = *self.history.newest().borrow();
        let known = *self.counts.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, counts)) = known.filter(|(at, _)| *at == number && number > 0) {
            return Ok(counts);
        }
        let snapshot = self.snapshot().await?;
        let counts = blocking(move || Counts::of(&snapshot)).await?;
        *self.counts.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((number, counts));
        Ok(counts)
    }

    /// What `/healthz` would say, and in words why it says no.
    fn health(&self, now: Moment) -> Value {
        let answer = self.health.healthz(now);
        let body: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        let mut reasons = Vec::new();
        if body["healthy"] == false {
            reasons.push(
                "a change has waited for too long to be written; the log says why".to_owned(),
            );
        }
        if body["nodeEligible"] == false {
            reasons.push("this node has no Node object, or it is being deleted".to_owned());
        }
        if body["synced"] == false {
            reasons.push("the rules have not been written for the first time yet".to_owned());
        }
        json!({ "ok": answer.is_ok, "reasons": reasons, "healthz": body })
    }

    /// When the daemon began, which tells one run from another.
    pub(super) fn started(&self) -> Timestamp {
        self.started
    }
}

/// Does what takes more than a moment beside the network's thread.
pub(super) async fn blocking<T, F>(work: F) -> Result<T, Problem>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    tokio::task::spawn_blocking(work).await.map_err(|_| {
        Problem::busy(
            "the daemon is about to end",
            "try again once it has been started anew",
        )
    })
}
