//! Reading our table back as services: what an id leads to.
//!
//! The inverse of `service.rs`: it explains elements, trusting nothing but their values. What was counted is added by `count.rs`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use super::adopt::{number, target};
use super::layout::{
    BY_SOURCE, CLASS_BITS, LIST_BITS, LOCAL, MASQUERADE, NftSetId, PORT_BITS, TAG,
};
use super::slots::SlotTarget;
use crate::dialect::nft::{ElementData, ElementKey, NftObserved, NftVerdict, ObservedElement};

/// Our table as services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceTableView {
    /// Where clients connect to, in order of name and address.
    pub frontends: Vec<KernelFrontend>,
    /// The lists of endpoints, by number.
    pub lists: BTreeMap<u32, KernelEndpointList>,
}

/// An address and port, or a node port, as found in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelFrontend {
    /// The service port's name, from the element's comment.
    pub service: Box<str>,
    /// The address; none for a node port.
    pub address: Option<IpAddr>,
    pub protocol: u8,
    pub port: u16,
    /// What happens to its packets.
    pub path: FrontendPath,
    /// Connections to it, by the endpoint that took them; also those that endpoints took that are not there any more.
    pub connections: BTreeMap<SlotTarget, u64>,
    pub refused: u64,
}

/// What a packet is addressed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketDestination {
    /// The address; none for any of this node's.
    pub address: Option<IpAddr>,
    pub protocol: u8,
    pub port: u16,
}

impl KernelFrontend {
    /// What packets to it are addressed to.
    pub(super) fn destination(&self) -> PacketDestination {
        PacketDestination {
            address: self.address,
            protocol: self.protocol,
            port: self.port,
        }
    }
}

/// What happens to packets to a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrontendPath {
    /// An endpoint of this list takes them.
    List {
        list: u32,
        /// The connection gets this node's address as source.
        masquerade: bool,
    },
    /// Which list depends on the source.
    BySource {
        /// The list for pods and this node.
        inside: Option<u32>,
        /// The list for others.
        outside: Option<u32>,
    },
    /// Rejected with an ICMP error, or dropped if so configured: there is no endpoint anywhere.
    Rejected,
    /// Dropped: the traffic policy leaves no endpoint on this node.
    Dropped,
}

/// A list of endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelEndpointList {
    /// It is the one for policy Local.
    pub local: bool,
    /// The name of its selector chain.
    pub pick: String,
    /// The endpoints, each with the number of its slots.
    pub endpoints: BTreeMap<SlotTarget, u32>,
}

impl ServiceTableView {
    pub fn of(observed: &NftObserved) -> Self {
        let table = ViewSource(observed);
        let mut view = Self {
            frontends: table.frontends(),
            lists: BTreeMap::new(),
        };
        view.frontends.sort_unstable();
        table.plain_lists(&mut view.lists);
        table.sticky_lists(&mut view.lists);
        for (number, list) in &mut view.lists {
            list.local = number & LOCAL != 0;
        }
        for (list, pick) in table.picks() {
            if let Some(view) = view.lists.get_mut(&list) {
                view.pick = pick;
            }
        }
        view
    }
}

/// Everything a table means, one line a fact: numbers of lists and classes, which depend on history, are replaced by what they stand
/// for, and counts are left out. Two tables that treat packets alike have the same meaning.
pub fn meaning(observed: &NftObserved) -> BTreeSet<String> {
    let view = ServiceTableView::of(observed);
    let list = |number: u32| match view.lists.get(&number) {
        Some(list) => list.describe(),
        None => "nothing".to_owned(),
    };
    let mut facts: BTreeSet<String> = BTreeSet::new();
    for (name, chain) in &observed.chains {
        facts.insert(format!("chain {name}: {:?} {:?}", chain.hook, chain.rules));
    }
    for KernelFrontend {
        service,
        address,
        protocol,
        port,
        path,
        ..
    } in &view.frontends
    {
        let path = match *path {
            FrontendPath::List {
                list: number,
                masquerade,
            } => format!("masquerade={masquerade} {}", list(number)),
            FrontendPath::BySource { inside, outside } => {
                format!(
                    "inside {} outside {}",
                    list(inside.unwrap_or(0)),
                    list(outside.unwrap_or(0))
                )
            }
            FrontendPath::Rejected => "rejected".to_owned(),
            FrontendPath::Dropped => "dropped".to_owned(),
        };
        facts.insert(format!("{service} {address:?} {protocol} {port}: {path}"));
    }
    for set in [
        NftSetId::ClusterIps,
        NftSetId::NodePortIps,
        NftSetId::Restricted,
        NftSetId::AllowedSources,
        NftSetId::Hairpin,
    ] {
        let elements = observed
            .sets
            .get(set.name())
            .into_iter()
            .flat_map(|set| &set.elements);
        facts.extend(elements.map(|(key, e)| format!("{}: {key:?} {:?}", set.name(), e.key_end)));
    }
    // Nothing lies about that no frontend leads to.
    facts.insert(format!("{} lists", view.lists.len()));
    facts
}

impl KernelEndpointList {
    fn describe(&self) -> String {
        let endpoints = self.endpoints.iter();
        let endpoints: Vec<String> = endpoints
            .map(|((ip, port), slots)| format!("{ip} {port} x{slots}"))
            .collect();
        format!("{} [{}]", self.pick, endpoints.join(", "))
    }
}

struct ViewSource<'a>(&'a NftObserved);

impl<'a> ViewSource<'a> {
    fn elements(
        &self,
        set: NftSetId,
    ) -> impl Iterator<Item = (&'a ElementKey, &'a ObservedElement)> {
        self.0
            .sets
            .get(set.name())
            .into_iter()
            .flat_map(|set| &set.elements)
    }

    fn numbers(&self, set: NftSetId) -> impl Iterator<Item = (u32, u32)> {
        self.elements(set)
            .filter_map(|(key, element)| Some((number(key.as_bytes())?, id(element)?)))
    }

    fn frontends(&self) -> Vec<KernelFrontend> {
        let by_source = |set| self.numbers(set).collect::<HashMap<_, _>>();
        let (inside, outside) = (
            by_source(NftSetId::ExternalInside),
            by_source(NftSetId::ExternalOutside),
        );
        let path = |id: u32| {
            let list =
                |map: &HashMap<u32, u32>| map.get(&(id & PORT_BITS)).map(|id| id & LIST_BITS);
            if id & BY_SOURCE != 0 {
                FrontendPath::BySource {
                    inside: list(&inside),
                    outside: list(&outside),
                }
            } else {
                FrontendPath::List {
                    list: id & LIST_BITS,
                    masquerade: id & MASQUERADE != 0,
                }
            }
        };
        let served = [NftSetId::Services, NftSetId::NodePorts]
            .into_iter()
            .flat_map(|set| self.elements(set));
        let served = served.filter_map(|(key, element)| frontend(key, element, path(id(element)?)));
        let refused = |reject: [NftSetId; 2], path: FrontendPath| {
            let elements = reject.into_iter().flat_map(|set| self.elements(set));
            elements
                .filter_map(move |(key, element)| frontend(key, element, path))
                .collect::<Vec<_>>()
        };
        served
            .chain(refused(
                [NftSetId::RejectedServices, NftSetId::RejectedNodePorts],
                FrontendPath::Rejected,
            ))
            .chain(refused(
                [NftSetId::DroppedServices, NftSetId::DroppedNodePorts],
                FrontendPath::Dropped,
            ))
            .collect()
    }

    fn plain_lists(&self, lists: &mut BTreeMap<u32, KernelEndpointList>) {
        for (key, element) in self.elements(NftSetId::Endpoints) {
            let list = key.as_bytes().get(4..8).and_then(number);
            if let (Some(list), Some(target)) = (list, endpoint(element)) {
                let list = lists.entry(list & LIST_BITS).or_default();
                *list.endpoints.entry(target).or_default() += 1;
            }
        }
    }

    fn sticky_lists(&self, lists: &mut BTreeMap<u32, KernelEndpointList>) {
        let mut targets = HashMap::new();
        for (key, element) in self.elements(NftSetId::StickyEndpoints) {
            let id = key.as_bytes().get(4..).and_then(number);
            if let (Some(id), Some(target)) = (id, endpoint(element)) {
                targets.insert(id, target);
                let list = lists.entry(id & LIST_BITS).or_default();
                list.endpoints.entry(target).or_default();
            }
        }
        for (_, element) in self.elements(NftSetId::StickySlots) {
            let Some(id) = id(element) else { continue };
            if let Some(target) = targets.get(&id) {
                let list = lists.entry(id & LIST_BITS).or_default();
                *list.endpoints.entry(*target).or_default() += 1;
            }
        }
    }

    /// Lists with their selector chains.
    fn picks(&self) -> Vec<(u32, String)> {
        let chains: HashMap<u32, &str> = self
            .elements(NftSetId::Picks)
            .filter_map(|(key, element)| match &element.data {
                Some(ElementData::Verdict(NftVerdict::Goto(chain))) => {
                    Some((number(key.as_bytes())?, &**chain))
                }
                _ => None,
            })
            .collect();
        [
            NftSetId::Services,
            NftSetId::NodePorts,
            NftSetId::ExternalInside,
            NftSetId::ExternalOutside,
        ]
        .into_iter()
        .flat_map(|set| self.elements(set))
        .filter_map(|(_, element)| id(element))
        .filter(|id| id & BY_SOURCE == 0)
        .filter_map(|id| {
            Some((
                id & LIST_BITS,
                (*chains.get(&(id & CLASS_BITS))?).to_owned(),
            ))
        })
        .collect()
    }
}

fn value(element: &ObservedElement) -> Option<&ElementKey> {
    match element.data.as_ref()? {
        ElementData::Value(value) => Some(value),
        ElementData::Verdict(_) => None,
    }
}

fn endpoint(element: &ObservedElement) -> Option<SlotTarget> {
    target(value(element)?.as_bytes())
}

/// The id that an element leads to.
pub(super) fn id(element: &ObservedElement) -> Option<u32> {
    number(value(element)?.as_bytes()).filter(|id| id & TAG != 0)
}

fn frontend(
    key: &ElementKey,
    element: &ObservedElement,
    path: FrontendPath,
) -> Option<KernelFrontend> {
    let at = destination(key.as_bytes())?;
    Some(KernelFrontend {
        service: element.comment.clone().unwrap_or_default(),
        address: at.address,
        protocol: at.protocol,
        port: at.port,
        path,
        connections: BTreeMap::new(),
        refused: 0,
    })
}

/// A key is an address (or none), a protocol and a port, each padded to four bytes.
pub(super) fn destination(bytes: &[u8]) -> Option<PacketDestination> {
    let (address, rest) = bytes.split_at_checked(bytes.len().checked_sub(8)?)?;
    let address: Option<IpAddr> = match address.len() {
        4 => Some(<[u8; 4]>::try_from(address).ok()?.into()),
        16 => Some(<[u8; 16]>::try_from(address).ok()?.into()),
        _ => None,
    };
    Some(PacketDestination {
        address,
        protocol: *rest.first()?,
        port: u16::from_be_bytes(rest.get(4..6)?.try_into().ok()?),
    })
}
