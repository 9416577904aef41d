//! Every slice, found by its own name and by its Service.

use std::collections::{BTreeSet, HashMap};

use crate::model::{EndpointSlice, ServiceKey, SliceKey};

/// All slices. Each change notes the services it touches in a set of the caller's.
#[derive(Debug, Default)]
pub(super) struct SliceIndex {
    by_service: HashMap<ServiceKey, Slices>,
    /// Which Service a slice belongs to, to find it again when only its name is known.
    owners: HashMap<SliceKey, ServiceKey>,
}

/// The slices of one Service. Nearly always there is one, so plain lists beat maps by far in memory.
#[derive(Debug, Default)]
struct Slices {
    /// In order of their names.
    real: Vec<EndpointSlice>,
    mirrored: Vec<EndpointSlice>,
}

impl SliceIndex {
    /// The slices of a Service, in order of their names. Those made from a legacy object count only where there are no others.
    pub(super) fn of(&self, service: &ServiceKey) -> impl Iterator<Item = &EndpointSlice> {
        let slices = self.by_service.get(service);
        slices.map(Slices::in_force).into_iter().flatten()
    }

    /// All slices of a namespace that are in force, in no order.
    pub(super) fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &EndpointSlice> {
        let services = self.by_service.iter();
        let meant = services.filter(move |(service, _)| service.namespace() == namespace);
        meant.flat_map(|(_, slices)| slices.in_force())
    }

    /// Adds or replaces a slice; false if it was there already and the same.
    pub(super) fn put(&mut self, slice: EndpointSlice, touched: &mut BTreeSet<ServiceKey>) -> bool {
        // A slice can be relabelled; its endpoints must not stay with the Service it left.
        if self
            .owners
            .get(&slice.key)
            .is_some_and(|owner| *owner != slice.service)
        {
            self.remove(&slice.key, touched);
        }
        let (key, service) = (slice.key.clone(), slice.service.clone());
        let of_service = self.by_service.entry(service.clone()).or_default();
        let is_news = of_service.put(slice);
        if is_news {
            touched.insert(service.clone());
            self.owners.insert(key, service);
        }
        is_news
    }

    /// Removes a slice, if it is there; answers with the Service it belonged to.
    pub(super) fn remove(
        &mut self,
        key: &SliceKey,
        touched: &mut BTreeSet<ServiceKey>,
    ) -> Option<ServiceKey> {
        let service = self.owners.remove(key)?;
        if let Some(slices) = self.by_service.get_mut(&service) {
            slices.real.retain(|slice| slice.key != *key);
        }
        self.forget_if_empty(&service);
        touched.insert(service.clone());
        Some(service)
    }

    /// Replaces what was made from the legacy object of a Service.
    pub(super) fn put_mirrored(
        &mut self,
        service: &ServiceKey,
        mirrored: Vec<EndpointSlice>,
        touched: &mut BTreeSet<ServiceKey>,
    ) {
        let slices = self.by_service.entry(service.clone()).or_default();
        if slices.mirrored != mirrored {
            slices.mirrored = mirrored;
            touched.insert(service.clone());
        }
        self.forget_if_empty(service);
    }

    /// Nothing is left behind.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_service.is_empty() && self.owners.is_empty()
    }

    fn forget_if_empty(&mut self, service: &ServiceKey) {
        if self
            .by_service
            .get(service)
            .is_some_and(|slices| slices.in_force().is_empty())
        {
            self.by_service.remove(service);
        }
    }
}

impl Slices {
    /// The slices that count.
    fn in_force(&self) -> &[EndpointSlice] {
        if self.real.is_empty() {
            &self.mirrored
        } else {
            &self.real
        }
    }

    /// Adds or replaces a slice; false if it was there already and the same.
    fn put(&mut self, slice: EndpointSlice) -> bool {
        let at = self.real.partition_point(|other| other.key < slice.key);
        match self.real.get_mut(at).filter(|other| other.key == slice.key) {
            Some(other) if *other == slice => return false,
            Some(other) => *other = slice,
            None => {
                self.real.reserve_exact(1);
                self.real.insert(at, slice);
            }
        }
        true
    }
}
