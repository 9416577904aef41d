//! What a trace says.

use serde::{Deserialize, Serialize};

use super::{EndpointFate, FrontendKind, Masquerade, Packet, TraceProfile};

/// What becomes of a packet, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trace {
    /// The packet.
    pub packet: Packet,
    /// The mode that programs the kernel; serialised as its name.
    #[serde(rename = "mode")]
    pub profile: TraceProfile,
    /// What becomes of it.
    pub outcome: Outcome,
    /// Why, as a stable identifier.
    pub cause: Cause,
    /// Why, as a sentence.
    pub because: String,
    /// The service port it is for, if any.
    pub service: Option<ServiceMatch>,
    /// Every endpoint of that port, in order of address, used or not.
    pub endpoints: Vec<EndpointFate>,
    /// The source address that the receiver sees, where that does not depend on the endpoint.
    pub masquerade: Masquerade,
    /// What else is worth knowing, as sentences.
    pub hints: Vec<String>,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// One of the endpoints gets it.
    Delivered,
    /// The sender gets a reset or an ICMP error.
    Refused,
    /// It is discarded without an answer.
    Dropped,
    /// No rule of ours is about it: it goes where routing sends it.
    NotAService,
}

/// Why a packet has its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The service port has endpoints for it.
    EndpointsReady,
    /// All endpoints are on their way out, but answer.
    EndpointsTerminating,
    /// The service port has no usable endpoint anywhere.
    NoEndpoints,
    /// It has some, but the policy allows none of them here.
    NoLocalEndpoints,
    /// The sender is outside of the load balancer's source ranges.
    SourceRanges,
    /// It is a cluster IP, but no Service has that port there.
    NoSuchPort,
    /// It is in the range of cluster IPs, but no Service has it.
    NoSuchClusterIp,
    /// Nothing is known of the destination.
    Unknown,
    /// A Service is known, but the mode has no rule for this packet.
    NotCovered,
    /// The mode does not support the protocol.
    NotCarried,
}

/// The service port a packet is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServiceMatch {
    /// The Service's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The name of its port, empty for an unnamed one.
    pub port: String,
    /// What kind of address the packet was sent to.
    pub frontend: FrontendKind,
    /// The policy that decides which endpoints are used: `Cluster` or `Local`.
    pub policy: &'static str,
    /// Why that one, as a sentence.
    pub policy_because: String,
    /// Seconds a client stays with its endpoint; none without session affinity.
    pub affinity_seconds: Option<u32>,
    /// How an endpoint is chosen: `random` or `source-hash`.
    pub algorithm: &'static str,
    /// What became of topology hints, as a sentence; none where there were none to follow.
    pub topology: Option<String>,
}
