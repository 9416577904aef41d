//! The endpoints of a service port: in or out, why, and with which chance.

use std::net::SocketAddr;

use serde::Serialize;

use super::Tracer;
use super::masquerade::{self, Masquerade};
use crate::desired::{Endpoint, EndpointSelection, Explained, ExplainedEndpoint, Topology};
use crate::model::TrafficPolicy;

/// What becomes of one endpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EndpointFate {
    /// Its address and port.
    pub address: SocketAddr,
    /// The node it runs on, if that is known.
    pub node: Option<String>,
    /// It runs on this node.
    pub local: bool,
    /// New connections like this packet may get it.
    pub used: bool,
    /// Why, as a stable identifier.
    pub standing: EndpointSelection,
    /// Why, as a sentence.
    pub because: String,
    /// The chance that a client without history gets it, 0 to 1.
    pub chance: f64,
    /// Its weight, 0 to 1000.
    pub weight: u16,
    /// The source address it would see.
    pub masquerade: Masquerade,
}

/// All of them. `list` is the list that is used, if any is.
pub(super) fn fates(
    tracer: &Tracer<'_>,
    explained: &Explained,
    list: Option<&std::sync::Arc<[Endpoint]>>,
    policy: TrafficPolicy,
    connection: Masquerade,
) -> Vec<EndpointFate> {
    let total: u32 = list.map_or(0, |list| list.iter().map(|e| u32::from(e.weight)).sum());
    let fate = |of: &ExplainedEndpoint| {
        let endpoint = of.endpoint;
        let standing = of.selection(policy);
        let used = list.is_some() && standing.is_selected();
        EndpointFate {
            address: SocketAddr::new(endpoint.ip, endpoint.port),
            node: of.node.as_deref().map(str::to_owned),
            local: endpoint.is_local,
            used,
            standing,
            because: in_words(of, standing),
            chance: if used {
                f64::from(endpoint.weight) / f64::from(total.max(1))
            } else {
                0.0
            },
            weight: endpoint.weight,
            masquerade: if used {
                masquerade::of_endpoint(tracer, &endpoint, connection)
            } else {
                Masquerade::None
            },
        }
    };
    explained.endpoints.iter().map(fate).collect()
}

/// Why a list has an endpoint or not, as a sentence.
pub fn in_words(of: &ExplainedEndpoint, standing: EndpointSelection) -> String {
    let text = match standing {
        EndpointSelection::Ready => "ready",
        EndpointSelection::Draining => "terminating, but it answers and no endpoint is ready",
        EndpointSelection::NotReady => "not ready",
        EndpointSelection::Terminating => "terminating, and others are ready",
        EndpointSelection::Gone => "terminating, and does not answer any more",
        EndpointSelection::OtherNode => "meant for clients on other nodes",
        EndpointSelection::OtherZone => {
            let zones: Vec<&str> = of.zones.iter().map(|zone| &**zone).collect();
            return format!("meant for zone {}", zones.join(", "));
        }
        EndpointSelection::NotLocal => {
            return match &of.node {
                Some(node) => format!("on node {node}, not on this one"),
                None => "not known to be on this node".to_owned(),
            };
        }
        EndpointSelection::NoWeight => "its weight is 0",
        EndpointSelection::ListUnused => "no traffic goes by this policy",
    };
    text.to_owned()
}

/// What became of topology hints; none where there are none.
pub fn topology_in_words(explained: &Explained) -> Option<String> {
    let Explained {
        ready, unhinted, ..
    } = explained;
    match explained.topology {
        Topology::NothingToNarrow | Topology::NoHints => None,
        Topology::SameNode => Some("only endpoints meant for this node are used".to_owned()),
        Topology::SameZone => Some("only endpoints meant for this zone are used".to_owned()),
        Topology::SomeWithoutHint if *unhinted == 0 => Some(
            "hints ignored: some endpoints have only node hints and some only zone hints"
                .to_owned(),
        ),
        Topology::SomeWithoutHint => Some(format!(
            "zone hints ignored: {unhinted} of {ready} endpoints have none"
        )),
        Topology::ZoneUnknown => {
            Some("zone hints ignored: this node's zone is not known".to_owned())
        }
        Topology::NoneForHere => {
            Some("hints ignored: no endpoint is meant for this node or its zone".to_owned())
        }
    }
}
