//! The sockets that service ports are proxied by.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::client_filter::ClientFilter;
use crate::desired::{Endpoint, ServicePort};
use crate::model::{Algorithm, PortKey, Protocol, TrafficPolicy};

/// Affinity timeout in seconds for source-hash, which proxies implement as affinity: Kubernetes' default.
const BY_ADDRESS: u32 = 10_800;

/// Which proxy: a service port has one for each policy that its traffic is under.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProxyName {
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

/// The desired state of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxySpec {
    pub name: ProxyName,
    /// Where clients reach it.
    pub listen: ProxyListen,
    /// The client filters of the addresses it listens on; addresses without one accept all clients.
    pub client_filters: BTreeMap<SocketAddr, ClientFilter>,
    /// Where it leads, sorted by address and port, none with weight 0. Never empty.
    pub endpoints: Arc<[Endpoint]>,
    /// Seconds a client sticks to its endpoint; none if it does not.
    pub affinity: Option<u32>,
}

/// Where a proxy listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyListen {
    /// On a port that the applier chooses, at this address; rules lead there.
    Portal(IpAddr),
    /// On these addresses, sorted; empty if it only serves connections that another proxy accepts.
    At(Vec<SocketAddr>),
}

/// What becomes of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyChange {
    /// It is opened, or changed to be like this.
    Set(ProxySpec),
    Close(ProxyName),
}

impl ProxySpec {
    /// The proxy of a service port under a policy, without client filters; `None` if the policy has no endpoints or the protocol is not supported.
    pub(super) fn of(
        port: &ServicePort,
        policy: TrafficPolicy,
        listen: ProxyListen,
    ) -> Option<Self> {
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
            client_filters: BTreeMap::new(),
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
pub(super) fn changes(old: &[ProxySpec], new: Vec<ProxySpec>) -> Vec<ProxyChange> {
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

impl fmt::Display for ProxySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "proxy {}", self.name)?;
        match &self.listen {
            ProxyListen::Portal(ip) if ip.is_ipv6() => write!(f, " at [{ip}]:%{}%", self.name)?,
            ProxyListen::Portal(ip) => write!(f, " at {ip}:%{}%", self.name)?,
            ProxyListen::At(addresses) => {
                for at in addresses {
                    write!(f, " at {at}")?;
                }
            }
        }
        if let Some(seconds) = self.affinity {
            write!(f, " affinity {seconds}s")?;
        }
        writeln!(f)?;
        for (at, filter) in &self.client_filters {
            for sources in &filter.allowed {
                writeln!(f, "  at {at} only for {sources}")?;
            }
            if let Some(sources) = &filter.inside {
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
