//! Reading our table back as services: what an id leads to.
//!
//! The inverse of `service.rs`: it explains elements, trusting nothing but their values. What was counted is added by `count.rs`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use super::adopt::{number, target};
use super::layout::{BY_SOURCE, CLASS_BITS, LIST_BITS, LOCAL, MASQUERADE, PORT_BITS, SetId, TAG};
use super::slots::Target;
use crate::dialect::nft::{Data, Key, Observed, ObservedElement, Verdict};

/// Our table as services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Where clients connect to, in order of name and address.
    pub frontends: Vec<FrontendView>,
    /// The lists of endpoints, by number.
    pub lists: BTreeMap<u32, ListView>,
}

/// An address and port, or a node port, as found in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FrontendView {
    /// The service port's name, from the element's comment.
    pub service: Box<str>,
    /// The address; none for a node port.
    pub address: Option<IpAddr>,
    /// The protocol's number.
    pub protocol: u8,
    /// The port.
    pub port: u16,
    /// What happens to its packets.
    pub path: Path,
    /// Connections to it, by the endpoint that took them; also those that endpoints took that are not there any more.
    pub connections: BTreeMap<Target, u64>,
    /// Packets to it that nobody took.
    pub refused: u64,
}

/// What a packet is addressed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    /// The address; none for any of this node's.
    pub address: Option<IpAddr>,
    /// The protocol's number.
    pub protocol: u8,
    /// The port.
    pub port: u16,
}

impl FrontendView {
    /// What packets to it are addressed to.
    pub(super) fn destination(&self) -> Destination {
        Destination {
            address: self.address,
            protocol: self.protocol,
            port: self.port,
        }
    }
}

/// What happens to packets to a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Path {
    /// An endpoint of this list takes them.
    List {
        /// The list.
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
    /// Nobody takes them: there is no endpoint anywhere. The sender is told, unless the node's rules want them dropped.
    Rejected,
    /// Nobody takes them: the policy leaves no endpoint here.
    Dropped,
}

/// A list of endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListView {
    /// It is the one for policy Local.
    pub local: bool,
    /// The name of the chain that picks from it.
    pub pick: String,
    /// The endpoints, each with the number of its slots.
    pub endpoints: BTreeMap<Target, u32>,
}

impl View {
    /// Explains a table.
    pub fn of(observed: &Observed) -> Self {
        let table = Table(observed);
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
pub fn meaning(observed: &Observed) -> BTreeSet<String> {
    let view = View::of(observed);
    let list = |number: u32| match view.lists.get(&number) {
        Some(list) => list.describe(),
        None => "nothing".to_owned(),
    };
    let mut facts: BTreeSet<String> = BTreeSet::new();
    for (name, chain) in &observed.chains {
        facts.insert(format!("chain {name}: {:?} {:?}", chain.hook, chain.rules));
    }
    for FrontendView {
        service,
        address,
        protocol,
        port,
        path,
        ..
    } in &view.frontends
    {
        let path = match *path {
            Path::List {
                list: number,
                masquerade,
            } => format!("masquerade={masquerade} {}", list(number)),
            Path::BySource { inside, outside } => {
                format!(
                    "inside {} outside {}",
                    list(inside.unwrap_or(0)),
                    list(outside.unwrap_or(0))
                )
            }
            Path::Rejected => "rejected".to_owned(),
            Path::Dropped => "dropped".to_owned(),
        };
        facts.insert(format!("{service} {address:?} {protocol} {port}: {path}"));
    }
    for set in [
        SetId::ClusterIps,
        SetId::NodePortIps,
        SetId::Restricted,
        SetId::AllowedSources,
        SetId::Hairpin,
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

impl ListView {
    fn describe(&self) -> String {
        let endpoints = self.endpoints.iter();
        let endpoints: Vec<String> = endpoints
            .map(|((ip, port), slots)| format!("{ip} {port} x{slots}"))
            .collect();
        format!("{} [{}]", self.pick, endpoints.join(", "))
    }
}

struct Table<'a>(&'a Observed);

impl<'a> Table<'a> {
    fn elements(&self, set: SetId) -> impl Iterator<Item = (&'a Key, &'a ObservedElement)> {
        self.0
            .sets
            .get(set.name())
            .into_iter()
            .flat_map(|set| &set.elements)
    }

    fn numbers(&self, set: SetId) -> impl Iterator<Item = (u32, u32)> {
        self.elements(set)
            .filter_map(|(key, element)| Some((number(key.as_bytes())?, id(element)?)))
    }

    fn frontends(&self) -> Vec<FrontendView> {
        let by_source = |set| self.numbers(set).collect::<HashMap<_, _>>();
        let (inside, outside) = (
            by_source(SetId::ExternalInside),
            by_source(SetId::ExternalOutside),
        );
        let path = |id: u32| {
            let list =
                |map: &HashMap<u32, u32>| map.get(&(id & PORT_BITS)).map(|id| id & LIST_BITS);
            if id & BY_SOURCE != 0 {
                Path::BySource {
                    inside: list(&inside),
                    outside: list(&outside),
                }
            } else {
                Path::List {
                    list: id & LIST_BITS,
                    masquerade: id & MASQUERADE != 0,
                }
            }
        };
        let served = [SetId::Services, SetId::NodePorts]
            .into_iter()
            .flat_map(|set| self.elements(set));
        let served = served.filter_map(|(key, element)| frontend(key, element, path(id(element)?)));
        let refused = |reject: [SetId; 2], path: Path| {
            let elements = reject.into_iter().flat_map(|set| self.elements(set));
            elements
                .filter_map(move |(key, element)| frontend(key, element, path))
                .collect::<Vec<_>>()
        };
        served
            .chain(refused(
                [SetId::RejectedServices, SetId::RejectedNodePorts],
                Path::Rejected,
            ))
            .chain(refused(
                [SetId::DroppedServices, SetId::DroppedNodePorts],
                Path::Dropped,
            ))
            .collect()
    }

    fn plain_lists(&self, lists: &mut BTreeMap<u32, ListView>) {
        for (key, element) in self.elements(SetId::Endpoints) {
            let list = key.as_bytes().get(4..8).and_then(number);
            if let (Some(list), Some(target)) = (list, endpoint(element)) {
                let list = lists.entry(list & LIST_BITS).or_default();
                *list.endpoints.entry(target).or_default() += 1;
            }
        }
    }

    fn sticky_lists(&self, lists: &mut BTreeMap<u32, ListView>) {
        let mut targets = HashMap::new();
        for (key, element) in self.elements(SetId::StickyEndpoints) {
            let id = key.as_bytes().get(4..).and_then(number);
            if let (Some(id), Some(target)) = (id, endpoint(element)) {
                targets.insert(id, target);
                let list = lists.entry(id & LIST_BITS).or_default();
                list.endpoints.entry(target).or_default();
            }
        }
        for (_, element) in self.elements(SetId::StickySlots) {
            let Some(id) = id(element) else { continue };
            if let Some(target) = targets.get(&id) {
                let list = lists.entry(id & LIST_BITS).or_default();
                *list.endpoints.entry(*target).or_default() += 1;
            }
        }
    }

    /// Lists with the chain that picks from them.
    fn picks(&self) -> Vec<(u32, String)> {
        let chains: HashMap<u32, &str> = self
            .elements(SetId::Picks)
            .filter_map(|(key, element)| match &element.data {
                Some(Data::Verdict(Verdict::Goto(chain))) => {
                    Some((number(key.as_bytes())?, &**chain))
                }
                _ => None,
            })
            .collect();
        [
            SetId::Services,
            SetId::NodePorts,
            SetId::ExternalInside,
            SetId::ExternalOutside,
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

fn value(element: &ObservedElement) -> Option<&Key> {
    match element.data.as_ref()? {
        Data::Value(value) => Some(value),
        Data::Verdict(_) => None,
    }
}

fn endpoint(element: &ObservedElement) -> Option<Target> {
    target(value(element)?.as_bytes())
}

/// The id that an element leads to.
pub(super) fn id(element: &ObservedElement) -> Option<u32> {
    number(value(element)?.as_bytes()).filter(|id| id & TAG != 0)
}

fn frontend(key: &Key, element: &ObservedElement, path: Path) -> Option<FrontendView> {
    let at = destination(key.as_bytes())?;
    Some(FrontendView {
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
pub(super) fn destination(bytes: &[u8]) -> Option<Destination> {
    let (address, rest) = bytes.split_at_checked(bytes.len().checked_sub(8)?)?;
    let address: Option<IpAddr> = match address.len() {
        4 => Some(<[u8; 4]>::try_from(address).ok()?.into()),
        16 => Some(<[u8; 16]>::try_from(address).ok()?.into()),
        _ => None,
    };
    Some(Destination {
        address,
        protocol: *rest.first()?,
        port: u16::from_be_bytes(rest.get(4..6)?.try_into().ok()?),
    })
}
