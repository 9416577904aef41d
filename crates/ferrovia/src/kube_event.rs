//! What the people who run the cluster should hear of, beyond the log: it becomes an event of the Kubernetes API where there is one.

use std::sync::Arc;

use ferrovia_core::model::ServiceKey;

/// Something worth an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The object it is about.
    pub regarding: Regarding,
    /// How bad it is.
    pub severity: Severity,
    /// Why, in one word as tools look for it, such as `FailedToStartServiceHealthcheck`.
    pub reason: &'static str,
    /// What was being done, in one word, such as `Listen`.
    pub action: &'static str,
    /// The same in a sentence; may be empty.
    pub note: String,
}

/// What a notice is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Regarding {
    /// This node.
    Node,
    /// A Service, as far as this node is concerned.
    Service(ServiceKey),
    /// A Service, of which every node says the same: it becomes one event, whichever node is first.
    ServiceEverywhere(ServiceKey),
}

/// How bad it is, spelled as the API spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// All is well.
    Normal,
    /// Somebody should look.
    Warning,
}

/// Takes notices without waiting; a source without an API drops them.
pub type Noticeboard = Arc<dyn Fn(Notice) + Send + Sync>;
