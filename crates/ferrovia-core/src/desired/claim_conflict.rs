//! The warning about a frontend that another Service has.
//!
//! It becomes an Event on the losing Service, whose author may be another tenant than the winner's. The Event names the field, the frontend
//! and the reason, and the winner only if it is in the same namespace. Operators of the node always see the winner.

use super::Frontend;
use super::claims::{Stake, WinReason};
use crate::family::Family;
use crate::model::{PortKey, Warnings};

/// Reports that a frontend is lost to another service port.
pub(super) fn report_claim_conflict(
    frontend: Frontend,
    stake: &Stake,
    family: Family,
    winner: &PortKey,
    basis: WinReason,
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
        WinReason::ClusterIp => "has it as its cluster IP",
        WinReason::NodePort => "has it as its node port",
        WinReason::LoadBalancer => "has it as its load balancer's address",
        WinReason::Age => "claimed it first",
    };
    let problem = format!(
        "{what}/{} of {key} is not served: {who} {why}",
        key.protocol
    );
    warnings.add_with_detail(field, problem, detail);
}
