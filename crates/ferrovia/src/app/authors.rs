//! What is wrong with a Service, for its author: an event of the Kubernetes API beside the line in the log.
//!
//! Every node sees the same Service, so the events of all nodes are one. Services that come and go must not make every node post events without
//! end, so a node posts a few at once and then one now and then.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ferrovia_core::model::{ServiceKey, Warning};

use crate::kube_event::{Notice, Noticeboard, Regarding, Severity};

/// Events that can be posted at once.
const BURST: u32 = 32;
/// How long it takes until one more can be.
const REFILL: Duration = Duration::from_secs(30);

/// Posts events about Services.
pub(super) struct Authors {
    notices: Noticeboard,
    left: u32,
    refilled: Instant,
}

impl Authors {
    pub(super) fn new(notices: Noticeboard, now: Instant) -> Self {
        Self {
            notices,
            left: BURST,
            refilled: now,
        }
    }

    /// One event for each Service, with all that is wrong with it. What only those who run the node may know is not in it.
    pub(super) fn report(&mut self, warnings: &[Warning], now: Instant) {
        let mut notes: BTreeMap<ServiceKey, Vec<String>> = BTreeMap::new();
        for warning in warnings {
            if let Some(key) = service(&warning.object) {
                let note = format!("{}: {}", warning.field, warning.problem);
                let of_service = notes.entry(key).or_default();
                // The same may be wrong in both families.
                if !of_service.contains(&note) {
                    of_service.push(note);
                }
            }
        }
        for (key, notes) in notes {
            if !self.may_post(now) {
                tracing::debug!(service = %key, "Dropped an event; too many in a short time");
                continue;
            }
            (self.notices)(Notice {
                regarding: Regarding::ServiceEverywhere(key),
                severity: Severity::Warning,
                reason: "ServiceNotFullyServed",
                action: "SyncService",
                note: notes.join("; "),
            });
        }
    }

    fn may_post(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.refilled);
        let more = u32::try_from(passed.as_secs() / REFILL.as_secs()).unwrap_or(BURST);
        if more > 0 {
            self.left = self.left.saturating_add(more).min(BURST);
            self.refilled = now;
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

/// The Service that a warning is about. An object with names that are none has no events.
fn service(object: &str) -> Option<ServiceKey> {
    let (namespace, name) = object.strip_prefix("Service ")?.split_once('/')?;
    ServiceKey::new(namespace, name)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn warning(object: &str, problem: &str) -> Warning {
        Warning {
            object: object.to_owned(),
            field: "spec.externalIPs".to_owned(),
            problem: problem.to_owned(),
            operator_detail: Some("the Service is secret/db".to_owned()),
        }
    }

    fn authors(now: Instant) -> (Authors, Arc<Mutex<Vec<Notice>>>) {
        let board = Arc::new(Mutex::new(Vec::new()));
        let posted = Arc::clone(&board);
        let notices: Noticeboard = Arc::new(move |notice| posted.lock().unwrap().push(notice));
        (Authors::new(notices, now), board)
    }

    #[test]
    fn a_service_has_one_event_without_what_its_author_may_not_know() {
        let now = Instant::now();
        let (mut authors, board) = authors(now);
        let warnings = [
            warning("Service evil/bait", "a"),
            warning("Service shop/web", "b"),
            warning("Service evil/bait", "c"),
            warning("Service evil/bait", "a"),
            warning("Node node-1", "d"),
            warning("Service evil/x\u{1b}", "e"),
        ];
        authors.report(&warnings, now);
        let posted: Vec<_> = board
            .lock()
            .unwrap()
            .iter()
            .map(|notice| (notice.regarding.clone(), notice.note.clone()))
            .collect();
        let about = |namespace, name| {
            Regarding::ServiceEverywhere(ServiceKey::new(namespace, name).unwrap())
        };
        let first = "spec.externalIPs: a; spec.externalIPs: c".to_owned();
        let second = "spec.externalIPs: b".to_owned();
        assert_eq!(
            posted,
            [
                (about("evil", "bait"), first),
                (about("shop", "web"), second)
            ]
        );
    }

    #[test]
    fn a_flood_of_services_makes_few_events() {
        let now = Instant::now();
        let (mut authors, board) = authors(now);
        let flood: Vec<_> = (0..1_000)
            .map(|i| warning(&format!("Service evil/s{i}"), "a"))
            .collect();
        authors.report(&flood, now);
        assert_eq!(board.lock().unwrap().len(), BURST as usize);
        authors.report(&flood, now + REFILL);
        assert_eq!(board.lock().unwrap().len(), BURST as usize + 1);
    }
}
