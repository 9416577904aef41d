//! All EndpointSlices, indexed by name and by Service.

use std::collections::{BTreeSet, HashMap};

use crate::model::{EndpointSlice, ServiceKey, SliceKey};

/// All slices. Each change adds the services it touches to a set of the caller.
#[derive(Debug, Default)]
pub(super) struct SliceIndex {
    by_service: HashMap<ServiceKey, Slices>,
    /// Which Service a slice belongs to, to find it again when only its name is known.
    owners: HashMap<SliceKey, ServiceKey>,
}

/// The slices of one Service: the real ones in order of their names, then those made from a legacy object. Nearly always there is one, so a
/// plain list without room to grow beats all else by far in memory.
#[derive(Debug, Default)]
struct Slices(Box<[EndpointSlice]>);

impl SliceIndex {
    /// The slices of a Service, in order of their names. Those made from a legacy object count only where there are no others.
    pub(super) fn of(&self, service: &ServiceKey) -> impl Iterator<Item = &EndpointSlice> {
        let slices = self.by_service.get(service);
        slices.map(Slices::in_force).into_iter().flatten()
    }

    /// The name of a Service that has slices, as it is kept here.
    pub(super) fn service_key(&self, service: &ServiceKey) -> Option<&ServiceKey> {
        let (key, _) = self.by_service.get_key_value(service)?;
        Some(key)
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
            slices.remove(key);
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
        if slices.put_mirrored(mirrored) {
            touched.insert(service.clone());
        }
        self.forget_if_empty(service);
    }

    /// The index is empty.
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
    /// The real slices and the mirrored ones.
    fn parts(&self) -> (&[EndpointSlice], &[EndpointSlice]) {
        self.0
            .split_at(self.0.partition_point(|slice| !slice.mirrored))
    }

    /// The slices in use: real ones, or mirrored ones where there are none.
    fn in_force(&self) -> &[EndpointSlice] {
        match self.parts() {
            ([], mirrored) => mirrored,
            (real, _) => real,
        }
    }

    /// Adds or replaces a slice; false if it was there already and the same.
    fn put(&mut self, slice: EndpointSlice) -> bool {
        let (real, _) = self.parts();
        match real.binary_search_by(|other| other.key.cmp(&slice.key)) {
            Ok(at) if self.0[at] == slice => return false,
            Ok(at) => self.0[at] = slice,
            Err(at) => self.change(|all| {
                all.reserve_exact(1);
                all.insert(at, slice);
            }),
        }
        true
    }

    /// Removes a real slice.
    fn remove(&mut self, key: &SliceKey) {
        self.change(|all| all.retain(|slice| slice.mirrored || slice.key != *key));
    }

    /// Replaces the mirrored slices; false if they are the same.
    fn put_mirrored(&mut self, mirrored: Vec<EndpointSlice>) -> bool {
        let (real, before) = self.parts();
        let is_news = *before != *mirrored;
        if is_news {
            let real = real.len();
            self.change(|all| {
                all.truncate(real);
                all.extend(mirrored);
            });
        }
        is_news
    }

    fn change(&mut self, change: impl FnOnce(&mut Vec<EndpointSlice>)) {
        let mut all = std::mem::take(&mut self.0).into_vec();
        change(&mut all);
        self.0 = all.into();
    }
}
