//! The options of a Service: words and numbers that have a default, which is used where they are missing or bad.

use super::{CreationTime, port_number};
use crate::model::{Algorithm, Scheduler, TrafficPolicy, Warnings, excerpt};
use crate::wire;

pub(super) const ALGORITHM_ANNOTATION: &str = "ferrovia.io/algorithm";
pub(super) const SCHEDULER_ANNOTATION: &str = "ferrovia.io/scheduler";

/// Seconds a client sticks to its endpoint unless the Service says otherwise.
pub(crate) const DEFAULT_AFFINITY: u32 = 10_800;
/// The API's limit: a day.
pub(crate) const MAX_AFFINITY: u32 = 86_400;

/// Seconds of session affinity. Objects older than the time-out field have none, and then the API server's default holds.
pub(super) fn affinity(spec: &wire::ServiceSpec, warnings: &mut Warnings<'_>) -> Option<u32> {
    match spec.session_affinity.as_str() {
        "ClientIP" => {}
        "" | "None" => return None,
        other => {
            let problem = format!(
                "{} is neither None nor ClientIP; None is used",
                excerpt(other)
            );
            warnings.add("spec.sessionAffinity", problem);
            return None;
        }
    }
    let config = spec
        .session_affinity_config
        .as_ref()
        .and_then(|config| config.client_ip.as_ref());
    let Some(seconds) = config.and_then(|config| config.timeout_seconds) else {
        return Some(DEFAULT_AFFINITY);
    };
    let allowed = u32::try_from(seconds)
        .ok()
        .filter(|seconds| (1..=MAX_AFFINITY).contains(seconds));
    if allowed.is_none() {
        let problem =
            format!("{seconds} is not between 1 and {MAX_AFFINITY}; {DEFAULT_AFFINITY} is used");
        warnings.add(
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
            problem,
        );
    }
    allowed.or(Some(DEFAULT_AFFINITY))
}

/// `Local` counts only for a Service that can be reached from outside; the API server lets it stand on others.
pub(super) fn external_policy(
    spec: &wire::ServiceSpec,
    warnings: &mut Warnings<'_>,
) -> TrafficPolicy {
    let is_external = match spec.kind.as_str() {
        "LoadBalancer" | "NodePort" => true,
        "" | "ClusterIP" => !spec.external_ips.is_empty(),
        other => {
            let problem = format!(
                "{} is not a known type; ClusterIP is assumed",
                excerpt(other)
            );
            warnings.add("spec.type", problem);
            !spec.external_ips.is_empty()
        }
    };
    let policy = policy(
        "externalTrafficPolicy",
        &spec.external_traffic_policy,
        warnings,
    );
    if is_external {
        policy
    } else {
        TrafficPolicy::Cluster
    }
}

/// A policy by its name. An unknown one is read as `Cluster`, which is what proxies older than a new policy do.
pub(super) fn policy(field: &str, text: &str, warnings: &mut Warnings<'_>) -> TrafficPolicy {
    match text {
        "Local" => TrafficPolicy::Local,
        "" | "Cluster" => TrafficPolicy::Cluster,
        other => {
            let problem = format!(
                "{} is neither Cluster nor Local; Cluster is used",
                excerpt(other)
            );
            warnings.add(format!("spec.{field}"), problem);
            TrafficPolicy::Cluster
        }
    }
}

/// Load balancers ask each node whether it has endpoints of its own, which matters only under policy `Local`.
pub(super) fn health_check_port(
    spec: &wire::ServiceSpec,
    external_policy: TrafficPolicy,
    warnings: &mut Warnings<'_>,
) -> Option<u16> {
    if spec.kind != "LoadBalancer" || external_policy != TrafficPolicy::Local {
        return None;
    }
    let port = port_number(spec.health_check_node_port);
    if port.is_none() {
        let problem = match spec.health_check_node_port {
            0 => {
                "is not given; load balancers cannot ask whether this node has endpoints".to_owned()
            }
            number => format!("{number} is not a port number; there is no health check"),
        };
        warnings.add("spec.healthCheckNodePort", problem);
    }
    port
}

/// Ports of a Service that hashes sources: each has a table of its own, which may be sixteen times as long as its list of endpoints.
const MOST_HASHED_PORTS: usize = 64;

/// How endpoints are chosen: ours alone, so it is an annotation and a bad value must not cost the Service anything.
pub(super) fn algorithm(
    metadata: &wire::Metadata,
    ports: usize,
    warnings: &mut Warnings<'_>,
) -> Algorithm {
    match metadata
        .annotations
        .get(ALGORITHM_ANNOTATION)
        .map(String::as_str)
    {
        None | Some("random") => Algorithm::Random,
        Some("source-hash") if ports <= MOST_HASHED_PORTS => Algorithm::SourceHash,
        Some("source-hash") => {
            let problem = format!(
                "source-hash is for Services of at most {MOST_HASHED_PORTS} ports, and this one has {ports}; random is used"
            );
            let field = format!("metadata.annotations[{ALGORITHM_ANNOTATION}]");
            warnings.add(field, problem);
            Algorithm::Random
        }
        Some(other) => {
            let problem = format!(
                "{} is neither random nor source-hash; random is used",
                excerpt(other)
            );
            warnings.add(
                format!("metadata.annotations[{ALGORITHM_ANNOTATION}]"),
                problem,
            );
            Algorithm::Random
        }
    }
}

/// The scheduler a Service asks for. Whether this kernel has it is not known here.
pub(super) fn scheduler(
    metadata: &wire::Metadata,
    warnings: &mut Warnings<'_>,
) -> Option<Scheduler> {
    let name = metadata.annotations.get(SCHEDULER_ANNOTATION)?;
    let scheduler = Scheduler::known(name);
    if scheduler.is_none() {
        let problem = format!(
            "{} is not a scheduler of the kernel's ({}); the default one is used",
            excerpt(name),
            Scheduler::NAMES.join(", ")
        );
        warnings.add(
            format!("metadata.annotations[{SCHEDULER_ANNOTATION}]"),
            problem,
        );
    }
    scheduler
}

/// The creation time, which decides between rivals. One that does not sort with the others is worse than none.
pub(super) fn created(
    metadata: &wire::Metadata,
    warnings: &mut Warnings<'_>,
) -> Option<CreationTime> {
    let text = metadata.creation_timestamp.as_deref()?;
    let created = CreationTime::parse(text);
    if created.is_none() {
        let problem = format!(
            "{} is not a time in UTC to the second; it is ignored",
            excerpt(text)
        );
        warnings.add("metadata.creationTimestamp", problem);
    }
    created
}
