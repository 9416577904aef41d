//! The endpoint lists of a service port: their number in ids, their slots, their selectors.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::endpoint_selector::{EndpointSelector, SelectorClasses};
use super::layout::{LOCAL, MAX_PORTS, MAX_STICKY, NftSetId, port_id};
use super::share::{UNCOMMON_CLASSES_PER_NAMESPACE, rounded};
use super::slots::{self, SlotTarget};
use crate::desired::{Endpoint, ServicePort};
use crate::dialect::nft::{Element, ElementKey, KeyBuilder};
use crate::model::{Algorithm, PortKey, Protocol, TrafficPolicy, Warning, Warnings};
use crate::wire::Kind;

/// What a service port has in the kernel, or is about to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PortLists {
    /// The service port's number; none without endpoints.
    pub(super) number: Option<u32>,
    /// With affinity: which endpoint has which number, starting with 1.
    pub(super) numbered: Box<[Option<SlotTarget>]>,
    /// The list for policy Cluster.
    pub(super) cluster: Option<EndpointList>,
    /// The list for policy Local. Few have one, so it takes no room where there is none.
    pub(super) local: Option<Box<EndpointList>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EndpointList {
    /// Who stands in which slot.
    pub(super) slots: Box<[SlotTarget]>,
    /// The selector with its class number; `None` until it is assigned.
    pub(super) pick: Option<(EndpointSelector, u32)>,
}

impl PortLists {
    /// The list a policy leads to.
    pub(super) fn get(&self, policy: TrafficPolicy) -> Option<&EndpointList> {
        match policy {
            TrafficPolicy::Cluster => self.cluster.as_ref(),
            TrafficPolicy::Local => self.local.as_deref(),
        }
    }

    /// The lists there are.
    fn both(&self) -> impl Iterator<Item = &EndpointList> {
        self.cluster.iter().chain(self.local.as_deref())
    }

    /// A list's id without a class.
    pub(super) fn id(&self, policy: TrafficPolicy) -> Option<u32> {
        let local = if policy == TrafficPolicy::Local {
            LOCAL
        } else {
            0
        };
        self.number.map(|number| port_id(number) | local)
    }

    /// A list's id with its class; `None` without endpoints.
    pub(super) fn pick_id(&self, policy: TrafficPolicy) -> Option<u32> {
        let (_, class) = self.get(policy)?.pick?;
        Some(self.id(policy)? | class)
    }

    /// The elements that make up the lists.
    pub(super) fn elements(&self, protocol: Protocol, out: &mut Vec<(NftSetId, Element)>) {
        for policy in [TrafficPolicy::Cluster, TrafficPolicy::Local] {
            let (Some(list), Some(id)) = (self.get(policy), self.id(policy)) else {
                continue;
            };
            match list.pick {
                Some((EndpointSelector::Sticky { .. }, _)) => {
                    self.sticky_elements(list, id, protocol, out);
                }
                Some(_) => plain_elements(list, id, protocol, out),
                None => {}
            }
        }
    }

    fn sticky_elements(
        &self,
        list: &EndpointList,
        id: u32,
        protocol: Protocol,
        out: &mut Vec<(NftSetId, Element)>,
    ) {
        let numbers: HashMap<SlotTarget, u32> = (1..)
            .zip(&self.numbered)
            .filter_map(|(n, target)| Some(((*target)?, id | n)))
            .collect();
        let mut members = list.slots.to_vec();
        members.sort_unstable();
        members.dedup();
        out.extend(members.iter().filter_map(|target| {
            let key = KeyBuilder::new()
                .proto(protocol)
                .number(*numbers.get(target)?)
                .build();
            Some((
                NftSetId::StickyEndpoints,
                Element::value(key, target_key(target)),
            ))
        }));
        out.extend((0..).zip(&list.slots).filter_map(|(slot, target)| {
            let key = KeyBuilder::new().number(id).number(slot).build();
            let endpoint = KeyBuilder::new().number(*numbers.get(target)?).build();
            Some((NftSetId::StickySlots, Element::value(key, endpoint)))
        }));
    }
}

fn plain_elements(
    list: &EndpointList,
    id: u32,
    protocol: Protocol,
    out: &mut Vec<(NftSetId, Element)>,
) {
    out.extend((0..).zip(&list.slots).map(|(slot, target)| {
        let key = KeyBuilder::new()
            .proto(protocol)
            .number(id)
            .number(slot)
            .build();
        (NftSetId::Endpoints, Element::value(key, target_key(target)))
    }));
}

fn target_key((ip, port): &SlotTarget) -> ElementKey {
    KeyBuilder::new().ip(*ip).port(*port).build()
}

/// Numbers of service ports, and classes.
#[derive(Debug, Default)]
pub(super) struct ListRegistry {
    pub(super) classes: SelectorClasses,
    next: u32,
    free: VecDeque<u32>,
    adopted: BTreeSet<u32>,
    /// Numbers from here on were not seen in the kernel.
    unseen: u32,
    /// What people should know about what was given out.
    pub(super) notes: Vec<String>,
    /// Warnings for the authors of Services.
    pub(super) warnings: Vec<Warning>,
}

/// One plan warns about at most this many Services: one namespace can have thousands of rounded lists.
const MOST_WARNINGS: usize = 64;

/// After a restart so many numbers behind the last known one are given out last.
const SPARED: u32 = 1024;

/// There are more service ports than an id has room for.
#[derive(Debug)]
pub(super) struct Exhausted;

impl ListRegistry {
    /// Takes a number that is in use in the kernel, unless someone else has it.
    pub(super) fn adopt(&mut self, number: u32) -> bool {
        number < MAX_PORTS && self.adopted.insert(number)
    }

    /// Notes a number that is in the kernel, whether or not it was adopted: clients' affinities may still refer to it.
    pub(super) fn spare(&mut self, number: u32) {
        if number < MAX_PORTS {
            self.unseen = self.unseen.max(number + 1);
        }
    }

    /// Ends adoption: from now on free numbers are given out, and what is always there is.
    pub(super) fn finish_adoption(&mut self) {
        let adopted = std::mem::take(&mut self.adopted);
        let last = adopted.last().map_or(0, |last| last + 1);
        let unseen = last.max(std::mem::take(&mut self.unseen));
        // Which numbers an earlier run gave out and took back cannot be known. Their affinities are removed within seconds, but not if
        // that run was killed just then.
        let gap = if unseen == 0 { 0 } else { SPARED };
        self.next = (unseen + gap).min(MAX_PORTS);
        self.free = (0..self.next)
            .filter(|number| !adopted.contains(number))
            .collect();
        self.classes.make_permanent();
    }

    /// The lists for these endpoints, changed as little as possible from what they were.
    pub(super) fn update(
        &mut self,
        before: &PortLists,
        port: &ServicePort,
        cluster: &[Endpoint],
        local: &[Endpoint],
    ) -> Result<PortLists, Exhausted> {
        if cluster.is_empty() && local.is_empty() {
            self.release(&port.key, before);
            return Ok(PortLists::default());
        }
        let number = match before.number {
            Some(number) => number,
            None => self.allocate()?,
        };
        // Before the new classes are acquired: a list that changes its selector must not need two classes.
        self.release_classes(&port.key, before);
        let mut lists = PortLists {
            number: Some(number),
            numbered: Box::default(),
            cluster: self.list(before.cluster.as_ref(), port, cluster, false),
            local: self
                .list(before.local.as_deref(), port, local, true)
                .map(Box::new),
        };
        if port.affinity.is_some() {
            let members = lists.both().flat_map(|list| &list.slots).copied().collect();
            lists.numbered = slots::number(&before.numbered, members, MAX_STICKY).into();
        }
        if lists.both().any(|list| list.pick.is_none()) {
            self.release(&port.key, &lists);
            return Err(Exhausted);
        }
        Ok(lists)
    }

    fn list(
        &mut self,
        before: Option<&EndpointList>,
        port: &ServicePort,
        endpoints: &[Endpoint],
        local: bool,
    ) -> Option<EndpointList> {
        let (slots_before, pick_before) =
            before.map_or((&[][..], None), |list| (&*list.slots, list.pick));
        let (slots, pick) = arrange(slots_before, port, endpoints, local)?;
        self.notes.extend(shortfall(port, endpoints));
        let namespace = port.key.service.namespace();
        if let Some(class) = self.classes.acquire(namespace, pick) {
            return Some(EndpointList {
                slots: slots.into(),
                pick: Some((pick, class)),
            });
        }
        let pick = rounded(pick);
        let class = self.classes.acquire(namespace, pick);
        if pick_before.map(|(pick, _)| pick) != Some(pick) {
            self.warn_rounded(&port.key, pick);
        }
        let endpoints = &endpoints[..used(port, endpoints)];
        Some(EndpointList {
            slots: slots::arrange_in(slots_before, endpoints, pick.slots()).into(),
            pick: class.map(|class| (pick, class)),
        })
    }

    fn warn_rounded(&mut self, port: &PortKey, pick: EndpointSelector) {
        if self.warnings.len() >= MOST_WARNINGS {
            return;
        }
        let cause = format!("a namespace may use {UNCOMMON_CLASSES_PER_NAMESPACE} uncommon");
        let (field, problem) = match pick {
            EndpointSelector::Sticky { timeout, .. } => (
                "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
                format!(
                    "{cause} combinations of timeout and number of endpoints, and this namespace needs more; clients of this Service are \
                     remembered for {timeout} seconds, and weights are approximated"
                ),
            ),
            EndpointSelector::Random { .. } | EndpointSelector::SourceHash { .. } => (
                "endpoints",
                format!(
                    "{cause} numbers of endpoints or sums of weights, and this namespace needs more; weights of this Service are approximated"
                ),
            ),
        };
        let mut warnings = Warnings::new(Kind::Service, port.service.as_str());
        warnings.add(field, problem);
        self.warnings.extend(warnings.into_vec());
    }

    /// The service port is no more.
    pub(super) fn release(&mut self, port: &PortKey, lists: &PortLists) {
        self.free.extend(lists.number);
        self.release_classes(port, lists);
    }

    fn release_classes(&mut self, port: &PortKey, lists: &PortLists) {
        let namespace = port.service.namespace();
        lists
            .both()
            .filter_map(|list| list.pick)
            .for_each(|(pick, _)| self.classes.release(namespace, pick));
    }

    /// A number that was never used before, or the one that has been free for longest: clients' affinities may still speak of it.
    fn allocate(&mut self) -> Result<u32, Exhausted> {
        if self.next == MAX_PORTS {
            return self.free.pop_front().ok_or(Exhausted);
        }
        self.next += 1;
        Ok(self.next - 1)
    }
}

/// The most endpoints of a list with affinity: both lists together have to do with the numbers there are.
const MAX_STICKY_LIST: usize = MAX_STICKY / 2;

/// The number of endpoints that are used.
fn used(port: &ServicePort, endpoints: &[Endpoint]) -> usize {
    match port.affinity {
        Some(_) => endpoints.len().min(MAX_STICKY_LIST),
        None => endpoints.len(),
    }
}

/// What a list is too long for.
fn shortfall(port: &ServicePort, endpoints: &[Endpoint]) -> Option<String> {
    let (key, count) = (&port.key, endpoints.len());
    match (port.affinity, port.algorithm) {
        (Some(_), _) if count > MAX_STICKY_LIST => Some(format!(
            "{key}: of its {count} endpoints only {MAX_STICKY_LIST} are used, because it has session affinity"
        )),
        (None, Algorithm::SourceHash) if count > slots::MAX_HASHED => Some(format!(
            "{key}: with {count} endpoints, source-hash ignores weights and moves clients on every change"
        )),
        _ => None,
    }
}

/// Arranges endpoints in slots and chooses a selector; `None` without endpoints.
fn arrange(
    before: &[SlotTarget],
    port: &ServicePort,
    endpoints: &[Endpoint],
    local: bool,
) -> Option<(Vec<SlotTarget>, EndpointSelector)> {
    if endpoints.is_empty() {
        return None;
    }
    Some(match (port.affinity, port.algorithm) {
        (Some(timeout), _) => {
            let endpoints = &endpoints[..used(port, endpoints)];
            let slots = slots::arrange(before, endpoints);
            let pick = EndpointSelector::Sticky {
                local,
                timeout,
                slots: slots.len() as u32,
            };
            (slots, pick)
        }
        (None, Algorithm::Random) => {
            let slots = slots::arrange(before, endpoints);
            let pick = EndpointSelector::Random {
                slots: slots.len() as u32,
            };
            (slots, pick)
        }
        (None, Algorithm::SourceHash) => {
            let slots = slots::hash_table(endpoints);
            let pick = EndpointSelector::SourceHash {
                slots: slots.len() as u32,
            };
            (slots, pick)
        }
    })
}
