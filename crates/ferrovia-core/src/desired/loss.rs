//! What is said of a frontend that another Service has.
//!
//! The author of the losing Service reads it in an Event, and may be another tenant than the winner's. The author learns which field lost what
//! and how the winner came to have it, and the winner's name only if it is in the same namespace. Those who run the node learn the name in any case.

use super::Frontend;
use super::claims::{Basis, Stake};
use crate::family::Family;
use crate::model::{PortKey, Warnings};

/// Reports that a frontend is lost to another service port.
pub(super) fn report(
    frontend: Frontend,
    stake: &Stake,
    family: Family,
    winner: &PortKey,
    basis: Basis,
    warnings: &mut Warnings<'_>,
) {
    let (field, what) = match frontend {
        Frontend::ClusterIp(address) => ("spec.clusterIP", address.to_string()),
        Frontend::ExternalIp(address) => ("spec.externalIPs", address.to_string()),
        Frontend::LoadBalancer(address) => ("status.loadBalancer.ingress", address.to_string()),
        Frontend::NodePort(port) => ("spec.ports", format!("{family} node port {port}")),
    };
    let key = &stake.port;
    let is_known = winner.service.namespace() == key.service.namespace();
    let (who, detail) = if is_known {
        (winner.to_string(), None)
    } else {
        let who = "a Service in another namespace".to_owned();
        (who, Some(format!("the Service is {winner}")))
    };
    let why = match basis {
        Basis::ClusterIp => "has it as its cluster IP",
        Basis::NodePort => "has it as its node port",
        Basis::LoadBalancer => "has it as its load balancer's address",
        Basis::Age => "claimed it first",
    };
    let problem = format!(
        "{what}/{} of {key} is not served: {who} {why}",
        key.protocol
    );
    warnings.add_with_detail(field, problem, detail);
}
