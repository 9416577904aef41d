//! Packets that match no service port.

use super::profile::OtherPorts;
use super::{Cause, Outcome, Trace, Tracer, hints, masquerade};

impl Tracer<'_> {
    /// No service port is addressed.
    pub(super) fn unmatched(&self) -> Trace {
        let mut trace = (self.no_such_port())
            .or_else(|| self.no_such_cluster_ip())
            .unwrap_or_else(|| self.unknown());
        if trace.outcome == Outcome::NotAService {
            trace.masquerade = masquerade::of_passing(self);
        }
        trace.hints = hints::of_unmatched(self);
        trace
    }

    /// It is for a port that no Service has, at an address of a Service, and the mode has a rule for that.
    fn no_such_port(&self) -> Option<Trace> {
        let what = match self.context.profile.other_ports {
            OtherPorts::Routed => return None,
            OtherPorts::RejectedOnClusterIps => {
                (self.is_checked() && self.is_cluster_ip()).then_some("a cluster IP")
            }
            // A cluster IP is on this node because we put it there; another address may have been its own before.
            OtherPorts::RejectedOnServiceAddresses => {
                let is_ours = self.is_cluster_ip() || !self.is_local() && self.is_service_address();
                is_ours.then_some("an address of a Service")
            }
        }?;
        let because = format!(
            "{} is {what}, but no Service has port {} there",
            self.packet.destination,
            self.packet.port_and_protocol()
        );
        Some(self.answer(Outcome::Refused, Cause::NoSuchPort, because))
    }

    /// It is in a ServiceCIDR, and the mode has a rule for addresses that no Service has.
    fn no_such_cluster_ip(&self) -> Option<Trace> {
        let to = self.packet.destination;
        let is_asked = self.context.profile.drops_unallocated_cluster_ips && self.is_checked();
        let mut cidrs = self.desired.node.service_cidrs.iter();
        let cidr = cidrs.find(|cidr| is_asked && cidr.contains(&to))?;
        let because =
            format!("{to} is in the range of cluster IPs ({cidr}), but no Service has it");
        Some(self.answer(Outcome::Dropped, Cause::NoSuchClusterIp, because))
    }

    fn unknown(&self) -> Trace {
        let because = format!(
            "no Service is known at {}; the packet goes where routing sends it",
            self.packet.target()
        );
        self.answer(Outcome::NotAService, Cause::Unknown, because)
    }

    /// Only what is forwarded or sent by the node itself passes the rules about cluster IPs.
    fn is_checked(&self) -> bool {
        self.is_from_node() || !self.is_local()
    }

    pub(super) fn is_cluster_ip(&self) -> bool {
        self.has_frontend(true)
    }

    /// The destination is a Service's, of whatever kind.
    pub(super) fn is_service_address(&self) -> bool {
        self.has_frontend(false)
    }

    fn has_frontend(&self, only_internal: bool) -> bool {
        let to = self.packet.destination;
        let ports = self.desired.ports.values();
        let mut frontends = ports.flat_map(|port| &*port.frontends);
        frontends.any(|frontend| {
            (frontend.is_internal() || !only_internal)
                && frontend.address().is_some_and(|at| at.ip() == to)
        })
    }
}
