//! Ports of the Services of one namespace share a limit, because all Services of a node share what their ports need: memory, and in
//! nftables mode 131,072 numbers.
//!
//! If the namespaces together have more ports than there are numbers, the limit of each is halved until they fit. So a namespace loses
//! ports only if it has many, whatever the others do. Within a namespace the oldest Services have theirs first.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::Seniority;
use crate::model::{MOST_PORTS, Service, ServiceKey, Warning, Warnings};
use crate::wire::Kind;

/// How many ports each namespace has, and the Services that do not have all of theirs.
#[derive(Debug)]
pub(in crate::store) struct PortQuotas {
    /// As configured.
    limit: usize,
    /// What holds now.
    level: usize,
    /// For all namespaces together.
    capacity: usize,
    wanted: usize,
    namespaces: HashMap<Box<str>, Namespace>,
    /// Those in which something changed.
    changed: BTreeSet<Box<str>>,
    /// Services that have not all their ports, with all of them.
    cut: HashMap<ServiceKey, Cut>,
}

#[derive(Debug, Default)]
struct Namespace {
    wanted: usize,
    services: BTreeSet<ServiceKey>,
    /// Some Service does not have all its ports.
    is_over: bool,
}

#[derive(Debug)]
struct Cut {
    original: Arc<Service>,
    /// How many ports it was last given; none if it has changed since.
    granted: Option<usize>,
    /// How many it had when that was last reported.
    reported: usize,
}

impl PortQuotas {
    pub(in crate::store) fn new(limit: usize) -> Self {
        Self {
            limit,
            level: limit,
            capacity: MOST_PORTS,
            wanted: 0,
            namespaces: HashMap::new(),
            changed: BTreeSet::new(),
            cut: HashMap::new(),
        }
    }

    /// A Service as its object says, if it has not all its ports.
    pub(in crate::store) fn original(&self, key: &ServiceKey) -> Option<&Arc<Service>> {
        self.cut.get(key).map(|cut| &cut.original)
    }

    /// A Service appeared or changed, and had so many ports before. It is served with all of them until this is settled.
    pub(in crate::store) fn put(&mut self, service: &Arc<Service>, ports_before: usize) {
        let (key, ports) = (&service.key, service.ports.len());
        let namespace = self.namespaces.entry(key.namespace().into()).or_default();
        namespace.services.insert(key.clone());
        namespace.wanted = namespace.wanted - ports_before + ports;
        self.wanted = self.wanted - ports_before + ports;
        self.changed.insert(key.namespace().into());
        if let Some(cut) = self.cut.get_mut(key) {
            cut.original = Arc::clone(service);
            cut.granted = None;
        }
    }

    /// A Service has gone that had so many ports.
    pub(in crate::store) fn remove(&mut self, key: &ServiceKey, ports: usize) {
        self.cut.remove(key);
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

    /// Settles who has how many ports, once for all changes since the last time. `find` gives a Service that has all its
    /// ports, and when it appeared. Answers with the Services that do not have all of them, or have them all again.
    pub(in crate::store) fn settle(
        &mut self,
        find: impl Fn(&ServiceKey) -> Option<(Arc<Service>, u64)>,
    ) -> (Vec<Arc<Service>>, Vec<Warning>) {
        if self.changed.is_empty() {
            return (Vec::new(), Vec::new());
        }
        self.set_level();
        let (mut grants, mut warnings) = (Vec::new(), Vec::new());
        for name in std::mem::take(&mut self.changed) {
            let Some(namespace) = self.namespaces.get_mut(&name) else {
                continue;
            };
            if namespace.wanted <= self.level && !namespace.is_over {
                continue;
            }
            namespace.is_over = namespace.wanted > self.level;
            let wanted = namespace.wanted;
            let mut left = self.level;
            for service in by_age(namespace, &self.cut, &find) {
                let granted = service.ports.len().min(left);
                left -= granted;
                grants.extend(self.grant(&service, granted, wanted, &mut warnings));
            }
        }
        (grants, warnings)
    }

    /// The highest limit with which all namespaces together fit.
    fn set_level(&mut self) {
        let mut level = self.limit;
        let fits = |level: usize| {
            let granted = self.namespaces.values().map(|it| it.wanted.min(level));
            granted.sum::<usize>() <= self.capacity
        };
        while self.wanted > self.capacity && level > 1 && !fits(level) {
            level /= 2;
        }
        let lower = level.min(self.level);
        if level != self.level {
            let concerned = self.namespaces.iter().filter(|(_, it)| it.wanted > lower);
            self.changed.extend(concerned.map(|(name, _)| name.clone()));
        }
        self.level = level;
    }

    fn grant(
        &mut self,
        service: &Arc<Service>,
        granted: usize,
        wanted: usize,
        warnings: &mut Vec<Warning>,
    ) -> Option<Arc<Service>> {
        if granted == service.ports.len() {
            let was_cut = self.cut.remove(&service.key).is_some();
            return was_cut.then(|| Arc::clone(service));
        }
        let before = self.cut.get(&service.key);
        if before.is_some_and(|cut| cut.granted == Some(granted)) {
            return None;
        }
        if before.is_none_or(|cut| cut.reported != granted) {
            warnings.extend(self.warning(service, granted, wanted));
        }
        let cut = Cut {
            original: Arc::clone(service),
            granted: Some(granted),
            reported: granted,
        };
        self.cut.insert(service.key.clone(), cut);
        Some(Arc::new(service.with_ports(granted)))
    }

    fn warning(&self, service: &Service, granted: usize, wanted: usize) -> Vec<Warning> {
        let mut warnings = Warnings::new(Kind::Service, service.key.as_str());
        let why = if self.level < self.limit {
            format!(
                ", because all namespaces together have more than {}",
                self.capacity
            )
        } else {
            String::new()
        };
        let problem = format!(
            "the Services of this namespace have {wanted} ports, and the limit is {}{why}; only {granted} of this Service's {} ports are served",
            self.level,
            service.ports.len(),
        );
        warnings.add("spec.ports", problem);
        warnings.into_vec()
    }
}

/// The Services of a namespace as their objects say, the oldest first.
fn by_age(
    namespace: &Namespace,
    cut: &HashMap<ServiceKey, Cut>,
    find: impl Fn(&ServiceKey) -> Option<(Arc<Service>, u64)>,
) -> Vec<Arc<Service>> {
    let found = namespace.services.iter().filter_map(|key| {
        let (service, appeared) = find(key)?;
        let service = match cut.get(key) {
            Some(cut) => Arc::clone(&cut.original),
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
