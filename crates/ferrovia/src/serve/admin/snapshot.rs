//! All service ports at a moment, by service.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ferrovia_core::desired::{Frontend, ServicePort};
use ferrovia_core::family::Family;
use ferrovia_core::model::ServiceKey;

use super::Admin;
use super::problem::Problem;

/// A service port of one family.
pub(super) type Port = (Family, Arc<ServicePort>);

/// All service ports, those of a service together.
#[derive(Debug, Default)]
pub(super) struct Snapshot(Vec<Port>);

/// The service ports of one service; there is at least one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group<'a>(&'a [Port]);

/// How a service fares on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// Nobody is turned away.
    Served,
    /// Some of its frontends have endpoints.
    Partly,
    /// Nobody is served.
    Down,
}

impl Admin {
    /// Copies references, no ports.
    pub(super) async fn snapshot(&self) -> Result<Snapshot, Problem> {
        let ports = self.ask(|engine| {
            let mut ports = Vec::new();
            for family in Family::ALL {
                if let Some(desired) = engine.desired(family) {
                    let values = desired.ports.values();
                    ports.extend(values.map(|port| (family, Arc::clone(port))));
                }
            }
            ports
        });
        Ok(Snapshot::new(ports.await?))
    }
}

impl Snapshot {
    /// The ports of each family must be in order.
    pub(super) fn new(mut ports: Vec<Port>) -> Self {
        // Two runs that are in order already, so this is one pass.
        ports.sort_by(|(_, a), (_, b)| a.key.cmp(&b.key));
        Self(ports)
    }

    /// Service by service, in order of their names.
    pub(super) fn services(&self) -> impl Iterator<Item = Group<'_>> {
        let groups = self
            .0
            .chunk_by(|(_, a), (_, b)| a.key.service == b.key.service);
        groups.map(Group)
    }

    /// How many service ports there are, each counted once however many families it has.
    pub(super) fn port_count(&self) -> usize {
        self.0.chunk_by(|(_, a), (_, b)| a.key == b.key).count()
    }
}

impl<'a> Group<'a> {
    pub(super) fn key(self) -> &'a ServiceKey {
        &self.0[0].1.key.service
    }

    pub(super) fn frontends(self) -> impl Iterator<Item = (&'a ServicePort, Frontend)> {
        let all = self.0.iter();
        all.flat_map(|(_, port)| port.frontends.iter().map(|frontend| (&**port, *frontend)))
    }

    /// The kinds of its frontends.
    pub(super) fn kinds(self) -> Vec<&'static str> {
        let kinds: BTreeSet<_> = self.frontends().map(|(_, it)| kind(it)).collect();
        let order = ["ClusterIP", "NodePort", "LoadBalancer", "ExternalIP"];
        order
            .into_iter()
            .filter(|kind| kinds.contains(kind))
            .collect()
    }

    /// Its addresses, the cluster's first.
    pub(super) fn addresses(self) -> Vec<IpAddr> {
        let mut found = Vec::new();
        for (_, frontend) in self.frontends() {
            if let Some(at) = frontend.address().filter(|at| !found.contains(&at.ip())) {
                found.push(at.ip());
            }
        }
        found
    }

    /// How many endpoints some policy leads to. A pod of two families is counted once.
    pub(super) fn endpoints(self) -> usize {
        let of = |family: Family| {
            let ports = self.0.iter().filter(|(it, _)| *it == family);
            let all = ports.flat_map(|(_, port)| port.cluster.iter().chain(&*port.local));
            let mut ips: Vec<IpAddr> = all.map(|endpoint| endpoint.ip).collect();
            ips.sort_unstable();
            ips.dedup();
            ips.len()
        };
        Family::ALL.into_iter().map(of).max().unwrap_or_default()
    }

    pub(super) fn standing(self) -> Standing {
        let (mut served, mut refused) = (false, false);
        for (port, frontend) in self.frontends() {
            match port.refusal(frontend) {
                None => served = true,
                Some(_) => refused = true,
            }
        }
        match (served, refused) {
            (_, false) => Standing::Served,
            (true, true) => Standing::Partly,
            (false, true) => Standing::Down,
        }
    }
}

impl Standing {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Partly => "partly",
            Self::Down => "down",
        }
    }
}

/// What the API calls this kind of frontend.
pub(super) fn kind(frontend: Frontend) -> &'static str {
    match frontend {
        Frontend::ClusterIp(_) => "ClusterIP",
        Frontend::ExternalIp(_) => "ExternalIP",
        Frontend::LoadBalancer(_) => "LoadBalancer",
        Frontend::NodePort(_) => "NodePort",
    }
}
