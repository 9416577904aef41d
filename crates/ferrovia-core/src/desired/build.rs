//! Keeps [`Desired`] in step with the [`Store`].
//!
//! Work is proportional to what was touched: a service is rebuilt only if it, its slices, or the winner of a claim it makes
//! changed, and all are only if this node's zone or address changed. What comes out the same as before is no change.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use super::claim_conflict::report_claim_conflict;
use super::claims::{ClaimChanges, ClaimOutcome, FrontendClaim, FrontendClaims};
use super::health::{WithoutLocal, health_check, set_health_check};
use super::port::{PortContext, claims, explain, frontends, port_key, service_port, stake};
use super::select::NodeLocation;
use super::{Delta, Desired, Explained, Frontend, NodeSettings, PortChange, ServicePort, node};
use crate::family::{Family, PerFamily};
use crate::model::{PortKey, Protocol, Service, ServiceKey, ServicePortSpec, Warning, Warnings};
use crate::store::{Age, Store, Touched};
use crate::wire::Kind;

/// What an update changed.
#[derive(Debug, Default)]
pub struct Update {
    /// What changed in each family.
    pub deltas: PerFamily<Delta>,
    pub warnings: Vec<Warning>,
}

/// Makes the desired state of both families and keeps it current.
#[derive(Debug)]
pub struct Builder {
    settings: NodeSettings,
    desired: PerFamily<Desired>,
    claims: FrontendClaims,
    /// The services whose claims are in `claims`, as they were when they made them, and when they appeared.
    claimed: HashMap<ServiceKey, (Arc<Service>, u64)>,
    topology: NodeTopology,
    /// The warning that node ports of the family are open on all addresses was reported.
    reported_open: PerFamily<bool>,
}

/// What services depend on besides their own objects.
#[derive(Debug, Default, PartialEq, Eq)]
struct NodeTopology {
    zone: Option<Arc<str>>,
    ips: PerFamily<Option<IpAddr>>,
}

impl Builder {
    /// A builder without any services.
    pub fn new(settings: NodeSettings) -> Self {
        let nothing = Store::new(&settings.node_name);
        let desired = PerFamily::from_fn(|family| Desired {
            family,
            node: Arc::new(node::rules(&settings, &nothing, &[], family)),
            ports: BTreeMap::new(),
            health_checks: Arc::default(),
            without_local: WithoutLocal::default(),
        });
        Self {
            settings,
            desired,
            claims: FrontendClaims::default(),
            claimed: HashMap::new(),
            topology: NodeTopology::default(),
            reported_open: PerFamily::default(),
        }
    }

    /// Brings the desired state up to date with the store, given what was touched since the last call and the addresses that are
    /// on this node's interfaces now.
    pub fn update(
        &mut self,
        store: &Store,
        touched: Touched,
        local_addresses: &[IpAddr],
    ) -> Update {
        let mut update = Update {
            warnings: touched.warnings,
            ..Update::default()
        };
        let node_ports_moved = self.update_node(store, local_addresses, &mut update);
        // All claims first: winners must not depend on the order in which services are processed.
        let mut affected = touched.services;
        let mut moved = ClaimChanges::default();
        for key in &affected {
            self.restate_claims(store, key, &mut moved);
        }
        affected.extend(self.at_node_ports(&moved.node_ports));
        affected.extend(moved.services);
        if node_ports_moved {
            affected.extend(self.with_outside_addresses());
        }
        if self.has_moved(store) {
            affected.extend(self.claimed.keys().cloned());
        }
        for key in &affected {
            let mut lost = Warnings::new(Kind::Service, key.as_str());
            for family in Family::ALL {
                let new = self.ports_of(store, key, family, &mut lost);
                let check = store.service(key).and_then(|service| {
                    health_check(service, store.slices(key), family, &self.settings.node_name)
                });
                let desired = &mut self.desired[family];
                desired.replace(key, new, &mut update.deltas[family].ports);
                if set_health_check(&mut desired.health_checks, key, check) {
                    update.deltas[family].checks.push(key.clone());
                }
            }
            update.warnings.extend(lost.into_vec());
        }
        for family in Family::ALL {
            let changes = &update.deltas[family].ports;
            let desired = &mut self.desired[family];
            desired.without_local.follow(changes);
            // A map that is filled in the order of its keys has half-empty nodes; made of all keys at once, they are full.
            if changes.len() > desired.ports.len() / 2 {
                desired.ports = std::mem::take(&mut desired.ports).into_iter().collect();
            }
        }
        update
    }

    /// The desired state of a family.
    pub fn desired(&self, family: Family) -> &Desired {
        &self.desired[family]
    }

    /// Why a service port's lists of endpoints are as they are; none if there is no such port. The store must be as it was at the last update.
    pub fn explain(&self, store: &Store, key: &PortKey, family: Family) -> Option<Explained> {
        let service = store.service(&key.service)?;
        let port = service
            .ports
            .iter()
            .find(|port| port_key(service, port) == *key)?;
        let slices = store.slices(&key.service);
        Some(explain(service, port, slices, self.context(family)))
    }

    fn context(&self, family: Family) -> PortContext<'_> {
        PortContext {
            family,
            here: NodeLocation {
                node: &self.settings.node_name,
                zone: self.topology.zone.as_deref(),
            },
            node_ip: self.topology.ips[family],
        }
    }

    /// Cheap enough to be done at every update, which is how a change of interface addresses is noticed. True if node ports answer on other
    /// addresses than before.
    fn update_node(
        &mut self,
        store: &Store,
        local_addresses: &[IpAddr],
        update: &mut Update,
    ) -> bool {
        let mut node_ports_moved = false;
        for family in Family::ALL {
            let rules = node::rules(&self.settings, store, local_addresses, family);
            let known = &self.desired[family].node;
            if **known != rules {
                node_ports_moved |=
                    known.addresses != rules.addresses || known.node_ports != rules.node_ports;
                self.desired[family].node = Arc::new(rules);
                update.deltas[family].node = true;
            }
            let open = node::primary_is_open(&self.settings, store.node(), family);
            if open && !self.reported_open[family] {
                update
                    .warnings
                    .push(open_warning(&self.settings.node_name, family));
            }
            self.reported_open[family] = open;
        }
        node_ports_moved
    }

    /// The services that have one of these node ports' numbers at an address where node ports answer.
    fn at_node_ports(
        &self,
        node_ports: &BTreeSet<(Family, u16, Protocol)>,
    ) -> BTreeSet<ServiceKey> {
        let mut found = BTreeSet::new();
        for (family, number, protocol) in node_ports {
            let addresses = self.desired[*family].node.node_port_addresses();
            let winners = addresses.filter_map(|ip| {
                self.claims
                    .winner(&FrontendClaim::Address(ip, *number, *protocol))
            });
            found.extend(winners.map(|port| port.service.clone()));
        }
        found
    }

    /// The services that claim addresses beyond their cluster IPs.
    fn with_outside_addresses(&self) -> impl Iterator<Item = ServiceKey> {
        let services = self.claimed.iter();
        let reachable = services.filter(|(_, (service, _))| service.external_access.is_some());
        reachable.map(|(key, _)| key.clone())
    }

    /// Updates the location of this node; true if it changed.
    fn has_moved(&mut self, store: &Store) -> bool {
        let now = NodeTopology {
            zone: store.node().and_then(|node| node.zone.clone()),
            ips: PerFamily::from_fn(|family| self.settings.node_ip(store.node(), family)),
        };
        std::mem::replace(&mut self.topology, now) != self.topology
    }

    /// Replaces the claims of a service and records which winners change.
    fn restate_claims(&mut self, store: &Store, key: &ServiceKey, moved: &mut ClaimChanges) {
        let appeared = store.age(key).map(|age| age.appeared);
        let new = store.service(key).cloned().zip(appeared);
        let old = match &new {
            Some(new) => self.claimed.insert(key.clone(), new.clone()),
            None => self.claimed.remove(key),
        };
        // Most updates change only endpoints; the store then still holds the very same Service.
        if let (Some((old, before)), Some((new, now))) = (&old, &new)
            && Arc::ptr_eq(old, new)
            && before == now
        {
            return;
        }
        let Some((service, appeared)) = new.as_ref().or(old.as_ref()) else {
            return;
        };
        let age = Age {
            created: service.created,
            appeared: *appeared,
        };
        let claims_of = |known: &Option<(Arc<Service>, u64)>| {
            let service = known.as_ref().map(|(service, _)| service);
            service.map_or_else(Vec::new, |it| claims(it))
        };
        self.claims
            .restate(&claims_of(&old), &claims_of(&new), age, moved);
    }

    /// The ports of a service as they should be, in key order; none if it is gone or not of this family.
    fn ports_of(
        &mut self,
        store: &Store,
        key: &ServiceKey,
        family: Family,
        lost: &mut Warnings<'_>,
    ) -> Vec<ServicePort> {
        let Some(service) = store
            .service(key)
            .filter(|service| service.cluster_ips[family].is_some())
        else {
            return Vec::new();
        };
        let mut ports = Vec::with_capacity(service.ports.len());
        for port in &service.ports {
            let frontends = self.won_frontends(service, port, family, lost);
            let slices = store.slices(key);
            let context = self.context(family);
            ports.push(service_port(service, port, frontends, slices, context));
        }
        ports.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        ports
    }

    /// The frontends a port has, in order, with a warning for each it newly has not.
    fn won_frontends(
        &mut self,
        service: &Service,
        port: &ServicePortSpec,
        family: Family,
        lost: &mut Warnings<'_>,
    ) -> Box<[Frontend]> {
        let key = port_key(service, port);
        let mut wanted = frontends(service, port, family);
        let node = &self.desired[family].node;
        wanted.retain(|frontend| {
            let at = frontend.address();
            let node_port = at
                .filter(|at| node.answers_node_ports(at.ip()))
                .map(|at| FrontendClaim::NodePort(family, at.port(), port.protocol));
            let stake = stake(*frontend, family, &key);
            match self.claims.outcome(&stake, node_port.as_ref()) {
                ClaimOutcome::Wins => true,
                ClaimOutcome::Loses {
                    to,
                    by,
                    is_new_loss,
                } => {
                    if is_new_loss {
                        report_claim_conflict(*frontend, &stake, family, &to, by, lost);
                    }
                    false
                }
            }
        });
        wanted.into()
    }
}

impl Desired {
    /// Replaces the ports of one service, given in key order, and notes those that differ, likewise.
    fn replace(
        &mut self,
        service: &ServiceKey,
        new: Vec<ServicePort>,
        changes: &mut Vec<PortChange>,
    ) {
        let noted = changes.len();
        let is_new = |key: &PortKey| new.binary_search_by(|port| port.key.cmp(key)).is_ok();
        let gone: Vec<PortKey> = self
            .keys_of(service)
            .filter(|key| !is_new(key))
            .cloned()
            .collect();
        for key in gone {
            let old = self.ports.remove(&key);
            changes.push(PortChange {
                key,
                old,
                new: None,
            });
        }
        for port in new {
            if self.ports.get(&port.key).map(Arc::as_ref) == Some(&port) {
                continue;
            }
            let (key, new) = (port.key.clone(), Arc::new(port));
            let old = self.ports.insert(key.clone(), Arc::clone(&new));
            changes.push(PortChange {
                key,
                old,
                new: Some(new),
            });
        }
        changes[noted..].sort_unstable_by(|a, b| a.key.cmp(&b.key));
    }

    fn keys_of(&self, service: &ServiceKey) -> impl Iterator<Item = &PortKey> {
        self.ports_of(service).map(|(key, _)| key)
    }

    /// The ports of one service. They lie side by side, so finding them costs no walk over the others.
    pub fn ports_of(
        &self,
        service: &ServiceKey,
    ) -> impl Iterator<Item = (&PortKey, &Arc<ServicePort>)> {
        let first = PortKey {
            service: service.clone(),
            name: Arc::default(),
            protocol: Protocol::Tcp,
        };
        let from_first = self.ports.range(first..);
        from_first.take_while(move |(key, _)| key.service == *service)
    }
}

/// For a node whose address is unknown. kube-proxy opens all addresses silently.
fn open_warning(node_name: &str, family: Family) -> Warning {
    Warning {
        object: format!("Node {node_name}"),
        field: "status.addresses".into(),
        problem: format!(
            "no usable {family} address; {family} node ports listen on every local address instead of the primary one"
        ),
        operator_detail: None,
    }
}

#[cfg(test)]
mod tests;
