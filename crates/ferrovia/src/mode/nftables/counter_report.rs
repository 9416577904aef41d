//! `ferrovia counters`: connections per service and per endpoint, read from our table.
//!
//! A count is of a pair, a frontend and the endpoint it led to, and is forgotten a day after it last grew. So sums over endpoints may
//! become smaller; compute rates per pair.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ferrovia_core::dialect::nft::ElementKey;
use ferrovia_core::family::Family;
use ferrovia_core::model::Protocol;
use ferrovia_core::plan::nft::layout::{NftSetId, TABLE};
use ferrovia_core::plan::nft::view::{
    FrontendPath, KernelEndpointList, KernelFrontend, ServiceTableView,
};
use ferrovia_host::nft::{Error, Nft};

/// What the kernel counted for one family.
#[derive(Debug)]
struct Report {
    family: Family,
    services: BTreeMap<Box<str>, ServiceReport>,
}

#[derive(Debug, Default)]
struct ServiceReport {
    frontends: Vec<KernelFrontend>,
    lists: BTreeMap<u32, KernelEndpointList>,
}

/// The counters of services whose name starts so, of both families; none without a table.
pub(super) fn read(prefix: Option<&str>) -> Result<Option<String>, Error> {
    let mut nft = Nft::open()?;
    let mut text = None;
    for family in Family::ALL {
        if let Some(report) = read_family(&mut nft, family)? {
            let text: &mut String = text.get_or_insert_default();
            text.push_str(&report.of(prefix).to_string());
        }
    }
    Ok(text)
}

fn read_family(nft: &mut Nft, family: Family) -> Result<Option<Report>, Error> {
    let observed = nft.observe(family, TABLE, &[])?;
    if !observed.exists {
        return Ok(None);
    }
    let mut counts = |set: NftSetId| -> Result<Vec<(ElementKey, u64)>, Error> {
        // Without counters there are no such sets.
        if observed.sets.contains_key(set.name()) {
            nft.counters(family, TABLE, set.name())
        } else {
            Ok(Vec::new())
        }
    };
    let (connections, refusals) = (counts(NftSetId::Connections)?, counts(NftSetId::Refusals)?);
    let view = ServiceTableView::of(&observed).counted(&connections, &refusals);
    Ok(Some(Report::new(family, view)))
}

impl Report {
    fn new(family: Family, view: ServiceTableView) -> Self {
        let mut services: BTreeMap<Box<str>, ServiceReport> = BTreeMap::new();
        for frontend in view.frontends {
            let service = services.entry(frontend.service.clone()).or_default();
            for number in lists_of(frontend.path) {
                if let Some(list) = view.lists.get(&number) {
                    service.lists.entry(number).or_insert_with(|| list.clone());
                }
            }
            service.frontends.push(frontend);
        }
        Self { family, services }
    }

    /// Only the services whose name starts so.
    fn of(mut self, prefix: Option<&str>) -> Self {
        self.services
            .retain(|name, _| prefix.is_none_or(|prefix| name.starts_with(prefix)));
        self
    }
}

fn lists_of(path: FrontendPath) -> impl Iterator<Item = u32> {
    let lists = match path {
        FrontendPath::List { list, .. } => [Some(list), None],
        FrontendPath::BySource { inside, outside } => [inside, outside],
        FrontendPath::Rejected | FrontendPath::Dropped => [None, None],
    };
    lists.into_iter().flatten()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, service) in &self.services {
            writeln!(f, "{name} ({})", self.family)?;
            for frontend in &service.frontends {
                let (count, what) = outcome(frontend);
                writeln!(f, "  {:<46} {count:>12}  {what}", at(frontend))?;
            }
            for ((ip, port), endpoint) in service.endpoints() {
                let address = SocketAddr::new(ip, port).to_string();
                let (count, shares) = (endpoint.connections, endpoint.shares());
                writeln!(f, "    → {address:<42} {count:>12}  {shares}")?;
            }
        }
        Ok(())
    }
}

/// An endpoint of a service, whichever list and frontend led to it.
#[derive(Debug, Default)]
struct EndpointReport {
    connections: u64,
    /// What part of a list's connections it gets, in hundredths, and whether the list is one of local endpoints only.
    shares: Vec<(f64, bool)>,
}

impl EndpointReport {
    fn shares(&self) -> String {
        if self.shares.is_empty() {
            return "no longer an endpoint".to_owned();
        }
        let share = |(part, local): &(f64, bool)| {
            let of = if *local { " of local ones" } else { "" };
            format!("share {part:.1} %{of}")
        };
        let shares: Vec<String> = self.shares.iter().map(share).collect();
        shares.join(", ")
    }
}

impl ServiceReport {
    fn endpoints(&self) -> BTreeMap<(IpAddr, u16), EndpointReport> {
        let mut endpoints: BTreeMap<_, EndpointReport> = BTreeMap::new();
        for list in self.lists.values() {
            let all: u32 = list.endpoints.values().sum();
            for (target, slots) in &list.endpoints {
                let share = 100.0 * f64::from(*slots) / f64::from(all.max(1));
                let endpoint = endpoints.entry(*target).or_default();
                endpoint.shares.push((share, list.local));
            }
        }
        for (target, count) in self.frontends.iter().flat_map(|f| &f.connections) {
            let sum = &mut endpoints.entry(*target).or_default().connections;
            *sum = sum.saturating_add(*count);
        }
        endpoints
    }
}

fn at(frontend: &KernelFrontend) -> String {
    let protocol =
        Protocol::from_number(frontend.protocol).map_or_else(|| "?".to_owned(), |p| p.to_string());
    match frontend.address {
        Some(ip) => format!("{}/{protocol}", SocketAddr::new(ip, frontend.port)),
        None => format!("node port {}/{protocol}", frontend.port),
    }
}

/// How many of what.
fn outcome(frontend: &KernelFrontend) -> (u64, &'static str) {
    let connections = || {
        let counts = frontend.connections.values();
        counts.fold(0_u64, |sum, count| sum.saturating_add(*count))
    };
    match frontend.path {
        FrontendPath::List {
            masquerade: false, ..
        } => (connections(), "connections"),
        FrontendPath::List {
            masquerade: true, ..
        } => (connections(), "connections, masqueraded"),
        FrontendPath::BySource { .. } => (
            connections(),
            "connections, local endpoints for clients outside",
        ),
        FrontendPath::Rejected => (frontend.refused, "packets refused: no endpoints"),
        FrontendPath::Dropped => (frontend.refused, "packets dropped: no local endpoints"),
    }
}
