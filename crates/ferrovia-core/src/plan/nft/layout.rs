//! The fixed parts of our ruleset: names, sets and what the bits of an id mean.
//!
//! The number of chains and rules does not depend on the number of services. What belongs to a service lives in maps whose values are plain
//! data, because the kernel walks every element of a *verdict* map again at each commit that adds a jump; with 50,000 services that would
//! make the smallest change cost milliseconds instead of microseconds.
//!
//! A lookup cannot be keyed by the outcome of another lookup, so the outcome has to be put somewhere in between. `meta priority` is
//! that place: it belongs to the packet, IPv4 forwarding overwrites it (IPv6 does not use it), and only the first packet of a
//! connection comes by here. It holds an **id**:
//!
//! ```text
//!  31 30            14 13 12 11 10         0
//! ┌──┬────────────────┬──┬──┬──┬────────────┐   L the list for policy Local
//! │1 │ service port   │L │M │S │ class      │   M masquerade
//! └──┴────────────────┴──┴──┴──┴────────────┘   S the list depends on the source
//! ```
//!
//! A service port has two lists of endpoints, one for each traffic policy. The *class* is how an endpoint is selected from a list and leads to one of a
//! few shared chains. With session affinity the low 13 bits hold the number of an endpoint instead; an endpoint has the same number in
//! both lists, so that a client keeps its endpoint whichever way it comes.

use crate::dialect::nft::{DataType, Field, FieldType, SetSpec};
use crate::family::Family;
use crate::model::MOST_PORTS;

pub const TABLE: &str = "ferrovia";

/// Tables that did our work before us; removed in the transaction that first writes ours.
pub const PREDECESSORS: [&str; 1] = ["kube-proxy"];

/// Marks an id in `meta priority` as ours.
pub(super) const TAG: u32 = 1 << 31;
/// How many low bits are not the list's.
const LIST_SHIFT: u32 = 13;
/// The bits that name a list, the tag included.
pub(super) const LIST_BITS: u32 = !0 << LIST_SHIFT;
/// The list for policy Local.
pub(super) const LOCAL: u32 = 1 << LIST_SHIFT;
/// How many low bits are not the service port's.
const PORT_SHIFT: u32 = LIST_SHIFT + 1;
/// The bits that name a service port, the tag included.
pub(super) const PORT_BITS: u32 = !0 << PORT_SHIFT;
/// The connection is to be masqueraded.
pub(super) const MASQUERADE: u32 = 1 << 12;
/// The list depends on where the packet comes from.
pub(super) const BY_SOURCE: u32 = 1 << 11;
/// The bits of the class.
pub(super) const CLASS_BITS: u32 = BY_SOURCE - 1;
/// The most service ports there can be.
pub(super) const MAX_PORTS: u32 = 1 << (31 - PORT_SHIFT);
const _: () = assert!(MAX_PORTS as usize == MOST_PORTS);
/// The most endpoints that the lists of a service port with affinity can have together: number 0 stands for "none".
pub(super) const MAX_STICKY: usize = (1 << LIST_SHIFT) - 1;

/// The id of a service port's list for policy Cluster, without anything else.
pub(super) fn port_id(number: u32) -> u32 {
    TAG | number << PORT_SHIFT
}

/// The number of the service port an id is of.
pub(super) fn port_number(id: u32) -> u32 {
    (id & !TAG) >> PORT_SHIFT
}

/// How many clients' affinities are remembered per family. More than that are still served, only not remembered.
const AFFINITY_SIZE: u32 = 262_144;
/// How many pairs of frontend and endpoint are counted per family. Connections between others still work, only uncounted.
const CONNECTIONS_SIZE: u32 = 131_072;
/// How many frontends' refusals are counted per family.
const REFUSALS_SIZE: u32 = 16_384;

/// Chains that are always there and have no hook.
pub(super) mod chain {
    pub(crate) const SERVICES: &str = "services";
    pub(crate) const DISPATCH: &str = "dispatch";
    pub(crate) const EXTERNAL_LOCAL: &str = "external-local";
    pub(crate) const PICK: &str = "pick";
    pub(crate) const FIREWALL: &str = "firewall";
    pub(crate) const SERVICE_REFUSALS: &str = "service-refusals";
    pub(crate) const NODE_PORT_REFUSALS: &str = "nodeport-refusals";
    pub(crate) const CLUSTER_IPS_CHECK: &str = "cluster-ips-check";
    pub(crate) const REJECTING: &str = "rejecting";
    pub(crate) const DROPPING: &str = "dropping";
    pub(crate) const MASQUERADING: &str = "masquerading";
    pub(crate) const COUNT: &str = "count";
    pub(crate) const COUNTING: &str = "counting";
}

/// The sets and maps of our table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NftSetId {
    /// Address, protocol and port of a service → id.
    Services,
    /// Protocol and node port → id.
    NodePorts,
    /// For traffic to external addresses under policy Local: service port → id to use for pods and this node.
    ExternalInside,
    /// The same for traffic from outside; nothing if no endpoint is local.
    ExternalOutside,
    /// Class → selector chain. The only verdict map; its size is the number of selector classes.
    Picks,
    /// Protocol, list and slot → endpoint.
    Endpoints,
    /// List and slot → list and number of an endpoint, for lists with affinity.
    StickySlots,
    /// Protocol, list and number → endpoint, for lists with affinity.
    StickyEndpoints,
    /// Client and service port → list and number of the endpoint it sticks to. Written by packets.
    Affinity,
    /// Services without any endpoint; rejected, or dropped if so configured.
    RejectedServices,
    /// Services whose policy leaves no endpoint here.
    DroppedServices,
    /// Node ports without any endpoint; the same holds.
    RejectedNodePorts,
    /// Node ports whose policy leaves no endpoint here.
    DroppedNodePorts,
    ClusterIps,
    /// This node's addresses that node ports answer on, unless all do.
    NodePortIps,
    /// Load balancer addresses with source ranges.
    Restricted,
    AllowedSources,
    /// Endpoints on this node with themselves as clients.
    Hairpin,
    /// Endpoint and frontend of connections, counted. Written by packets.
    Connections,
    /// Frontends of packets that were refused, counted. Written by packets.
    Refusals,
}

impl NftSetId {
    /// All sets, in the order they are made and filled.
    pub const ALL: [Self; 20] = [
        Self::Picks,
        Self::Endpoints,
        Self::StickySlots,
        Self::StickyEndpoints,
        Self::Affinity,
        Self::ExternalInside,
        Self::ExternalOutside,
        Self::Services,
        Self::NodePorts,
        Self::RejectedServices,
        Self::DroppedServices,
        Self::RejectedNodePorts,
        Self::DroppedNodePorts,
        Self::ClusterIps,
        Self::NodePortIps,
        Self::Restricted,
        Self::AllowedSources,
        Self::Hairpin,
        Self::Connections,
        Self::Refusals,
    ];

    /// The set is there only if connections are counted.
    pub fn counts(self) -> bool {
        matches!(self, Self::Connections | Self::Refusals)
    }

    /// Elements may be asked for by several service ports at once.
    pub(super) fn is_shared(self) -> bool {
        matches!(self, Self::ClusterIps | Self::Hairpin)
    }

    pub fn spec(self, family: Family) -> SetSpec {
        let types = match family {
            Family::V4 => &V4,
            Family::V6 => &V6,
        };
        let set = |name, key| SetSpec {
            name,
            key,
            data: None,
            interval: false,
            dynamic: None,
            counter: false,
        };
        let map = |name, key, data| SetSpec {
            data: Some(DataType::Fields(data)),
            ..set(name, key)
        };
        let counting = |name, key, size| SetSpec {
            dynamic: Some(size),
            counter: true,
            ..set(name, key)
        };
        match self {
            Self::Services => map("services", types.service, ID),
            Self::NodePorts => map("nodeports", NODE_PORT, ID),
            Self::ExternalInside => map("external-inside", ID, ID),
            Self::ExternalOutside => map("external-outside", ID, ID),
            Self::Picks => SetSpec {
                data: Some(DataType::Verdict),
                ..set("picks", ID)
            },
            Self::Endpoints => map("endpoints", ENDPOINT_SLOT, types.endpoint),
            Self::StickySlots => map("sticky-slots", STICKY_SLOT, ID),
            Self::StickyEndpoints => map("sticky-endpoints", STICKY_ENDPOINT, types.endpoint),
            Self::Affinity => SetSpec {
                dynamic: Some(AFFINITY_SIZE),
                ..map("affinity", types.client, ID)
            },
            Self::RejectedServices => set("rejected-services", types.service),
            Self::DroppedServices => set("dropped-services", types.service),
            Self::RejectedNodePorts => set("rejected-nodeports", NODE_PORT),
            Self::DroppedNodePorts => set("dropped-nodeports", NODE_PORT),
            Self::ClusterIps => set("cluster-ips", types.address),
            Self::NodePortIps => set("nodeport-ips", types.address),
            Self::Restricted => set("restricted", types.service),
            Self::AllowedSources => SetSpec {
                interval: true,
                ..set("allowed-sources", types.service_source)
            },
            Self::Hairpin => set("hairpin", types.hairpin),
            Self::Connections => counting("connections", types.connection, CONNECTIONS_SIZE),
            Self::Refusals => counting("refusals", types.service, REFUSALS_SIZE),
        }
    }

    pub fn name(self) -> &'static str {
        self.spec(Family::V4).name
    }
}

/// Keys and data that contain addresses.
struct Types {
    address: &'static [FieldType],
    service: &'static [FieldType],
    service_source: &'static [FieldType],
    client: &'static [FieldType],
    endpoint: &'static [FieldType],
    hairpin: &'static [FieldType],
    connection: &'static [FieldType],
}

use FieldType::{ClassId, Ipv4, Ipv6, Proto, Service, Slot};

const ID: &[FieldType] = &[ClassId];
const NODE_PORT: &[FieldType] = &[Proto, Service];
const ENDPOINT_SLOT: &[FieldType] = &[Proto, ClassId, Slot];
const STICKY_SLOT: &[FieldType] = &[ClassId, Slot];
const STICKY_ENDPOINT: &[FieldType] = &[Proto, ClassId];

static V4: Types = Types {
    address: &[Ipv4],
    service: &[Ipv4, Proto, Service],
    service_source: &[Ipv4, Proto, Service, Ipv4],
    client: &[Ipv4, ClassId],
    endpoint: &[Ipv4, Service],
    hairpin: &[Ipv4, Ipv4, Proto, Service],
    connection: &[Ipv4, Service, Ipv4, Proto, Service],
};

static V6: Types = Types {
    address: &[Ipv6],
    service: &[Ipv6, Proto, Service],
    service_source: &[Ipv6, Proto, Service, Ipv6],
    client: &[Ipv6, ClassId],
    endpoint: &[Ipv6, Service],
    hairpin: &[Ipv6, Ipv6, Proto, Service],
    connection: &[Ipv6, Service, Ipv6, Proto, Service],
};

/// What a packet is matched to a service by.
pub(super) fn service_key() -> Vec<Field> {
    vec![Field::Daddr, Field::L4Proto, Field::Dport]
}

/// What a packet is matched to a node port by.
pub(super) fn node_port_key() -> Vec<Field> {
    vec![Field::L4Proto, Field::Dport]
}

/// What a connection was matched to a service by, once its destination is another.
pub(super) fn original_service_key() -> Vec<Field> {
    vec![Field::OriginalDaddr, Field::L4Proto, Field::OriginalDport]
}

/// What a connection was matched to a node port by, once its destination is another.
pub(super) fn original_node_port_key() -> Vec<Field> {
    vec![Field::L4Proto, Field::OriginalDport]
}

/// What a connection is counted under: where it goes, then what it was addressed to.
pub(super) fn connection_key() -> Vec<Field> {
    let mut key = vec![Field::Daddr, Field::Dport];
    key.extend(original_service_key());
    key
}

/// What a client's affinity is found by.
pub(super) fn client_key() -> Vec<Field> {
    vec![Field::Saddr, Field::PriorityBits(PORT_BITS)]
}
