//! Objects against the types of the API. A field that the API does not know is lost on the way through its type, and that is noticed.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::support::title;

/// The object is one the API would take, with every field of it.
pub(crate) fn check(object: &Value) {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default();
    let result = match (version, kind) {
        ("apps/v1", "DaemonSet") => through::<DaemonSet>(object),
        ("v1", "ConfigMap") => through::<ConfigMap>(object),
        ("v1", "Service") => through::<Service>(object),
        ("v1", "ServiceAccount") => through::<ServiceAccount>(object),
        ("rbac.authorization.k8s.io/v1", "ClusterRole") => through::<ClusterRole>(object),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding") => {
            through::<ClusterRoleBinding>(object)
        }
        // Not of Kubernetes itself; there is no type for it here.
        ("monitoring.coreos.com/v1", "ServiceMonitor") => Ok(()),
        _ => Err(format!(
            "{version} {kind} is not among the kinds we install"
        )),
    };
    if let Err(error) = result {
        panic!("{}: {error}", title(object));
    }
}

fn through<T: DeserializeOwned + Serialize>(object: &Value) -> Result<(), String> {
    let known: T = serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
    let back = serde_json::to_value(known).map_err(|error| error.to_string())?;
    match lost(object, &back, String::new()) {
        Some(field) => Err(format!("the API knows no field {field}")),
        None => Ok(()),
    }
}

/// The first field of one that the other lacks.
fn lost(given: &Value, kept: &Value, place: String) -> Option<String> {
    match (given, kept) {
        (Value::Object(given), Value::Object(kept)) => given.iter().find_map(|(name, value)| {
            let place = format!("{place}.{name}");
            match kept.get(name) {
                Some(kept) => lost(value, kept, place),
                None => (!is_empty(value)).then_some(place),
            }
        }),
        (Value::Array(given), Value::Array(kept)) if given.len() == kept.len() => {
            let mut pairs = given.iter().zip(kept).enumerate();
            pairs.find_map(|(index, (given, kept))| lost(given, kept, format!("{place}[{index}]")))
        }
        _ => (given != kept).then_some(place),
    }
}

/// Written, but the same as nothing.
fn is_empty(value: &Value) -> bool {
    matches!(value, Value::Null) || *value == json!({}) || *value == json!([])
}

#[test]
fn a_misspelt_field_is_noticed() {
    let object = |field: &str| {
        json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "x" }, "spec": {
            "selector": {}, "template": { "spec": { "containers": [{ "name": "a", field: true }] } }
        } })
    };
    assert_eq!(through::<DaemonSet>(&object("stdin")), Ok(()));
    let error = through::<DaemonSet>(&object("stdinn")).unwrap_err();
    assert!(
        error.contains(".spec.template.spec.containers[0].stdinn"),
        "{error}"
    );
}
