//! The first packet of a connection.

use std::fmt;
use std::net::IpAddr;

use serde::{Serialize, Serializer};

use super::at;
use crate::desired::LocalDetector;
use crate::model::Protocol;

/// The first packet of a connection, as it meets this node's rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Packet {
    /// The sender's address.
    pub source: IpAddr,
    /// Where the sender is.
    pub place: Place,
    /// The address it is sent to, of the same family.
    pub destination: IpAddr,
    /// The port it is sent to.
    pub port: u16,
    /// `tcp`, `udp` or `sctp`.
    #[serde(serialize_with = "as_text")]
    pub protocol: Protocol,
}

/// Where a packet comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// This node itself.
    Node,
    /// A pod of this node.
    LocalPod,
    /// A pod of another node.
    RemotePod,
    /// Beyond the cluster, or unknown.
    Outside,
}

impl Packet {
    /// The destination as people write it.
    pub fn target(&self) -> String {
        format!("{}/{}", at(self.destination, self.port), self.protocol)
    }

    pub(super) fn port_and_protocol(&self) -> String {
        format!("{}/{}", self.port, self.protocol)
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) -> {}", self.source, self.place, self.target())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Node => "this node",
            Self::LocalPod => "a pod of this node",
            Self::RemotePod => "a pod of another node",
            Self::Outside => "outside",
        })
    }
}

fn as_text<S: Serializer>(protocol: &Protocol, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(protocol)
}

impl super::TraceContext<'_> {
    /// Where the host with an address is, as far as objects and interfaces show it.
    pub fn place(&self, source: IpAddr) -> Place {
        let desired = self.builder.desired(crate::family::Family::of(source));
        if source.is_loopback() || self.addresses.contains(&source) {
            return Place::Node;
        }
        let mut known = desired
            .ports
            .values()
            .flat_map(|p| p.cluster.iter().chain(&*p.local));
        let endpoint = known.find(|endpoint| endpoint.ip == source);
        let pod_cidr = self
            .store
            .node()
            .and_then(|node| node.pod_cidr(desired.family));
        let in_pod_cidr = pod_cidr.map(|net| net.contains(&source));
        match (endpoint, in_pod_cidr, &desired.node.local) {
            (Some(endpoint), ..) if endpoint.is_local => Place::LocalPod,
            (Some(_), ..) => Place::RemotePod,
            (None, Some(true), _) => Place::LocalPod,
            (None, in_pod_cidr, LocalDetector::Source(net)) if net.contains(&source) => {
                // The range may be the whole cluster's; this node's own, if known, is more exact.
                if in_pod_cidr.is_some() {
                    Place::RemotePod
                } else {
                    Place::LocalPod
                }
            }
            _ => Place::Outside,
        }
    }

    /// The source address of what this node sends: routing sends what is for one of its own addresses by loopback, from that address.
    /// `primary` is for everything else.
    pub fn node_source(&self, destination: IpAddr, primary: IpAddr) -> IpAddr {
        if destination.is_loopback() || self.addresses.contains(&destination) {
            destination
        } else {
            primary
        }
    }
}

impl super::Tracer<'_> {
    /// The mode takes the sender for a pod.
    pub(super) fn is_from_pod(&self) -> bool {
        match &self.desired.node.local {
            LocalDetector::Off => false,
            LocalDetector::Source(net) => net.contains(&self.packet.source),
            LocalDetector::Interface(_) | LocalDetector::InterfacePrefix(_) => {
                self.packet.place == Place::LocalPod && self.context.profile.sees_interfaces
            }
        }
    }
}
