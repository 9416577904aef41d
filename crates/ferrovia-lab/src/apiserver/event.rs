//! The validation of new Events.

use serde_json::Value;

use super::status::{Cause, Status};

/// The required fields of an Event, all of them strings.
const REQUIRED: [&str; 5] = [
    "eventTime",
    "reportingController",
    "reportingInstance",
    "action",
    "reason",
];

/// Validates an Event for a namespace with these existing ones.
pub(super) fn check(event: &Value, namespace: &str, others: &[Value]) -> Result<(), Status> {
    let metadata = &event["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let causes = causes(event, namespace);
    if !causes.is_empty() {
        return Err(Status::invalid_event(name, causes));
    }
    let is_same = |other: &Value| {
        let other = &other["metadata"];
        other["name"] == metadata["name"] && other["namespace"] == namespace
    };
    match others.iter().any(is_same) {
        true => Err(Status::event_exists(name)),
        false => Ok(()),
    }
}

fn causes(event: &Value, namespace: &str) -> Vec<Cause> {
    let is_empty = |value: &Value| value.as_str().unwrap_or_default().is_empty();
    let mut causes = Vec::new();
    if is_empty(&event["metadata"]["name"]) && is_empty(&event["metadata"]["generateName"]) {
        causes.push(Cause::required("metadata.name"));
    }
    // Events of cluster-scoped objects are in one of these namespaces.
    let is_home = matches!(namespace, "default" | "kube-system");
    if is_empty(&event["regarding"]["namespace"]) && !is_home {
        causes.push(Cause::invalid("involvedObject.namespace"));
    }
    let missing = REQUIRED.into_iter().filter(|field| is_empty(&event[field]));
    causes.extend(missing.map(Cause::required));
    if event["type"] != "Normal" && event["type"] != "Warning" {
        causes.push(Cause::invalid("type"));
    }
    causes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_about_no_namespace_belongs_into_a_namespace_of_the_system() {
        let event = json!({
            "metadata": {"name": "e"},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "kube-proxy",
            "reportingInstance": "kube-proxy-node-1",
            "action": "Listen",
            "reason": "Starting",
            "type": "Normal",
            "regarding": {"kind": "Node", "name": "node-1"},
        });
        assert_eq!(check(&event, "default", &[]), Ok(()));
        assert!(check(&event, "shop", &[]).is_err());
        let mut stored = event.clone();
        stored["metadata"]["namespace"] = json!("default");
        assert!(check(&event, "default", &[stored]).is_err());
    }
}
