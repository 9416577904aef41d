//! `services`: a table of all services, filtered, sorted and cut here so that a page of ten thousand is no more work for its reader than
//! one of ten.

use std::cmp::Ordering;
use std::net::IpAddr;
use std::sync::Arc;

use ferrovia_core::desired::Frontend;
use ferrovia_core::model::ServiceKey;
use serde::Serialize;
use serde_json::{Value, json};

use super::overview::blocking;
use super::problem::Problem;
use super::query::Query;
use super::rates::{Count, Sample};
use super::snapshot::{Group, Snapshot, Standing};
use super::{Admin, VERSION};

/// Rows of an answer, unless another number is asked for.
const ROWS: usize = 100;
/// The most rows of an answer.
const MOST_ROWS: usize = 1000;
/// The most words of a filter.
const MOST_WORDS: usize = 16;

/// What is wanted of the table.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    words: Vec<Word>,
    column: Column,
    descending: bool,
    offset: usize,
    limit: usize,
}

/// A part of a filter; all must hold.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    /// Somewhere in the name or an address, or a port's number.
    Text(String),
    /// The namespace.
    Namespace(String),
    /// Not everybody is served.
    Troubled,
    /// Nobody is served.
    Down,
    /// It has a frontend of this kind.
    Kind(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Name,
    Endpoints,
    Connections,
    Rate,
    Refused,
    State,
}

/// A row of the table.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    namespace: String,
    name: String,
    types: Vec<&'static str>,
    addresses: Vec<IpAddr>,
    ports: Vec<String>,
    node_ports: Vec<u16>,
    state: &'static str,
    endpoints: Endpoints,
    connections: Option<u64>,
    per_second: Option<f64>,
    refused: Option<u64>,
    refused_per_second: Option<f64>,
}

/// Endpoints that some policy leads to, and all that are known.
#[derive(Debug, Serialize)]
struct Endpoints {
    r#in: usize,
    all: usize,
}

/// The rows asked for, before the sync loop has said how many endpoints are known of each.
struct Cut {
    total: usize,
    matched: usize,
    keys: Vec<ServiceKey>,
    rows: Vec<Row>,
}

impl Admin {
    pub(super) async fn services(self: &Arc<Self>, query: &Query) -> Result<Value, Problem> {
        let wanted = Wanted::read(query)?;
        let offset = wanted.offset;
        let snapshot = self.snapshot().await?;
        let admin = Arc::clone(self);
        let cut = blocking(move || {
            let sample = admin.rates.sample();
            let counting = admin.rates.is_counting() && sample.error().is_none();
            wanted.cut(&snapshot, &sample, counting)
        });
        let mut cut = cut.await?;
        let keys = std::mem::take(&mut cut.keys);
        let profile = self.about.mode.trace_profile();
        let known = self.ask(move |engine| {
            let store = engine.trace_context(profile).store;
            let count = |key| known_endpoints(store.slices(key));
            keys.iter().map(count).collect::<Vec<_>>()
        });
        for (row, known) in cut.rows.iter_mut().zip(known.await?) {
            // Slices may have changed since.
            row.endpoints.all = known.max(row.endpoints.r#in);
        }
        Ok(json!({
            "version": VERSION,
            "total": cut.total,
            "matched": cut.matched,
            "offset": offset,
            "counting": self.rates.is_counting(),
            "rows": cut.rows,
        }))
    }
}

/// How many endpoints slices list. A pod of two families is counted once.
fn known_endpoints<'a>(
    slices: impl Iterator<Item = &'a ferrovia_core::model::EndpointSlice>,
) -> usize {
    let mut ips: Vec<IpAddr> = slices
        .flat_map(|slice| slice.endpoints.iter().map(|endpoint| endpoint.ip))
        .collect();
    ips.sort_unstable();
    ips.dedup();
    let v4 = ips.iter().filter(|ip| ip.is_ipv4()).count();
    v4.max(ips.len() - v4)
}

impl Wanted {
    fn read(query: &Query) -> Result<Self, Problem> {
        let sort = query.get("sort").unwrap_or("name");
        let (column, descending) = match sort.strip_prefix('-') {
            Some(column) => (column, true),
            None => (sort, false),
        };
        let column = match column {
            "name" => Column::Name,
            "endpoints" => Column::Endpoints,
            "connections" => Column::Connections,
            "rate" => Column::Rate,
            "refused" => Column::Refused,
            "state" => Column::State,
            _ => {
                return Err(Problem::bad(
                    format!("cannot sort by {sort:?}"),
                    "sort by name, endpoints, connections, rate, refused or state, with - in front for the largest first",
                ));
            }
        };
        let filter = query.get("filter").unwrap_or_default();
        let words = filter.split_whitespace().take(MOST_WORDS).map(Word::read);
        Ok(Self {
            words: words.collect(),
            column,
            descending,
            offset: query.number("offset", 0)?,
            limit: query.number("limit", ROWS)?.min(MOST_ROWS),
        })
    }

    fn cut(&self, snapshot: &Snapshot, sample: &Sample, counting: bool) -> Cut {
        let mut total = 0;
        let mut found: Vec<(Group<'_>, f64)> = Vec::new();
        for service in snapshot.services() {
            total += 1;
            if self.words.iter().all(|word| word.holds(service)) {
                found.push((service, self.column.weight(service, sample)));
            }
        }
        // Stable, so equal ones stay in order of their names.
        let order = |(_, a): &(_, f64), (_, b): &(_, f64)| a.total_cmp(b);
        match (self.column, self.descending) {
            (Column::Name, false) => {}
            (Column::Name, true) => found.reverse(),
            (_, false) => found.sort_by(order),
            (_, true) => found.sort_by(|a, b| Ordering::reverse(order(a, b))),
        }
        let page = found.iter().skip(self.offset).take(self.limit);
        let page: Vec<Group<'_>> = page.map(|(service, _)| *service).collect();
        Cut {
            total,
            matched: found.len(),
            keys: page.iter().map(|service| service.key().clone()).collect(),
            rows: page
                .into_iter()
                .map(|service| Row::new(service, sample, counting))
                .collect(),
        }
    }
}

impl Column {
    fn weight(self, service: Group<'_>, sample: &Sample) -> f64 {
        let counted = || sample.service(service.key());
        match self {
            Self::Name => 0.0,
            Self::Endpoints => service.endpoints() as f64,
            Self::Connections => counted().connections.total as f64,
            Self::Rate => counted().connections.per_second.unwrap_or_default(),
            Self::Refused => counted().refused.total as f64,
            Self::State => f64::from(service.standing() as u8),
        }
    }
}

impl Word {
    fn read(word: &str) -> Self {
        let word = word.to_lowercase();
        let kinds = ["ClusterIP", "NodePort", "LoadBalancer", "ExternalIP"];
        match word.split_once(':') {
            Some(("ns" | "namespace", name)) => Self::Namespace(name.to_owned()),
            Some(("is", "troubled")) => Self::Troubled,
            Some(("is", "down")) => Self::Down,
            Some(("type", kind)) => {
                let known = kinds.into_iter().find(|it| it.eq_ignore_ascii_case(kind));
                known.map_or(Self::Text(word.clone()), Self::Kind)
            }
            _ => Self::Text(word),
        }
    }

    fn holds(&self, service: Group<'_>) -> bool {
        match self {
            Self::Namespace(name) => service.key().namespace() == name,
            Self::Troubled => service.standing() != Standing::Served,
            Self::Down => service.standing() == Standing::Down,
            Self::Kind(kind) => service.kinds().contains(kind),
            Self::Text(text) => service.key().as_str().contains(text) || has_number(service, text),
        }
    }
}

/// The text is in an address, or is a port.
fn has_number(service: Group<'_>, text: &str) -> bool {
    if !text.contains(|c: char| c.is_ascii_hexdigit()) {
        return false;
    }
    let port: Option<u16> = text.trim_start_matches(':').parse().ok();
    service.frontends().any(|(_, frontend)| match frontend {
        Frontend::NodePort(number) => port == Some(number),
        other => other.address().is_some_and(|at| {
            port == Some(at.port())
                || at.to_string().contains(text)
                || at.ip().to_string().contains(text)
        }),
    })
}

impl Row {
    fn new(service: Group<'_>, sample: &Sample, counting: bool) -> Self {
        let counted = sample.service(service.key());
        let total = |count: Count| counting.then_some(count.total);
        let mut ports = Vec::new();
        let mut node_ports = Vec::new();
        for (port, frontend) in service.frontends() {
            match frontend {
                Frontend::NodePort(number) if !node_ports.contains(&number) => {
                    node_ports.push(number);
                }
                Frontend::ClusterIp(at) => {
                    let text = format!("{}/{}", at.port(), port.protocol());
                    if !ports.contains(&text) {
                        ports.push(text);
                    }
                }
                _ => {}
            }
        }
        Self {
            namespace: service.key().namespace().to_owned(),
            name: service.key().name().to_owned(),
            types: service.kinds(),
            addresses: service.addresses(),
            ports,
            node_ports,
            state: service.standing().name(),
            endpoints: Endpoints {
                r#in: service.endpoints(),
                all: 0,
            },
            connections: total(counted.connections),
            per_second: counted.connections.per_second,
            refused: total(counted.refused),
            refused_per_second: counted.refused.per_second,
        }
    }
}

#[cfg(test)]
mod tests;
