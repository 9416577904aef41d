//! A cluster that changes while the daemon cannot reach the API server: its objects and flows before and after.

use super::manifests::{service, web};

/// The flows of [`manifests_before`].
pub const FLOWS_BEFORE: &str = "pod-c > 10.96.0.10:80 => 10.244.1.10:8080
pod-c > 10.96.0.11:80 => 10.244.2.11:8080
pod-c > 10.96.0.12:80 => 10.244.2.12:8080
pod-c > 10.96.0.13:80 => dropped";

/// The flows after [`manifests_after`] were applied and [`DELETED_SERVICE`] was deleted.
pub const FLOWS_AFTER: &str = "pod-c > 10.96.0.10:80 => 10.244.2.10:8080
pod-c > 10.96.0.11:80 => 10.244.2.11:8080
pod-c > 10.96.0.12:80 => dropped
pod-c > 10.96.0.13:80 => 10.244.1.11:8080";

/// The Service that is deleted during the outage.
pub const DELETED_SERVICE: &str = "deleted";

/// Three Services: one whose endpoint changes, one that stays as it is, and [`DELETED_SERVICE`].
pub fn manifests_before() -> [String; 3] {
    [
        web(&["1.10"]),
        service("unchanged", 11, 30081, &["2.11"]),
        service(DELETED_SERVICE, 12, 30082, &["2.12"]),
    ]
}

/// The Service with its new endpoint, and one that is new.
pub fn manifests_after() -> [String; 2] {
    [web(&["2.10"]), service("new", 13, 30083, &["1.11"])]
}
