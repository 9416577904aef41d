//! The quotas that Services of one namespace share: of external IP frontends here, of ports in [`ports`].
//!
//! The oldest Services are served first, then by name, so that the result does not depend on the order of events. What is left out
//! is served as soon as older Services free their share.

pub(super) mod ports;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::model::{CreationTime, Service, ServiceKey, Warning, Warnings};
use crate::wire::Kind;

/// The Services with external IPs, by namespace.
#[derive(Debug)]
pub(super) struct Quotas {
    limit: usize,
    namespaces: HashMap<Box<str>, NamespaceQuota>,
    /// Those in which something changed.
    changed: BTreeSet<Box<str>>,
}

#[derive(Debug, Default)]
struct NamespaceQuota {
    /// Frontends requested by all members.
    wanted: usize,
    /// Some member gets fewer than it requests.
    is_over: bool,
    members: BTreeMap<Seniority, Member>,
    ages: HashMap<ServiceKey, Seniority>,
}

/// Sorts by age, those whose creation time is not known last, and then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Seniority {
    is_unknown: bool,
    created: Option<CreationTime>,
    appeared: u64,
    key: ServiceKey,
}

impl Seniority {
    fn of(service: &Service, appeared: u64) -> Self {
        Self {
            is_unknown: service.created.is_none(),
            created: service.created,
            // The order of appearance counts only without a creation time.
            appeared: if service.created.is_none() {
                appeared
            } else {
                0
            },
            key: service.key.clone(),
        }
    }
}

#[derive(Debug)]
struct Member {
    /// With all its external IPs.
    service: Arc<Service>,
    /// How many it has.
    granted: usize,
    /// How many it had of how many when that was last reported.
    reported: Option<(usize, usize)>,
}

/// A Service whose number of served external IPs changed.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) key: ServiceKey,
    /// With those it has.
    pub(super) service: Arc<Service>,
}

impl Quotas {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            namespaces: HashMap::new(),
            changed: BTreeSet::new(),
        }
    }

    /// A Service in its original form, if it has external IPs.
    pub(super) fn original(&self, key: &ServiceKey) -> Option<&Arc<Service>> {
        let namespace = self.namespaces.get(key.namespace())?;
        let member = namespace.members.get(namespace.ages.get(key)?)?;
        Some(&member.service)
    }

    /// Adds or updates a Service. It is served with all its external IPs until the next call of `settle`.
    pub(super) fn put(&mut self, service: &Arc<Service>, appeared: u64) {
        let key = &service.key;
        let reported = self.remove(key);
        if service.external_ip_count() == 0 {
            return;
        }
        let age = Seniority::of(service, appeared);
        let member = Member {
            service: Arc::clone(service),
            granted: service.external_ip_count(),
            reported,
        };
        let namespace = self.namespaces.entry(key.namespace().into()).or_default();
        namespace.wanted += frontends(service);
        namespace.ages.insert(key.clone(), age.clone());
        namespace.members.insert(age, member);
        self.changed.insert(key.namespace().into());
    }

    /// Removes a Service and returns what was last reported about it.
    pub(super) fn remove(&mut self, key: &ServiceKey) -> Option<(usize, usize)> {
        let namespace = self.namespaces.get_mut(key.namespace())?;
        let age = namespace.ages.remove(key)?;
        let member = namespace.members.remove(&age)?;
        namespace.wanted -= frontends(&member.service);
        if namespace.members.is_empty() {
            self.namespaces.remove(key.namespace());
            self.changed.remove(key.namespace());
        } else {
            self.changed.insert(key.namespace().into());
        }
        member.reported
    }

    /// Distributes the quota, once for all changes since the last call.
    pub(super) fn settle(&mut self) -> (Vec<Grant>, Vec<Warning>) {
        let (mut grants, mut warnings) = (Vec::new(), Vec::new());
        for name in std::mem::take(&mut self.changed) {
            if let Some(namespace) = self.namespaces.get_mut(&name) {
                namespace.settle(self.limit, &mut grants, &mut warnings);
            }
        }
        (grants, warnings)
    }
}

impl NamespaceQuota {
    fn settle(&mut self, limit: usize, grants: &mut Vec<Grant>, warnings: &mut Vec<Warning>) {
        if self.wanted <= limit && !self.is_over {
            return;
        }
        let wanted = self.wanted;
        let mut left = limit;
        for member in self.members.values_mut() {
            let count = member.service.external_ip_count();
            let ports = member.service.ports.len().max(1);
            let granted = count.min(left / ports);
            left -= granted * ports;
            if granted != member.granted {
                member.granted = granted;
                grants.push(member.grant());
            }
            let report = (granted < count).then_some((granted, count));
            if report.is_some() && report != member.reported {
                warnings.extend(member.warning(wanted, limit));
            }
            member.reported = report;
        }
        self.is_over = self.wanted > limit;
    }
}

impl Member {
    fn grant(&self) -> Grant {
        let is_whole = self.granted == self.service.external_ip_count();
        Grant {
            key: self.service.key.clone(),
            service: if is_whole {
                Arc::clone(&self.service)
            } else {
                Arc::new(self.service.with_external_ips(self.granted))
            },
        }
    }

    fn warning(&self, wanted: usize, limit: usize) -> Vec<Warning> {
        let mut warnings = Warnings::new(Kind::Service, self.service.key.as_str());
        let problem = format!(
            "external IPs in this namespace need {wanted} frontends, the limit is {limit}; only {} of {} addresses of this Service are served",
            self.granted,
            self.service.external_ip_count(),
        );
        warnings.add("spec.externalIPs", problem);
        warnings.into_vec()
    }
}

/// How many pairs of an external IP and a port a Service requests.
fn frontends(service: &Service) -> usize {
    service.external_ip_count() * service.ports.len().max(1)
}

#[cfg(test)]
mod tests;
