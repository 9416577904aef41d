//! `Status`, the object of an API server's error responses.

use http::StatusCode;
use serde_json::{Value, json};

use super::kind::Kind;

/// The status code and body of an error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) code: StatusCode,
    /// The `Retry-After` header.
    pub(super) retry_after: Option<u32>,
    reason: &'static str,
    message: String,
    details: Option<Value>,
    /// The token with which a client may continue an expired list inconsistently.
    continuation: Option<String>,
    /// Whether the body is a line of text, as for unknown API groups.
    is_text: bool,
}

/// The error of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cause {
    field: &'static str,
    reason: &'static str,
    message: &'static str,
}

impl Cause {
    pub(super) fn required(field: &'static str) -> Self {
        Self {
            field,
            reason: "FieldValueRequired",
            message: "Required value",
        }
    }

    pub(super) fn invalid(field: &'static str) -> Self {
        Self {
            field,
            reason: "FieldValueInvalid",
            message: "Invalid value",
        }
    }
}

impl Status {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            retry_after: None,
            reason,
            message: message.into(),
            details: None,
            continuation: None,
            is_text: false,
        }
    }

    /// Any status code, with its reason.
    pub(super) fn of_code(code: StatusCode, retry_after: Option<u32>) -> Self {
        let (reason, message) = match code.as_u16() {
            406 => ("NotAcceptable", "406: Not Acceptable"),
            429 => (
                "TooManyRequests",
                "Too many requests, please try again later.",
            ),
            500 => ("InternalError", "Internal error occurred: lab"),
            503 => (
                "ServiceUnavailable",
                "the server is currently unable to handle the request",
            ),
            504 => (
                "Timeout",
                "the request timed out and could not be completed",
            ),
            _ => ("", "the test injected this error"),
        };
        let mut status = Self::new(code, reason, message);
        status.retry_after = retry_after;
        status.details = retry_after.map(|seconds| json!({"retryAfterSeconds": seconds}));
        if code == StatusCode::NOT_ACCEPTABLE {
            status.details = Some(json!({}));
        }
        status
    }

    pub(super) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    pub(super) fn forbidden(user: &str, verb: &str, kind: Kind) -> Self {
        let (resource, group) = (kind.resource(), kind.group());
        let qualified = match group {
            "" => resource.to_owned(),
            _ => format!("{resource}.{group}"),
        };
        let message = format!(
            "{qualified} is forbidden: User {user:?} cannot {verb} resource {resource:?} in API \
             group {group:?} at the cluster scope"
        );
        let mut status = Self::new(StatusCode::FORBIDDEN, "Forbidden", message);
        status.details = Some(match group {
            "" => json!({"kind": resource}),
            _ => json!({"group": group, "kind": resource}),
        });
        status
    }

    pub(super) fn no_such_path() -> Self {
        let message = "the server could not find the requested resource";
        let mut status = Self::new(StatusCode::NOT_FOUND, "NotFound", message);
        status.details = Some(json!({}));
        status
    }

    /// A path in an unknown API group.
    pub(super) fn no_such_group() -> Self {
        let mut status = Self::new(StatusCode::NOT_FOUND, "NotFound", "404 page not found");
        status.is_text = true;
        status
    }

    /// An object that does not exist.
    pub(super) fn no_such_object(kind: Kind, name: &str) -> Self {
        let resource = kind.resource();
        let message = format!("{resource} {name:?} not found");
        let mut status = Self::new(StatusCode::NOT_FOUND, "NotFound", message);
        status.details = Some(json!({"name": name, "kind": resource}));
        status
    }

    pub(super) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        let mut status = Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message);
        status.details = Some(json!({}));
        status
    }

    /// A watch with an invalid resourceVersion, which real servers report as an internal error.
    pub(super) fn no_version_of_watch(value: &str) -> Self {
        let message = format!("resourceVersion: Invalid value: {value:?}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    pub(super) fn invalid_event(name: &str, causes: Vec<Cause>) -> Self {
        let list: Vec<_> = causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect();
        let message = format!("Event {name:?} is invalid: {}", list.join(", "));
        let mut status = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        let causes = causes.into_iter().map(|cause| {
            let Cause {
                field,
                reason,
                message,
            } = cause;
            json!({"reason": reason, "message": message, "field": field})
        });
        let causes: Vec<_> = causes.collect();
        status.details = Some(json!({"name": name, "kind": "Event", "causes": causes}));
        status
    }

    /// An Event whose name exists already.
    pub(super) fn event_exists(name: &str) -> Self {
        let message = format!("events.events.k8s.io {name:?} already exists");
        let mut status = Self::new(StatusCode::CONFLICT, "AlreadyExists", message);
        status.details = Some(json!({"name": name, "group": "events.k8s.io", "kind": "events"}));
        status
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// Options of a list or a watch that must not be combined.
    pub(super) fn forbidden_option(field: &str, message: &str) -> Self {
        Self::invalid_option(
            field,
            "FieldValueForbidden",
            &format!("Forbidden: {message}"),
        )
    }

    /// An invalid `resourceVersionMatch`.
    pub(super) fn unsupported_match(value: &str) -> Self {
        let message = format!(
            "Unsupported value: {value:?}: supported values: \"Exact\", \"NotOlderThan\", \"\""
        );
        Self::invalid_option("resourceVersionMatch", "FieldValueNotSupported", &message)
    }

    fn invalid_option(field: &str, reason: &str, message: &str) -> Self {
        let text = format!("ListOptions.meta.k8s.io \"\" is invalid: {field}: {message}");
        let mut status = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", text);
        status.details = Some(json!({
            "group": "meta.k8s.io",
            "kind": "ListOptions",
            "causes": [{"reason": reason, "message": message, "field": field}],
        }));
        status
    }

    /// A watch with an expired resourceVersion; sent as an event, in a 200 response.
    pub(super) fn watch_expired(asked: u64, oldest: u64) -> Self {
        let message = format!("too old resource version: {asked} ({oldest})");
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// A watch-list on a storage that cannot report its progress; sent as an event, in a 200 response.
    pub(super) fn no_watch_progress() -> Self {
        let message = "a watch stream was requested by the client but the required storage feature \
                       RequestWatchProgress is disabled";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// A list with an expired resourceVersion.
    pub(super) fn list_expired() -> Self {
        let message = "The resourceVersion for the provided list is too old.";
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// An expired continue token. The new token continues with the most recent state.
    pub(super) fn continue_expired(token: String) -> Self {
        let message = "The provided continue parameter is too old to display a consistent list \
                       result.";
        let mut status = Self::new(StatusCode::GONE, "Expired", message);
        status.continuation = Some(token);
        status
    }

    /// A future resourceVersion.
    pub(super) fn too_large_version(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let mut status = Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message);
        status.retry_after = Some(1);
        status.details = Some(json!({
            "retryAfterSeconds": 1,
            "causes": [{
                "reason": "ResourceVersionTooLarge",
                "message": "Too large resource version",
            }],
        }));
        status
    }

    /// The text of the response, if it is not an object.
    pub(super) fn text(&self) -> Option<String> {
        self.is_text.then(|| format!("{}\n", self.message))
    }

    pub(super) fn object(&self) -> Value {
        let metadata = match &self.continuation {
            Some(token) => json!({"continue": token}),
            None => json!({}),
        };
        let mut object = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
            "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            object["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            object["details"] = details.clone();
        }
        object
    }
}
