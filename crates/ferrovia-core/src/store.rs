//! Takes in watch events and reports which services they touch.
//!
//! The store keeps the parsed objects, interns the names in them, and records which services an event touched. It has one writer and reads
//! no clock. The [builder](crate::desired::Builder) derives the desired state of this node from it.

mod quota;
mod slices;
mod warning_history;

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use self::quota::Quotas;
use self::quota::ports::PortQuotas;
use self::slices::SliceIndex;
use self::warning_history::{WarningHistory, unusable};
use crate::family::Family;
use crate::model::node::Node;
use crate::model::{
    CreationTime, EndpointSlice, NamePool, Service, ServiceKey, ServicePolicy, SliceKey, Warning,
    fold_nested, mirror, namespace_or_default, service_cidrs,
};
use crate::pod_name_hash::PodNameHash;
use crate::wire::{self, Kind, Object};

/// A change reported by a source (the API server or a manifest folder).
#[derive(Clone, Debug)]
pub enum Event {
    /// An object was added or modified.
    Applied(Box<Object>),
    /// An object was deleted.
    Deleted {
        kind: Kind,
        namespace: String,
        name: String,
    },
    /// The initial list of this kind is complete.
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

/// What events have touched since the last call of [`Store::take_touched`].
#[derive(Clone, Debug, Default)]
pub struct Touched {
    /// Services whose ports or endpoints may have changed.
    pub services: BTreeSet<ServiceKey>,
    /// When endpoints were changed, from the annotations of the changed slices: RFC 3339, unchecked.
    pub triggers: Triggers,
    /// The Node object or a ServiceCIDR changed.
    pub node: bool,
    /// Warnings that no single event caused.
    pub warnings: Vec<Warning>,
}

/// Trigger times by Service and family, some of the oldest of each. Only of changes after the initial list: earlier ones show how old the
/// cluster is, not the programming latency.
pub type Triggers = BTreeMap<ServiceKey, Vec<(Family, Box<str>)>>;

/// Set by the EndpointSlice controller to the time of the pod change.
const TRIGGER_ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// Longer timestamps are ignored.
const LONGEST_TIME: usize = 40;
/// A Service's slices may change any number of times between two syncs; so many are enough to judge by.
const MOST_TRIGGERS: usize = 16;

/// The age of a Service, for the rule that of two claims to the same address the older wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Age {
    /// `metadata.creationTimestamp`.
    pub(crate) created: Option<CreationTime>,
    /// How many Services were added before it; 0 for all in the initial list.
    pub(crate) appeared: u64,
}

/// The parsed objects, reduced to the fields we need.
#[derive(Debug)]
pub struct Store {
    node_name: String,
    node: Option<Node>,
    policy: ServicePolicy,
    services: HashMap<ServiceKey, StoredService>,
    port_quotas: PortQuotas,
    quotas: Quotas,
    slices: SliceIndex,
    service_cidrs: BTreeMap<String, Box<[IpNet]>>,
    names: NamePool,
    listed: BTreeSet<Kind>,
    appearances: u64,
    touched: Touched,
    warning_history: WarningHistory,
}

/// A Service and its order of appearance.
#[derive(Debug)]
struct StoredService {
    service: Arc<Service>,
    appeared: u64,
}

impl Store {
    /// An empty store for the node of this name, with the default service policy.
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
            names: NamePool::default(),
            listed: BTreeSet::new(),
            appearances: 0,
            touched: Touched::default(),
            warning_history: WarningHistory::default(),
        }
    }

    /// Applies an event and returns warnings about its object that are new.
    ///
    /// It accepts a reference too, so that many events can be freed together: freed one by one, the memory of each would be
    /// reused for what is kept of the next, and the heap would stay fragmented.
    pub fn handle(&mut self, event: impl Borrow<Event>) -> Vec<Warning> {
        match event.borrow() {
            Event::Applied(object) => {
                let warnings = self.apply(object);
                (self.warning_history).only_new(object.kind(), object.metadata(), warnings)
            }
            Event::Deleted {
                kind,
                namespace,
                name,
            } => {
                self.delete(*kind, namespace, name);
                self.warning_history.forget(*kind, namespace, name);
                Vec::new()
            }
            Event::Listed(kind) => {
                self.listed.insert(*kind);
                Vec::new()
            }
        }
    }

    /// Takes what was touched since the last call.
    pub fn take_touched(&mut self) -> Touched {
        self.settle_quotas();
        std::mem::take(&mut self.touched)
    }

    /// The initial list of this kind is complete.
    pub fn is_listed(&self, kind: Kind) -> bool {
        self.listed.contains(&kind)
    }

    /// The initial lists of Services and EndpointSlices are complete. Nodes and ServiceCIDRs are not required: they may not exist.
    pub fn initial_lists_done(&self) -> bool {
        [Kind::Service, Kind::EndpointSlice]
            .iter()
            .all(|kind| self.listed.contains(kind))
    }

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

    /// The addresses of a pod, as far as it is an endpoint of some Service, and whether it runs on our node. Searches all slices of the namespace.
    pub fn pod_addresses(&self, namespace: &str, name: &str) -> BTreeMap<IpAddr, bool> {
        let mark = Some(PodNameHash::of(name));
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

    /// The ServiceCIDR ranges of both families, without nested ones.
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
                let key = ServiceKey::from_checked_names(namespace, name);
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
                // The pending change is a deletion, for which there is no trigger time.
                if let Some(service) = owner {
                    touched.triggers.remove(&service);
                }
            }
            Kind::Endpoints => {
                let key = ServiceKey::from_checked_names(namespace, name);
                self.slices
                    .put_mirrored(&key, Vec::new(), &mut self.touched.services);
            }
            // The machine still exists and keeps its addresses; only the object was deleted.
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

    /// Stores a Service; touches it only if a field we read differs.
    fn put_service(&mut self, mut service: Service) {
        service.share_names(&mut self.names);
        service.key = self.shared_key(service.key);
        let key = service.key.clone();
        // A Service limited by a quota is compared in its original form.
        if let Some(before) = self.original_service(&key) {
            if **before != service {
                let ports = before.ports.len();
                self.replace_service(service, ports);
            }
            return;
        }
        // The order within the initial list has no meaning, so all of it shares one number.
        if self.listed.contains(&Kind::Service) {
            self.appearances += 1;
        }
        let service = Arc::new(service);
        self.port_quotas.put(&service, 0);
        self.quotas.put(&service, self.appearances);
        self.touched.services.insert(key.clone());
        self.services.insert(
            key,
            StoredService {
                service,
                appeared: self.appearances,
            },
        );
    }

    /// Replaces a Service that had this many ports.
    fn replace_service(&mut self, service: Service, ports_before: usize) {
        let service = Arc::new(service);
        let key = &service.key;
        self.port_quotas.put(&service, ports_before);
        self.touched.services.insert(key.clone());
        self.serve(&service);
    }

    /// Serves a Service in this form; the quota of external IPs still applies to it.
    fn serve(&mut self, service: &Arc<Service>) {
        if let Some(known) = self.services.get_mut(&service.key) {
            known.service = Arc::clone(service);
            self.quotas.put(service, known.appeared);
        }
    }

    /// A Service in its original form, before quotas.
    fn original_service(&self, key: &ServiceKey) -> Option<&Arc<Service>> {
        let limited = self.port_quotas.original(key);
        limited
            .or_else(|| self.quotas.original(key))
            .or_else(|| Some(&self.services.get(key)?.service))
    }

    /// Applies the quotas of ports and external IPs.
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

    /// The interned copy of a Service's key. Its slices may have arrived before it.
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

    /// An Endpoints object becomes mirrored slices, which are kept apart from real ones.
    fn apply_endpoints(&mut self, object: &wire::Endpoints) -> Vec<Warning> {
        let metadata = &object.metadata;
        match mirror(object) {
            Ok((mut slices, warnings)) => {
                let namespace = namespace_or_default(&metadata.namespace);
                let key =
                    self.shared_key(ServiceKey::from_checked_names(namespace, &metadata.name));
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

    /// The source may list every node; only our own matters.
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

    /// Ranges are kept per object: two may hold the same one, and it must stay until both are deleted.
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
