//! Events in, touched services out.
//!
//! The store keeps the parsed objects, shares the names in them, and tells which services an event touched. It has one writer and asks
//! no clock. What becomes of the objects on this node is decided by the [builder](crate::desired::Builder).

mod complaints;
mod quota;
mod slices;

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use self::complaints::{Complaints, unusable};
use self::quota::Quotas;
use self::quota::ports::PortQuotas;
use self::slices::SliceIndex;
use crate::family::Family;
use crate::model::node::Node;
use crate::model::{
    CreationTime, EndpointSlice, Names, Service, ServiceKey, ServicePolicy, SliceKey, Warning,
    fold_nested, mirror, namespace_or_default, service_cidrs,
};
use crate::pod::PodMark;
use crate::wire::{self, Kind, Object};

/// Something a source saw.
#[derive(Clone, Debug)]
pub enum Event {
    /// An object appeared or changed.
    Applied(Box<Object>),
    /// An object went.
    Deleted {
        /// Its kind.
        kind: Kind,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The first list of this kind is complete.
    Listed(Kind),
}

impl Event {
    /// The kind of object it is about.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Applied(object) => object.kind(),
            Self::Deleted { kind, .. } | Self::Listed(kind) => *kind,
        }
    }
}

/// What events have touched since it was last asked.
#[derive(Clone, Debug, Default)]
pub struct Touched {
    /// Services whose ports or endpoints may have changed.
    pub services: BTreeSet<ServiceKey>,
    /// When endpoints were changed, as annotations of the changed slices tell: RFC 3339, unchecked.
    pub triggers: Triggers,
    /// The node or something that holds for all services changed.
    pub node: bool,
    /// What authors should know that no single event is about.
    pub warnings: Vec<Warning>,
}

/// Trigger times by Service and family, some of the oldest of each. Only of changes after the first list: before, they tell how old the
/// cluster is and not how fast we are.
pub type Triggers = BTreeMap<ServiceKey, Vec<(Family, Box<str>)>>;

/// Where the endpoints' controller notes when a pod changed.
const TRIGGER_ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// No time is longer than this.
const LONGEST_TIME: usize = 40;
/// A Service's slices may change any number of times between two syncs; so many are enough to judge by.
const MOST_TRIGGERS: usize = 16;

/// How long a Service has been there, for the rule that of two that want the same address the older has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Age {
    /// When the API server made it.
    pub(crate) created: Option<CreationTime>,
    /// How many Services appeared before it; 0 for all that were there from the beginning.
    pub(crate) appeared: u64,
}

/// The few fields we need of every object.
#[derive(Debug)]
pub struct Store {
    node_name: String,
    node: Option<Node>,
    policy: ServicePolicy,
    services: HashMap<ServiceKey, Known>,
    port_quotas: PortQuotas,
    quotas: Quotas,
    slices: SliceIndex,
    service_cidrs: BTreeMap<String, Box<[IpNet]>>,
    names: Names,
    listed: BTreeSet<Kind>,
    appearances: u64,
    touched: Touched,
    complaints: Complaints,
}

/// A Service and when it appeared.
#[derive(Debug)]
struct Known {
    service: Arc<Service>,
    appeared: u64,
}

impl Store {
    /// An empty store for the node of this name, where Services are served as by default.
    pub fn new(node_name: &str) -> Self {
        Self::with_policy(node_name, ServicePolicy::default())
    }

    /// An empty store for the node of this name.
    pub fn with_policy(node_name: &str, policy: ServicePolicy) -> Self {
        Self {
            node_name: node_name.into(),
            node: None,
            port_quotas: PortQuotas::new(policy.limits.ports_per_namespace),
            quotas: Quotas::new(policy.limits.external_ip_frontends_per_namespace),
            policy,
            services: HashMap::new(),
            slices: SliceIndex::default(),
            service_cidrs: BTreeMap::new(),
            names: Names::default(),
            listed: BTreeSet::new(),
            appearances: 0,
            touched: Touched::default(),
            complaints: Complaints::default(),
        }
    }

    /// Takes in an event; answers with what its author should know.
    ///
    /// It takes an event by reference too, so that many can be freed together after the last: freed one by one, the memory of each would be
    /// used for what is kept of the next, and the heap would stay in pieces.
    pub fn handle(&mut self, event: impl Borrow<Event>) -> Vec<Warning> {
        match event.borrow() {
            Event::Applied(object) => {
                let warnings = self.apply(object);
                (self.complaints).only_news(object.kind(), object.metadata(), warnings)
            }
            Event::Deleted {
                kind,
                namespace,
                name,
            } => {
                self.delete(*kind, namespace, name);
                self.complaints.forget(*kind, namespace, name);
                Vec::new()
            }
            Event::Listed(kind) => {
                self.listed.insert(*kind);
                Vec::new()
            }
        }
    }

    /// What was touched since the last call.
    pub fn take_touched(&mut self) -> Touched {
        self.settle_quotas();
        std::mem::take(&mut self.touched)
    }

    /// The first list of this kind is complete.
    pub fn is_listed(&self, kind: Kind) -> bool {
        self.listed.contains(&kind)
    }

    /// The first lists of Services and EndpointSlices are complete. Nodes and ServiceCIDRs are not waited for: they may not exist.
    pub fn is_complete(&self) -> bool {
        [Kind::Service, Kind::EndpointSlice]
            .iter()
            .all(|kind| self.listed.contains(kind))
    }

    /// A Service.
    pub fn service(&self, key: &ServiceKey) -> Option<&Arc<Service>> {
        self.services.get(key).map(|known| &known.service)
    }

    /// Every Service, in no order.
    #[cfg(test)]
    pub(crate) fn services(&self) -> impl Iterator<Item = &Arc<Service>> {
        self.services.values().map(|known| &known.service)
    }

    /// How old a Service is.
    pub(crate) fn age(&self, key: &ServiceKey) -> Option<Age> {
        let known = self.services.get(key)?;
        Some(Age {
            created: known.service.created,
            appeared: known.appeared,
        })
    }

    /// The slices of a Service, in order of their names. Those made from a legacy object count only where there are no others.
    pub fn slices(&self, service: &ServiceKey) -> impl Iterator<Item = &EndpointSlice> {
        self.slices.of(service)
    }

    /// The addresses of a pod, as far as it is an endpoint of some Service, and whether it runs on our node. All slices are looked through.
    pub fn pod_addresses(&self, namespace: &str, name: &str) -> BTreeMap<IpAddr, bool> {
        let mark = Some(PodMark::of(name));
        let slices = self.slices.in_namespace(namespace);
        let endpoints = slices.flat_map(|slice| &*slice.endpoints);
        let found = endpoints.filter(|endpoint| endpoint.pod == mark);
        let is_here = |node: &str| node == self.node_name;
        found
            .map(|endpoint| (endpoint.ip, endpoint.node.as_deref().is_some_and(is_here)))
            .collect()
    }

    /// Our Node, as last seen.
    pub fn node(&self) -> Option<&Node> {
        self.node.as_ref()
    }

    /// Where cluster IPs come from, of both families; ranges inside others are left out.
    pub fn service_cidrs(&self) -> Vec<IpNet> {
        fold_nested(self.service_cidrs.values().flatten().copied())
    }

    fn apply(&mut self, object: &Object) -> Vec<Warning> {
        match object {
            Object::Service(service) => self.apply_service(service),
            Object::EndpointSlice(slice) => self.apply_slice(slice),
            Object::Endpoints(endpoints) => self.apply_endpoints(endpoints),
            Object::Node(node) => self.apply_node(node),
            Object::ServiceCidr(cidr) => self.apply_service_cidr(cidr),
        }
    }

    /// The names need no check: a stored key has one slash between two valid names, so a hostile one can only miss.
    fn delete(&mut self, kind: Kind, namespace: &str, name: &str) {
        let namespace = namespace_or_default(namespace);
        match kind {
            Kind::Service => {
                let key = ServiceKey::new(namespace, name);
                if let Some(service) = self.original_service(&key) {
                    let ports = service.ports.len();
                    self.services.remove(&key);
                    self.port_quotas.remove(&key, ports);
                    self.quotas.remove(&key);
                    self.touched.services.insert(key);
                }
            }
            Kind::EndpointSlice => {
                let touched = &mut self.touched;
                let owner = self
                    .slices
                    .remove(&SliceKey::new(namespace, name), &mut touched.services);
                // What is being waited for now is that endpoints go, and nobody noted when that began.
                if let Some(service) = owner {
                    touched.triggers.remove(&service);
                }
            }
            Kind::Endpoints => {
                let key = ServiceKey::new(namespace, name);
                self.slices
                    .put_mirrored(&key, Vec::new(), &mut self.touched.services);
            }
            // The machine is still there and so are its addresses; only the object went.
            Kind::Node => {}
            Kind::ServiceCidr => self.touched.node |= self.service_cidrs.remove(name).is_some(),
        }
    }

    fn apply_service(&mut self, object: &wire::Service) -> Vec<Warning> {
        match Service::parse(object, &self.policy) {
            Ok((service, warnings)) => {
                self.put_service(service);
                warnings
            }
            Err(reason) => {
                let metadata = &object.metadata;
                self.delete(Kind::Service, &metadata.namespace, &metadata.name);
                unusable(Kind::Service, metadata, reason)
            }
        }
    }

    /// Keeps a Service; touches it only if something we read differs.
    fn put_service(&mut self, mut service: Service) {
        service.share_names(&mut self.names);
        service.key = self.shared_key(service.key);
        let key = service.key.clone();
        // One that is not served in full is compared as its object was.
        if let Some(before) = self.original_service(&key) {
            if **before != service {
                let ports = before.ports.len();
                self.replace_service(service, ports);
            }
            return;
        }
        // The order within the first list means nothing, so all in it appear together.
        if self.listed.contains(&Kind::Service) {
            self.appearances += 1;
        }
        let service = Arc::new(service);
        self.port_quotas.put(&service, 0);
        self.quotas.put(&service, self.appearances);
        self.touched.services.insert(key.clone());
        self.services.insert(
            key,
            Known {
                service,
                appeared: self.appearances,
            },
        );
    }

    /// A Service that had so many ports has changed.
    fn replace_service(&mut self, service: Service, ports_before: usize) {
        let service = Arc::new(service);
        let key = &service.key;
        self.port_quotas.put(&service, ports_before);
        self.touched.services.insert(key.clone());
        self.serve(&service);
    }

    /// Serves a Service in this form, as far as the limit for external IPs allows.
    fn serve(&mut self, service: &Arc<Service>) {
        if let Some(known) = self.services.get_mut(&service.key) {
            known.service = Arc::clone(service);
            self.quotas.put(service, known.appeared);
        }
    }

    /// A Service as its object says, whatever of it is served.
    fn original_service(&self, key: &ServiceKey) -> Option<&Arc<Service>> {
        let cut = self.port_quotas.original(key);
        cut.or_else(|| self.quotas.original(key))
            .or_else(|| Some(&self.services.get(key)?.service))
    }

    /// Gives Services the ports and external IPs that they may have.
    fn settle_quotas(&mut self) {
        let (services, quotas) = (&self.services, &self.quotas);
        let find = |key: &ServiceKey| {
            let known = services.get(key)?;
            let service = quotas.original(key).unwrap_or(&known.service);
            Some((Arc::clone(service), known.appeared))
        };
        let (granted, warnings) = self.port_quotas.settle(find);
        self.touched.warnings.extend(warnings);
        for service in granted {
            self.touched.services.insert(service.key.clone());
            self.serve(&service);
        }
        let (grants, warnings) = self.quotas.settle();
        for grant in grants {
            if let Some(known) = self.services.get_mut(&grant.key) {
                known.service = grant.service;
                self.touched.services.insert(grant.key);
            }
        }
        self.touched.warnings.extend(warnings);
    }

    /// The copy of a Service's name that is in use already. Its slices may have come before it.
    fn shared_key(&self, key: ServiceKey) -> ServiceKey {
        let known = self.services.get(&key).map(|known| &known.service.key);
        let shared = known.or_else(|| self.slices.service_key(&key)).cloned();
        shared.unwrap_or(key)
    }

    fn apply_slice(&mut self, object: &wire::EndpointSlice) -> Vec<Warning> {
        match EndpointSlice::parse(object) {
            Ok((mut slice, warnings)) => {
                slice.share_names(&mut self.names);
                slice.service = self.shared_key(slice.service);
                let (service, family) = (slice.service.clone(), slice.family);
                if self.slices.put(slice, &mut self.touched.services) {
                    self.note_trigger(service, family, &object.metadata);
                }
                warnings
            }
            Err(reason) => {
                let metadata = &object.metadata;
                self.delete(Kind::EndpointSlice, &metadata.namespace, &metadata.name);
                unusable(Kind::EndpointSlice, metadata, reason)
            }
        }
    }

    fn note_trigger(&mut self, service: ServiceKey, family: Family, metadata: &wire::Metadata) {
        let time = metadata
            .annotations
            .get(TRIGGER_ANNOTATION)
            .filter(|time| time.len() <= LONGEST_TIME);
        let Some(time) = time.filter(|_| self.listed.contains(&Kind::EndpointSlice)) else {
            return;
        };
        let of_service = self.touched.triggers.entry(service).or_default();
        if of_service.len() < MOST_TRIGGERS {
            of_service.push((family, time.as_str().into()));
        }
    }

    /// A legacy object becomes slices that are kept apart, so that they can never be taken for real ones.
    fn apply_endpoints(&mut self, object: &wire::Endpoints) -> Vec<Warning> {
        let metadata = &object.metadata;
        match mirror(object) {
            Ok((mut slices, warnings)) => {
                let namespace = namespace_or_default(&metadata.namespace);
                let key = self.shared_key(ServiceKey::new(namespace, &metadata.name));
                for slice in &mut slices {
                    slice.share_names(&mut self.names);
                    slice.service = key.clone();
                }
                self.slices
                    .put_mirrored(&key, slices, &mut self.touched.services);
                warnings
            }
            Err(reason) => {
                self.delete(Kind::Endpoints, &metadata.namespace, &metadata.name);
                unusable(Kind::Endpoints, metadata, reason)
            }
        }
    }

    /// The source may show us every node; only our own matters.
    fn apply_node(&mut self, object: &wire::Node) -> Vec<Warning> {
        if object.metadata.name != self.node_name {
            return Vec::new();
        }
        match Node::parse(object) {
            Ok((node, warnings)) => {
                if self.node.as_ref() != Some(&node) {
                    self.node = Some(node);
                    self.touched.node = true;
                }
                warnings
            }
            Err(reason) => unusable(Kind::Node, &object.metadata, reason),
        }
    }

    /// Ranges are kept per object: two may hold the same one, and it must stay until both have gone.
    fn apply_service_cidr(&mut self, object: &wire::ServiceCidr) -> Vec<Warning> {
        let (cidrs, warnings) = service_cidrs(object);
        if self.service_cidrs.get(&object.metadata.name) != Some(&cidrs) {
            self.service_cidrs
                .insert(object.metadata.name.clone(), cidrs);
            self.touched.node = true;
        }
        warnings
    }
}

#[cfg(test)]
mod tests;
