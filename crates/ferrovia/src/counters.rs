//! Connections per service and per endpoint, as the kernel counted them.
//!
//! Counting starts anew for an element that is rewritten (an endpoint that changes its slot, a service whose number of endpoints changes):
//! whoever wants rates takes differences and treats a smaller number as a restart.

use std::collections::BTreeMap;
use std::fmt;

use ferrovia_core::family::Family;
use ferrovia_core::model::Protocol;
use ferrovia_core::plan::nft::layout::TABLE;
use ferrovia_core::plan::nft::view::{FrontendView, ListView, Path, View};
use ferrovia_host::nft::{Error, Nft};

/// What the kernel counted for one family.
#[derive(Debug)]
pub struct Report {
    family: Family,
    services: BTreeMap<Box<str>, ServiceReport>,
}

#[derive(Debug, Default)]
struct ServiceReport {
    frontends: Vec<FrontendView>,
    lists: BTreeMap<u32, ListView>,
}

/// Reads the counters of a family.
pub fn read(nft: &mut Nft, family: Family) -> Result<Report, Error> {
    let view = View::of(&nft.observe(family, TABLE, &[])?);
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
    Ok(Report { family, services })
}

fn lists_of(path: Path) -> impl Iterator<Item = u32> {
    let lists = match path {
        Path::List { list, .. } => [Some(list), None],
        Path::BySource { inside, outside } => [inside, outside],
        Path::Rejected | Path::Dropped => [None, None],
    };
    lists.into_iter().flatten()
}

impl Report {
    /// Only the services whose name begins so.
    #[must_use]
    pub fn of(mut self, prefix: Option<&str>) -> Self {
        self.services
            .retain(|name, _| prefix.is_none_or(|prefix| name.starts_with(prefix)));
        self
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, service) in &self.services {
            writeln!(f, "{name} ({})", self.family)?;
            for frontend in &service.frontends {
                writeln!(
                    f,
                    "  {:<46} {:>12}  {}",
                    at(frontend),
                    frontend.connections,
                    outcome(frontend.path)
                )?;
            }
            for list in service.lists.values() {
                write_list(f, list)?;
            }
        }
        Ok(())
    }
}

fn write_list(f: &mut fmt::Formatter<'_>, list: &ListView) -> fmt::Result {
    let slots: u32 = list.endpoints.values().map(|endpoint| endpoint.slots).sum();
    for ((ip, port), endpoint) in &list.endpoints {
        let share = 100.0 * f64::from(endpoint.slots) / f64::from(slots.max(1));
        let address = std::net::SocketAddr::new(*ip, *port).to_string();
        writeln!(
            f,
            "    → {address:<42} {:>12}  share {share:.1} %",
            endpoint.connections
        )?;
    }
    Ok(())
}

fn at(frontend: &FrontendView) -> String {
    let protocol =
        Protocol::from_number(frontend.protocol).map_or_else(|| "?".to_owned(), |p| p.to_string());
    match frontend.address {
        Some(ip) => format!(
            "{}/{protocol}",
            std::net::SocketAddr::new(ip, frontend.port)
        ),
        None => format!("node port {}/{protocol}", frontend.port),
    }
}

fn outcome(path: Path) -> &'static str {
    match path {
        Path::List {
            masquerade: false, ..
        } => "connections",
        Path::List {
            masquerade: true, ..
        } => "connections, masqueraded",
        Path::BySource { .. } => "connections, local endpoints for clients outside",
        Path::Rejected => "packets refused: no endpoints",
        Path::Dropped => "packets dropped: no local endpoints",
    }
}
