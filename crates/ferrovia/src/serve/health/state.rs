//! What makes a proxy healthy, and how that is said.
//!
//! A family is late once a change has waited for too long; a family that has nothing to do is always healthy, and one that never
//! reported does not count. The keys of the answers, their order and the codes are kube-proxy's, because load balancers and people's
//! scripts read them.
//!
//! There is one difference. Before the first sync kube-proxy answers `/healthz` with 200, and goes on doing so if its first lists never
//! arrive. A load balancer would send traffic to a node without rules, so here the answer is 503 until every family was written once.
//!
//! How old the data are never changes a code: when the API server goes away the rules of every node are intact, and a load balancer that
//! drops all nodes at once turns a fault of the control plane into an outage.

use std::time::{Duration, Instant};

use ferrovia_core::family::{Family, PerFamily};
use jiff::Timestamp;
use serde::{Serialize, Serializer};

use super::Moment;

/// How a time that never was is written.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// What is known of this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeState {
    /// No Node object was seen.
    #[default]
    Unknown,
    /// It may get traffic.
    Eligible,
    /// It is being deleted, or marked to be.
    Ineligible,
}

/// An answer to a health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// 200, or 503.
    pub is_ok: bool,
    /// JSON.
    pub body: String,
}

/// All that health depends on, but for the time and the age of the data.
#[derive(Debug)]
pub struct State {
    timeout: Duration,
    families: PerFamily<Reported>,
    node: NodeState,
    expects_node: bool,
    /// Another process proxies in this network namespace, and this one is not in charge yet.
    is_standby: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Reported {
    updated: Option<Moment>,
    pending_since: Option<Instant>,
    /// Its rules were written at least once.
    is_synced: bool,
}

impl State {
    /// A proxy is unhealthy once a change has waited for `timeout`. Without a Node object it is not eligible for traffic, unless none is
    /// expected, as in a folder of manifests.
    pub fn new(timeout: Duration, expects_node: bool) -> Self {
        Self {
            timeout,
            families: PerFamily::default(),
            node: NodeState::Unknown,
            expects_node,
            is_standby: false,
        }
    }

    /// A change of a family waits to be written.
    pub fn queued(&mut self, family: Family, now: Moment) {
        self.families[family]
            .pending_since
            .get_or_insert(now.instant);
    }

    /// A family is going to be written for the first time: from now on it counts.
    pub fn started(&mut self, family: Family, now: Moment) {
        self.families[family] = Reported {
            updated: Some(now),
            ..Reported::default()
        };
    }

    /// A family's rules are as they should be.
    pub fn updated(&mut self, family: Family, now: Moment) {
        self.families[family] = Reported {
            updated: Some(now),
            pending_since: None,
            is_synced: true,
        };
    }

    /// What is known of this node.
    pub fn set_node(&mut self, node: NodeState) {
        self.node = node;
    }

    /// Whether this process waits for another one to exit, and so serves nothing yet.
    pub fn set_standby(&mut self, is_standby: bool) {
        self.is_standby = is_standby;
    }

    /// No family is late.
    pub fn is_healthy(&self, now: Moment) -> bool {
        let is_well = |family| self.report(family, now).is_none_or(|report| report.healthy);
        Family::ALL.into_iter().all(is_well)
    }

    /// The answer to `/healthz`; `data_age` is shown and decides nothing.
    pub fn healthz(&self, now: Moment, data_age: Option<Duration>) -> Answer {
        let (eligible, synced) = (self.is_eligible(), self.is_synced());
        let is_ok = self.is_healthy(now) && eligible && synced && !self.is_standby;
        let extras = Extras {
            node_eligible: Some(eligible),
            synced: (!synced).then_some(false),
            data_age: data_age.map(|age| format!("{}s", age.as_secs())),
        };
        self.answer(now, is_ok, extras)
    }

    /// The answer to `/livez`. A proxy that waits for its first lists would only wait longer after a restart.
    pub fn livez(&self, now: Moment) -> Answer {
        self.answer(now, self.is_healthy(now), Extras::default())
    }

    /// Every family that is to be written was written once.
    fn is_synced(&self) -> bool {
        let families = Family::ALL.map(|family| self.families[family]);
        let mut counted = families.iter().filter(|it| it.updated.is_some()).peekable();
        counted.peek().is_some() && counted.all(|family| family.is_synced)
    }

    fn is_eligible(&self) -> bool {
        match self.node {
            NodeState::Unknown => !self.expects_node,
            NodeState::Eligible => true,
            NodeState::Ineligible => false,
        }
    }

    fn report(&self, family: Family, now: Moment) -> Option<FamilyReport> {
        let reported = self.families[family];
        let waited = |since| now.instant.saturating_duration_since(since);
        Some(FamilyReport {
            last_updated: reported.updated?.wall,
            healthy: reported
                .pending_since
                .is_none_or(|since| waited(since) < self.timeout),
        })
    }

    fn answer(&self, now: Moment, is_ok: bool, extras: Extras) -> Answer {
        let status = Status {
            v4: self.report(Family::V4, now),
            v6: self.report(Family::V6, now),
        };
        // "Last updated" was once the time of the last run, changes or none, and tools took an old one for a fault. So it stays recent
        // for as long as all is well.
        let last_updated = if is_ok {
            Some(now.wall)
        } else {
            status.last_updated()
        };
        let body = Body {
            last_updated: last_updated.map_or_else(|| NEVER.to_owned(), |at| at.to_string()),
            current_time: now.wall,
            node_eligible: extras.node_eligible,
            healthy: self.is_healthy(now),
            status: (!status.is_empty()).then_some(status),
            synced: extras.synced,
            data_age: extras.data_age,
        };
        Answer {
            is_ok,
            // Texts, times and booleans always serialise.
            body: serde_json::to_string(&body).unwrap_or_default(),
        }
    }
}

/// What only `/healthz` says.
#[derive(Default)]
struct Extras {
    node_eligible: Option<bool>,
    synced: Option<bool>,
    data_age: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    last_updated: String,
    #[serde(serialize_with = "as_text")]
    current_time: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_eligible: Option<bool>,
    healthy: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    /// Ours: only there before the first sync, as the reason for a 503 that the other keys do not explain.
    #[serde(skip_serializing_if = "Option::is_none")]
    synced: Option<bool>,
    /// Ours, and last: how long ago the API server was last known to have no newer data.
    #[serde(skip_serializing_if = "Option::is_none")]
    data_age: Option<String>,
}

#[derive(Serialize)]
struct Status {
    #[serde(rename = "IPv4", skip_serializing_if = "Option::is_none")]
    v4: Option<FamilyReport>,
    #[serde(rename = "IPv6", skip_serializing_if = "Option::is_none")]
    v6: Option<FamilyReport>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FamilyReport {
    #[serde(serialize_with = "as_text")]
    last_updated: Timestamp,
    healthy: bool,
}

impl Status {
    fn is_empty(&self) -> bool {
        self.v4.is_none() && self.v6.is_none()
    }

    fn last_updated(&self) -> Option<Timestamp> {
        let families = [&self.v4, &self.v6].into_iter().flatten();
        families.map(|report| report.last_updated).max()
    }
}

fn as_text<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(at)
}

#[cfg(test)]
mod tests;
