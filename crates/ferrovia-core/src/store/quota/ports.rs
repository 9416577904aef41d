//! The quota of ports that Services of one namespace share. All Services of a node share what their ports need: memory, and in nftables mode
//! 131,072 list ids.
//!
//! If all namespaces together have more ports than that, the limit of each namespace is halved until they fit. So a namespace loses ports only
//! if it has many, whatever the others do. Within a namespace the oldest Services are served first.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::Seniority;
use crate::model::{MOST_PORTS, Service, ServiceKey, Warning, Warnings};
use crate::wire::Kind;

/// The ports of each namespace, and the Services of which only some ports are served.
#[derive(Debug)]
pub(in crate::store) struct PortQuotas {
    /// The configured limit of a namespace.
    limit: usize,
    /// The limit in force, which is lower while all namespaces together have too many ports.
    current_limit: usize,
    /// The most ports of all namespaces together.
    capacity: usize,
    wanted: usize,
    namespaces: HashMap<Box<str>, NamespacePorts>,
    /// Those in which something changed.
    changed: BTreeSet<Box<str>>,
    /// Services of which only some ports are served, in their original form.
    limited: HashMap<ServiceKey, LimitedService>,
}

#[derive(Debug, Default)]
struct NamespacePorts {
    wanted: usize,
    services: BTreeSet<ServiceKey>,
    /// Only some ports of some Service are served.
    is_over: bool,
}

#[derive(Debug)]
struct LimitedService {
    original: Arc<Service>,
    /// The number of ports last granted; `None` if the Service has changed since.
    granted: Option<usize>,
    /// The number of ports granted when that was last reported.
    reported: usize,
}

impl PortQuotas {
    pub(in crate::store) fn new(limit: usize) -> Self {
        Self {
            limit,
            current_limit: limit,
            capacity: MOST_PORTS,
            wanted: 0,
            namespaces: HashMap::new(),
            changed: BTreeSet::new(),
            limited: HashMap::new(),
        }
    }

    /// The original form of a Service of which only some ports are served.
    pub(in crate::store) fn original(&self, key: &ServiceKey) -> Option<&Arc<Service>> {
        self.limited.get(key).map(|it| &it.original)
    }

    /// Adds or replaces a Service that had this many ports before. All its ports are served until [`settle`](Self::settle).
    pub(in crate::store) fn put(&mut self, service: &Arc<Service>, ports_before: usize) {
        let (key, ports) = (&service.key, service.ports.len());
        let namespace = self.namespaces.entry(key.namespace().into()).or_default();
        namespace.services.insert(key.clone());
        namespace.wanted = namespace.wanted - ports_before + ports;
        self.wanted = self.wanted - ports_before + ports;
        self.changed.insert(key.namespace().into());
        if let Some(limited) = self.limited.get_mut(key) {
            limited.original = Arc::clone(service);
            limited.granted = None;
        }
    }

    /// Removes a Service that had this many ports.
    pub(in crate::store) fn remove(&mut self, key: &ServiceKey, ports: usize) {
        self.limited.remove(key);
        let Some(namespace) = self.namespaces.get_mut(key.namespace()) else {
            return;
        };
        namespace.services.remove(key);
        namespace.wanted -= ports;
        self.wanted -= ports;
        if namespace.services.is_empty() {
            self.namespaces.remove(key.namespace());
        }
        self.changed.insert(key.namespace().into());
    }

    /// Applies the limits after all changes since the last call. `find` returns a Service with its external IPs and its order of appearance.
    /// Returns the Services whose number of ports changes.
    pub(in crate::store) fn settle(
        &mut self,
        find: impl Fn(&ServiceKey) -> Option<(Arc<Service>, u64)>,
    ) -> (Vec<Arc<Service>>, Vec<Warning>) {
        if self.changed.is_empty() {
            return (Vec::new(), Vec::new());
        }
        self.update_current_limit();
        let (mut grants, mut warnings) = (Vec::new(), Vec::new());
        for name in std::mem::take(&mut self.changed) {
            let Some(namespace) = self.namespaces.get_mut(&name) else {
                continue;
            };
            if namespace.wanted <= self.current_limit && !namespace.is_over {
                continue;
            }
            namespace.is_over = namespace.wanted > self.current_limit;
            let wanted = namespace.wanted;
            let mut left = self.current_limit;
            for service in by_age(namespace, &self.limited, &find) {
                let granted = service.ports.len().min(left);
                left -= granted;
                grants.extend(self.grant(&service, granted, wanted, &mut warnings));
            }
        }
        (grants, warnings)
    }

    /// Halves the configured limit until all namespaces together fit.
    fn update_current_limit(&mut self) {
        let mut level = self.limit;
        let fits = |level: usize| {
            let granted = self.namespaces.values().map(|it| it.wanted.min(level));
            granted.sum::<usize>() <= self.capacity
        };
        while self.wanted > self.capacity && level > 1 && !fits(level) {
            level /= 2;
        }
        let lower = level.min(self.current_limit);
        if level != self.current_limit {
            let concerned = self.namespaces.iter().filter(|(_, it)| it.wanted > lower);
            self.changed.extend(concerned.map(|(name, _)| name.clone()));
        }
        self.current_limit = level;
    }

    fn grant(
        &mut self,
        service: &Arc<Service>,
        granted: usize,
        wanted: usize,
        warnings: &mut Vec<Warning>,
    ) -> Option<Arc<Service>> {
        if granted == service.ports.len() {
            let was_limited = self.limited.remove(&service.key).is_some();
            return was_limited.then(|| Arc::clone(service));
        }
        let before = self.limited.get(&service.key);
        if before.is_some_and(|it| it.granted == Some(granted)) {
            return None;
        }
        if before.is_none_or(|it| it.reported != granted) {
            warnings.extend(self.warning(service, granted, wanted));
        }
        let limited = LimitedService {
            original: Arc::clone(service),
            granted: Some(granted),
            reported: granted,
        };
        self.limited.insert(service.key.clone(), limited);
        Some(Arc::new(service.with_ports(granted)))
    }

    fn warning(&self, service: &Service, granted: usize, wanted: usize) -> Vec<Warning> {
        let mut warnings = Warnings::new(Kind::Service, service.key.as_str());
        let why = if self.current_limit < self.limit {
            format!(
                ", because all namespaces together have more than {}",
                self.capacity
            )
        } else {
            String::new()
        };
        let problem = format!(
            "the Services of this namespace have {wanted} ports, and the limit is {}{why}; only {granted} of this Service's {} ports are served",
            self.current_limit,
            service.ports.len(),
        );
        warnings.add("spec.ports", problem);
        warnings.into_vec()
    }
}

/// The Services of a namespace in their original form, the oldest first.
fn by_age(
    namespace: &NamespacePorts,
    limited: &HashMap<ServiceKey, LimitedService>,
    find: impl Fn(&ServiceKey) -> Option<(Arc<Service>, u64)>,
) -> Vec<Arc<Service>> {
    let found = namespace.services.iter().filter_map(|key| {
        let (service, appeared) = find(key)?;
        let service = match limited.get(key) {
            Some(it) => Arc::clone(&it.original),
            None => service,
        };
        Some((Seniority::of(&service, appeared), service))
    });
    let mut services: Vec<_> = found.collect();
    services.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    services.into_iter().map(|(_, service)| service).collect()
}

#[cfg(test)]
mod tests;
