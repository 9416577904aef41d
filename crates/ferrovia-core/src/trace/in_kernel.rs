//! The objects in the kernel that decide about a traced packet, found in what was read back.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

use super::{FrontendKind, Trace};
use crate::dialect::iptables::{SavedRule, SavedTable, parse};
use crate::dialect::nft;
use crate::family::Family;
use crate::model::Protocol;
use crate::plan::nft::layout::TABLE;
use crate::plan::nft::view::{FrontendPath, KernelFrontend, ServiceTableView};

/// The most objects that are listed.
const MOST: usize = 100;

/// One object in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelObject {
    /// Where it is: a set, map or chain with its table.
    pub place: String,
    /// What it says.
    pub text: String,
}

impl KernelObject {
    fn new(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            text: text.into(),
        }
    }
}

/// By which address, protocol and port a packet is looked up in our table; no address if it is by node port.
pub fn nft_destination(trace: &Trace) -> (Option<IpAddr>, Protocol, u16) {
    let packet = &trace.packet;
    let address = (!is_node_port(trace)).then_some(packet.destination);
    (address, packet.protocol, packet.port)
}

/// The elements and chains of our table that a packet meets, found in the whole of it or in what [`walk`] makes out.
///
/// [`walk`]: crate::plan::nft::packet_lookup::lookup_packet
pub fn nft_objects(trace: &Trace, observed: &nft::NftObserved) -> Vec<KernelObject> {
    let family = nft::keyword(Family::of(trace.packet.destination));
    let (address, protocol, port) = nft_destination(trace);
    let view = ServiceTableView::of(observed);
    let addressed = view.frontends.iter().filter(|frontend| {
        frontend.address == address
            && frontend.port == port
            && frontend.protocol == protocol.number()
    });
    let mut objects = Vec::new();
    for frontend in addressed {
        let (set, text, lists) = element(frontend, protocol);
        objects.push(KernelObject::new(
            format!("{} {family} {TABLE} {}", set.0, set.1),
            text,
        ));
        for number in lists {
            let Some(list) = view.lists.get(&number) else {
                continue;
            };
            objects.push(KernelObject::new(
                format!("chain {family} {TABLE} {}", list.pick),
                format!("picks from list {number:#x}"),
            ));
            let slots: u32 = list.endpoints.values().sum();
            objects.extend(list.endpoints.iter().map(|((ip, port), share)| {
                let at = SocketAddr::new(*ip, *port);
                let of = format!("list {number:#x}: {at}, {share} of {slots} slots");
                KernelObject::new(format!("map {family} {TABLE} endpoints"), of)
            }));
        }
    }
    objects.truncate(MOST);
    objects
}

/// What a set is, and its name.
type Set = (&'static str, &'static str);

/// The set a frontend is in, its element, and the lists it leads to.
fn element(frontend: &KernelFrontend, protocol: Protocol) -> (Set, String, Vec<u32>) {
    let key = match frontend.address {
        Some(ip) => format!("{ip} . {protocol} . {}", frontend.port),
        None => format!("{protocol} . {}", frontend.port),
    };
    let [served, rejected, dropped]: [Set; 3] = if frontend.address.is_some() {
        [
            ("map", "services"),
            ("set", "rejected-services"),
            ("set", "dropped-services"),
        ]
    } else {
        [
            ("map", "nodeports"),
            ("set", "rejected-nodeports"),
            ("set", "dropped-nodeports"),
        ]
    };
    let service = &frontend.service;
    match frontend.path {
        FrontendPath::List { list, masquerade } => {
            let masquerade = if masquerade { ", masqueraded" } else { "" };
            (
                served,
                format!("{key} : list {list:#x}{masquerade} \"{service}\""),
                vec![list],
            )
        }
        FrontendPath::BySource { inside, outside } => {
            let name = |list: Option<u32>| list.map_or("none".to_owned(), |l| format!("{l:#x}"));
            let text = format!(
                "{key} : list {} for pods and this node, {} for others \"{service}\"",
                name(inside),
                name(outside)
            );
            (served, text, inside.into_iter().chain(outside).collect())
        }
        FrontendPath::Rejected => (rejected, format!("{key} \"{service}\""), Vec::new()),
        FrontendPath::Dropped => (dropped, format!("{key} \"{service}\""), Vec::new()),
    }
}

fn is_node_port(trace: &Trace) -> bool {
    let service = trace.service.as_ref();
    service.is_some_and(|service| service.frontend == FrontendKind::NodePort)
}

/// The rules that a packet meets, in the order it meets them: those of the shared chains that name its destination, then the chains they
/// lead to.
pub fn iptables_objects(trace: &Trace, save: &str) -> Vec<KernelObject> {
    let packet = &trace.packet;
    let host = match Family::of(packet.destination) {
        Family::V4 => format!("-d {}/32 ", packet.destination),
        Family::V6 => format!("-d {}/128 ", packet.destination),
    };
    let by_node_port = is_node_port(trace);
    let is_addressed = |rule: &SavedRule<'_>| {
        let words: Vec<&str> = rule.args.split(' ').collect();
        let has = |option: &str, value: &str| words.windows(2).any(|pair| pair == [option, value]);
        let port =
            has("--dport", &packet.port.to_string()) && has("-p", &packet.protocol.to_string());
        port && if by_node_port {
            !rule.args.starts_with("-d ")
        } else {
            rule.args.starts_with(&host)
        }
    };
    let mut objects = Vec::new();
    for table in parse(save)
        .iter()
        .filter(|t| matches!(t.name, "nat" | "filter"))
    {
        let mut seen = BTreeSet::new();
        let shared = table
            .rules
            .iter()
            .filter(|rule| is_shared(rule.chain) && is_addressed(rule));
        for rule in shared {
            objects.push(object(table, rule));
            follow(table, rule, &mut seen, &mut objects);
        }
    }
    objects.truncate(MOST);
    objects
}

/// The chains that rules of all services are in.
fn is_shared(chain: &str) -> bool {
    matches!(
        chain,
        "KUBE-SERVICES" | "KUBE-NODEPORTS" | "KUBE-EXTERNAL-SERVICES" | "KUBE-PROXY-FIREWALL"
            // userspace
            | "KUBE-PORTALS-CONTAINER" | "KUBE-PORTALS-HOST" | "KUBE-NODEPORT-CONTAINER" | "KUBE-NODEPORT-HOST"
    )
}

/// The rules of the chains that a rule leads to, each chain once.
fn follow(
    table: &SavedTable<'_>,
    from: &SavedRule<'_>,
    seen: &mut BTreeSet<String>,
    objects: &mut Vec<KernelObject>,
) {
    for target in from.targets() {
        let is_own = [
            "KUBE-SVC-",
            "KUBE-SVL-",
            "KUBE-EXT-",
            "KUBE-FW-",
            "KUBE-SEP-",
        ]
        .iter()
        .any(|prefix| target.starts_with(prefix));
        // Another process may have made a loop.
        if !is_own || objects.len() > MOST || !seen.insert(target.to_string()) {
            continue;
        }
        let rules: Vec<_> = table
            .rules
            .iter()
            .filter(|rule| rule.chain == target)
            .collect();
        objects.extend(rules.iter().map(|rule| object(table, rule)));
        rules
            .into_iter()
            .for_each(|rule| follow(table, rule, seen, objects));
    }
}

fn object(table: &SavedTable<'_>, rule: &SavedRule<'_>) -> KernelObject {
    KernelObject::new(format!("{} {}", table.name, rule.chain), rule.args)
}
