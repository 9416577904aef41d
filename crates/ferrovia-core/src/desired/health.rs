//! Health of this node's endpoints for load balancers and metrics: the health checks of Services whose external traffic must stay
//! local, and how many service ports lack required local endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::{PortChange, ServicePort};
use crate::family::Family;
use crate::model::{EndpointSlice, Service, ServiceKey, TrafficPolicy};

/// The health checks of one family, by Service.
pub type HealthChecks = BTreeMap<ServiceKey, HealthCheck>;

/// The answer to a load balancer's health check of a Service on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// The node port it asks on.
    pub port: u16,
    /// Pods on this node that are ready for new traffic.
    pub local_endpoints: u32,
}

/// Makes the health check of a Service; none if it has none or is not of the family.
pub(super) fn health_check<'a>(
    service: &Service,
    slices: impl Iterator<Item = &'a EndpointSlice>,
    family: Family,
    node_name: &str,
) -> Option<HealthCheck> {
    let port = service.health_check_port?;
    service.cluster_ips[family]?;
    let ips: BTreeSet<IpAddr> = slices
        .filter(|slice| slice.family == family && is_usable(slice))
        .flat_map(|slice| &slice.endpoints)
        .filter(|endpoint| endpoint.ready && endpoint.node.as_deref() == Some(node_name))
        .map(|endpoint| endpoint.ip)
        .collect();
    Some(HealthCheck {
        port,
        local_endpoints: u32::try_from(ips.len()).unwrap_or(u32::MAX),
    })
}

/// Weight 0 takes endpoints out as if they were not there. Without a port nothing leads to them: that is how pods are listed that have no port
/// of the name the Service asks for.
fn is_usable(slice: &EndpointSlice) -> bool {
    slice.weight > 0 && !slice.ports.is_empty()
}

/// Puts a Service's health check into the map, or takes it out. True if it is asked on another port from now on.
pub(super) fn set_health_check(
    checks: &mut Arc<HealthChecks>,
    key: &ServiceKey,
    check: Option<HealthCheck>,
) -> bool {
    // Most Services have none, so the map is only copied when it is shared and really changes.
    if checks.get(key) == check.as_ref() {
        return false;
    }
    let checks = Arc::make_mut(checks);
    let old = match check {
        Some(check) => checks.insert(key.clone(), check),
        None => checks.remove(key),
    };
    old.map(|old| old.port) != check.map(|new| new.port)
}

/// Service ports that have endpoints, but none on this node although a policy asks for those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WithoutLocal {
    /// By the policy for cluster IPs.
    pub internal: usize,
    /// By the policy for external addresses and node ports.
    pub external: usize,
}

impl WithoutLocal {
    /// Takes changes into account.
    pub(super) fn follow(&mut self, changes: &[PortChange]) {
        for change in changes {
            let (old, new) = (Self::of(&change.old), Self::of(&change.new));
            self.internal = self.internal + new.internal - old.internal;
            self.external = self.external + new.external - old.external;
        }
    }

    fn of(port: &Option<Arc<ServicePort>>) -> Self {
        let Some(port) = port
            .as_ref()
            .filter(|port| port.any_endpoints && port.local.is_empty())
        else {
            return Self::default();
        };
        let lacks = |policy, internal| {
            let serves = port.frontends.iter().any(|f| f.is_internal() == internal);
            usize::from(policy == TrafficPolicy::Local && serves)
        };
        Self {
            internal: lacks(port.internal_policy, true),
            external: lacks(port.external_policy, false),
        }
    }
}

#[cfg(test)]
mod tests;
