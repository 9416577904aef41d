//! Clients that are told apart where a proxy listens: who may not come in, and who gets other endpoints.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

/// What holds for the clients of one address that a proxy listens on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// Who is let in: those whom each of these has, so everyone if there are none.
    pub allowed: Vec<Sources>,
    /// Of those, the ones that the service port's proxy for policy Cluster carries in the place of this one.
    pub inside: Option<Sources>,
}

impl Gate {
    /// Nobody is told from others.
    pub(super) fn is_open(&self) -> bool {
        self.allowed.is_empty() && self.inside.is_none()
    }
}

/// Clients, told by their address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// The ranges they are in.
    pub nets: Arc<[IpNet]>,
    /// Whether this node is one of them when it calls an address of its own. Such a call comes from the very address it is for, so ranges
    /// say nothing about it.
    pub itself: bool,
}

impl Sources {
    /// Some addresses of this node, and whatever else it has.
    pub(super) fn node_and(addresses: impl Iterator<Item = IpAddr>, others: Option<IpNet>) -> Self {
        let addresses = addresses.map(IpNet::from);
        Self {
            nets: others.into_iter().chain(addresses).collect(),
            itself: true,
        }
    }
}

impl fmt::Display for Sources {
    /// `10.244.0.0/16, 192.0.2.1/32, this node`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nets = self.nets.iter().map(ToString::to_string);
        let itself = self.itself.then(|| "this node".to_owned());
        let all: Vec<String> = nets.chain(itself).collect();
        f.write_str(&all.join(", "))
    }
}
