//! Notices as events of the API, where `kubectl describe` and `kubectl get events` show them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::api::{Api, RequestError};
use crate::kube_event::{Notice, Noticeboard, Regarding, Severity};

/// Notices that may wait for the server. More are dropped: they tell of one trouble many times over.
const QUEUE: usize = 64;

/// The same notice is not posted again within this time.
const ONCE_IN: Duration = Duration::from_secs(60);

/// So many notices are remembered for that.
const REMEMBERED: usize = 128;

/// How often a notice is tried, and the pause before the second time; each further one is twice as long.
const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_secs(2);

/// The API refuses longer notes.
const LONGEST_NOTE: usize = 1024;

/// Who speaks in the events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reporter {
    /// The Node's name.
    pub node_name: String,
    /// The machine's own name, which may be another.
    pub hostname: String,
}

/// A board to put notices on, and the work of posting them: run it beside everything else. It ends when the board is dropped.
pub fn noticeboard(api: Api, reporter: Reporter) -> (Noticeboard, impl Future<Output = ()>) {
    let (queue, notices) = mpsc::channel(QUEUE);
    let board = move |notice: Notice| {
        if let Err(error) = queue.try_send(notice) {
            tracing::debug!(%error, "a notice is dropped");
        }
    };
    (Arc::new(board), post_all(api, reporter, notices))
}

async fn post_all(api: Api, reporter: Reporter, mut notices: mpsc::Receiver<Notice>) {
    let mut recent = Recent::default();
    while let Some(notice) = notices.recv().await {
        if recent.is_repeated(&notice, Instant::now()) {
            continue;
        }
        post(&api, &reporter, &notice).await;
    }
}

/// Tries for a while; nobody is worse off if it fails.
async fn post(api: &Api, reporter: &Reporter, notice: &Notice) {
    let (uri, event) = as_event(reporter, notice, Timestamp::now());
    let mut pause = FIRST_PAUSE;
    for _ in 0..TRIES {
        let error = match api.post(&uri, event.as_bytes()).await {
            Ok(()) => return,
            Err(error) => error,
        };
        tracing::debug!(reason = notice.reason, %error, "cannot post an event");
        match error {
            // It will not be wanted a second time either.
            RequestError::Refused { status, .. } if status.code < 500 && status.code != 429 => {
                return;
            }
            RequestError::Refused { retry_after, .. } => {
                sleep(retry_after.unwrap_or_default().max(pause)).await;
            }
            RequestError::Late(_)
            | RequestError::Unreachable(_)
            | RequestError::Transport(_)
            | RequestError::Unprocessed(_) => {
                sleep(pause).await;
            }
        }
        pause *= 2;
    }
}

/// What was posted lately.
#[derive(Debug, Default)]
struct Recent(VecDeque<(Notice, Instant)>);

impl Recent {
    fn is_repeated(&mut self, notice: &Notice, now: Instant) -> bool {
        self.0
            .retain(|(_, at)| now.saturating_duration_since(*at) < ONCE_IN);
        if self.0.iter().any(|(known, _)| known == notice) {
            return true;
        }
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((notice.clone(), now));
        false
    }
}

/// Where to post the event, and its text.
fn as_event(reporter: &Reporter, notice: &Notice, now: Timestamp) -> (String, String) {
    let (kind, namespace, name) = match &notice.regarding {
        Regarding::Node => ("Node", None, reporter.node_name.as_str()),
        Regarding::Service(key) | Regarding::ServiceEverywhere(key) => {
            ("Service", Some(key.namespace()), key.name())
        }
    };
    let suffix = match &notice.regarding {
        Regarding::ServiceEverywhere(_) => digest(notice),
        Regarding::Node | Regarding::Service(_) => format!("{:x}", now.as_nanosecond()),
    };
    // What has no namespace has its events in this one.
    let home = namespace.unwrap_or("default");
    let mut regarding = json!({"kind": kind, "name": name, "apiVersion": "v1"});
    if let Some(namespace) = namespace {
        regarding["namespace"] = namespace.into();
    }
    let event = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": format!("{name}.{suffix}"),
            "namespace": home,
        },
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
        "reportingController": "kube-proxy",
        "reportingInstance": shortened(&format!("kube-proxy-{}", reporter.hostname), 128),
        "action": notice.action,
        "reason": notice.reason,
        "regarding": regarding,
        "note": shortened(&notice.note, LONGEST_NOTE),
        "type": match notice.severity {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        },
    });
    let uri = format!("/apis/events.k8s.io/v1/namespaces/{home}/events");
    (uri, event.to_string())
}

/// The same on every node, so that of thousands that post the event one succeeds and the others find it there (409 Conflict).
fn digest(notice: &Notice) -> String {
    let text = format!("{}\n{}\n{}", notice.reason, notice.action, notice.note);
    let digest = Sha256::digest(text);
    digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// No longer than so many bytes, and cut between two characters.
fn shortened(text: &str, limit: usize) -> &str {
    let ends = text.char_indices().map(|(at, char)| at + char.len_utf8());
    let end = ends.take_while(|end| *end <= limit).last().unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use ferrovia_core::model::ServiceKey;
    use serde_json::Value;

    use super::*;

    fn reporter() -> Reporter {
        Reporter {
            node_name: "node-1".to_owned(),
            hostname: "host-1".to_owned(),
        }
    }

    fn notice(regarding: Regarding, note: &str) -> Notice {
        Notice {
            regarding,
            severity: Severity::Warning,
            reason: "FailedToStartServiceHealthcheck",
            action: "Listen",
            note: note.to_owned(),
        }
    }

    #[test]
    fn a_node_has_its_events_in_the_namespace_default() {
        let now: Timestamp = "2026-11-15T10:00:00.123456789Z".parse().unwrap();
        let (uri, event) = as_event(&reporter(), &notice(Regarding::Node, ""), now);
        assert_eq!(uri, "/apis/events.k8s.io/v1/namespaces/default/events");
        let event: Value = serde_json::from_str(&event).unwrap();
        assert_eq!(
            event["regarding"],
            json!({"kind": "Node", "name": "node-1", "apiVersion": "v1"})
        );
        assert_eq!(event["eventTime"], "2026-11-15T10:00:00.123456Z");
        assert_eq!(event["reportingInstance"], "kube-proxy-host-1");
        assert_eq!(
            event["metadata"]["name"],
            format!("node-1.{:x}", now.as_nanosecond())
        );
    }

    #[test]
    fn a_service_has_its_own() {
        let about = Regarding::Service(ServiceKey::new("shop", "web").unwrap());
        let long = "ä".repeat(1000);
        let (uri, event) = as_event(&reporter(), &notice(about, &long), Timestamp::UNIX_EPOCH);
        assert_eq!(uri, "/apis/events.k8s.io/v1/namespaces/shop/events");
        let event: Value = serde_json::from_str(&event).unwrap();
        assert_eq!(event["regarding"]["namespace"], "shop");
        assert_eq!(event["type"], "Warning");
        assert_eq!(event["note"].as_str().unwrap().len(), LONGEST_NOTE);
    }

    #[test]
    fn what_all_nodes_say_is_one_event() {
        let about = Regarding::ServiceEverywhere(ServiceKey::new("shop", "web").unwrap());
        let name = |node: &str, note: &str, time| {
            let reporter = Reporter {
                node_name: node.to_owned(),
                hostname: node.to_owned(),
            };
            let (_, event) = as_event(&reporter, &notice(about.clone(), note), time);
            let event: Value = serde_json::from_str(&event).unwrap();
            event["metadata"]["name"].as_str().unwrap().to_owned()
        };
        let first = name("node-1", "too many", Timestamp::UNIX_EPOCH);
        assert_eq!(name("node-2", "too many", Timestamp::now()), first);
        assert_ne!(name("node-1", "denied", Timestamp::UNIX_EPOCH), first);
        assert!(first.starts_with("web.") && first.len() == 20, "{first}");
    }

    #[test]
    fn the_same_is_said_once_a_minute() {
        let mut recent = Recent::default();
        let now = Instant::now();
        let first = notice(Regarding::Node, "a");
        assert!(!recent.is_repeated(&first, now));
        assert!(recent.is_repeated(&first, now + ONCE_IN / 2));
        assert!(!recent.is_repeated(&notice(Regarding::Node, "b"), now));
        assert!(!recent.is_repeated(&first, now + ONCE_IN));
        for i in 0..1000 {
            recent.is_repeated(&notice(Regarding::Node, &i.to_string()), now);
        }
        assert!(recent.0.len() <= REMEMBERED);
    }
}
