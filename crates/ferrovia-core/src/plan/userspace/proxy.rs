//! The sockets that service ports are proxied by.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::gate::Gate;
use crate::desired::{Endpoint, ServicePort};
use crate::model::{Algorithm, PortKey, Protocol, TrafficPolicy};

/// A client that is told by its address returns to its endpoint for so long: Kubernetes' default of session affinity, in seconds.
const BY_ADDRESS: u32 = 10_800;

/// Which proxy: a service port has one for each policy that its traffic is under.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProxyName {
    /// The service port.
    pub key: PortKey,
    /// Whose endpoints it leads to.
    pub policy: TrafficPolicy,
}

impl fmt::Display for ProxyName {
    /// `demo/web:http/tcp`, with `/local` at its end where only endpoints on this node are used.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.key, self.key.protocol)?;
        match self.policy {
            TrafficPolicy::Cluster => Ok(()),
            TrafficPolicy::Local => f.write_str("/local"),
        }
    }
}

/// A proxy as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// Which one.
    pub name: ProxyName,
    /// Where clients reach it.
    pub listen: Listen,
    /// Of the addresses it listens on, those where not all clients are treated alike.
    pub gates: BTreeMap<SocketAddr, Gate>,
    /// Where it leads, sorted by address and port, none with weight 0. Never empty.
    pub endpoints: Arc<[Endpoint]>,
    /// Seconds a client sticks to its endpoint; none if it does not.
    pub affinity: Option<u32>,
}

/// Where a proxy listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// On one port that whoever opens it chooses, at this address; rules lead there.
    Portal(IpAddr),
    /// Where clients call, sorted. Nowhere, if it only carries what another proxy accepts.
    At(Vec<SocketAddr>),
}

/// What becomes of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyChange {
    /// It is opened, or changed to be like this.
    Set(Proxy),
    /// It is closed.
    Close(ProxyName),
}

impl Proxy {
    /// The proxy of a service port under a policy, for whoever calls; none if the policy has no endpoints, or a proxy cannot do the protocol.
    pub(super) fn of(port: &ServicePort, policy: TrafficPolicy, listen: Listen) -> Option<Self> {
        let endpoints = port.endpoints(policy);
        if endpoints.is_empty() || !is_proxied(port) {
            return None;
        }
        let by_address = port.algorithm == Algorithm::SourceHash;
        Some(Self {
            name: ProxyName {
                key: port.key.clone(),
                policy,
            },
            listen,
            gates: BTreeMap::new(),
            endpoints: Arc::clone(endpoints),
            affinity: port.affinity.or(by_address.then_some(BY_ADDRESS)),
        })
    }
}

/// Whether a proxy can do the port's protocol.
pub(super) fn is_proxied(port: &ServicePort) -> bool {
    port.protocol() != Protocol::Sctp
}

/// From the proxies that a service port had to those it should have.
pub(super) fn changes(old: &[Proxy], new: Vec<Proxy>) -> Vec<ProxyChange> {
    let stays = |name: &ProxyName| new.iter().any(|proxy| proxy.name == *name);
    let gone: Vec<_> = old
        .iter()
        .filter(|proxy| !stays(&proxy.name))
        .map(|proxy| ProxyChange::Close(proxy.name.clone()))
        .collect();
    let set = new.into_iter().filter(|proxy| !old.contains(proxy));
    set.map(ProxyChange::Set).chain(gone).collect()
}

impl fmt::Display for ProxyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(proxy) => proxy.fmt(f),
            Self::Close(name) => writeln!(f, "close {name}"),
        }
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "proxy {}", self.name)?;
        match &self.listen {
            Listen::Portal(ip) if ip.is_ipv6() => write!(f, " at [{ip}]:%{}%", self.name)?,
            Listen::Portal(ip) => write!(f, " at {ip}:%{}%", self.name)?,
            Listen::At(addresses) => {
                for at in addresses {
                    write!(f, " at {at}")?;
                }
            }
        }
        if let Some(seconds) = self.affinity {
            write!(f, " affinity {seconds}s")?;
        }
        writeln!(f)?;
        for (at, gate) in &self.gates {
            for sources in &gate.allowed {
                writeln!(f, "  at {at} only for {sources}")?;
            }
            if let Some(sources) = &gate.inside {
                writeln!(f, "  at {at} to any endpoint for {sources}")?;
            }
        }
        for endpoint in self.endpoints.iter() {
            let at = SocketAddr::new(endpoint.ip, endpoint.port);
            writeln!(f, "  to {at} weight {}", endpoint.weight)?;
        }
        Ok(())
    }
}
