//! Filters the clients of a proxy by source address: which are refused, and which get endpoints of the whole cluster.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

/// The client filter of one address that a proxy listens on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFilter {
    /// A client must match each of these; empty allows every client.
    pub allowed: Vec<ClientSources>,
    /// Allowed clients that the service port's proxy for policy Cluster serves instead of this one.
    pub inside: Option<ClientSources>,
}

impl ClientFilter {
    /// All clients are treated alike.
    pub(super) fn is_open(&self) -> bool {
        self.allowed.is_empty() && self.inside.is_none()
    }
}

/// Clients by source address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSources {
    /// The ranges they are in.
    pub nets: Arc<[IpNet]>,
    /// Whether this node is one of them when it calls an address of its own. Such a call comes from the very address it is for, so ranges
    /// say nothing about it.
    pub itself: bool,
}

impl ClientSources {
    /// Some addresses of this node, and whatever else it has.
    pub(super) fn node_and(addresses: impl Iterator<Item = IpAddr>, others: Option<IpNet>) -> Self {
        let addresses = addresses.map(IpNet::from);
        Self {
            nets: others.into_iter().chain(addresses).collect(),
            itself: true,
        }
    }
}

impl fmt::Display for ClientSources {
    /// `10.244.0.0/16, 192.0.2.1/32, this node`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nets = self.nets.iter().map(ToString::to_string);
        let itself = self.itself.then(|| "this node".to_owned());
        let all: Vec<String> = nets.chain(itself).collect();
        f.write_str(&all.join(", "))
    }
}
