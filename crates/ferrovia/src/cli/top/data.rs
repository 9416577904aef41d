//! What is shown, as the admin API tells it.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::serve::admin::client::{Client, ClientError, encode};

/// As many services are asked for; nobody looks through more by hand.
const ROWS: usize = 500;

/// What to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) sort: String,
    pub(super) filter: String,
    /// `namespace/name` of the service whose endpoints are shown.
    pub(super) service: Option<String>,
}

/// One picture of the daemon.
#[derive(Clone, Debug, Default)]
pub(super) struct Data {
    pub(super) overview: Overview,
    pub(super) services: Services,
    pub(super) service: Option<Service>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Overview {
    pub(super) node: String,
    pub(super) mode: String,
    pub(super) health: Health,
    pub(super) data_age_seconds: Option<f64>,
    pub(super) counts: Counts,
    pub(super) syncs: Syncs,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Health {
    pub(super) ok: bool,
    pub(super) reasons: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Counts {
    pub(super) endpoints: u64,
    pub(super) partly: u64,
    pub(super) down: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Syncs {
    pub(super) last: Option<Sync>,
    pub(super) totals: Totals,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Sync {
    pub(super) kind: String,
    pub(super) milliseconds: f64,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Totals {
    pub(super) repaired: u64,
    pub(super) failed: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Services {
    pub(super) matched: usize,
    pub(super) total: usize,
    pub(super) counting: bool,
    pub(super) rows: Vec<Row>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) types: Vec<String>,
    pub(super) addresses: Vec<String>,
    pub(super) ports: Vec<String>,
    pub(super) state: String,
    pub(super) endpoints: InAll,
    pub(super) connections: Option<u64>,
    pub(super) per_second: Option<f64>,
    pub(super) refused: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct InAll {
    pub(super) r#in: u64,
    pub(super) all: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Service {
    pub(super) ports: Vec<Port>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Port {
    pub(super) name: String,
    pub(super) protocol: String,
    pub(super) family: String,
    pub(super) internal_policy: String,
    pub(super) external_policy: String,
    pub(super) endpoints: Vec<Endpoint>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Endpoint {
    pub(super) address: String,
    pub(super) node: Option<String>,
    pub(super) cluster: Place,
    pub(super) local: Place,
    pub(super) connections: Option<u64>,
    pub(super) per_second: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Place {
    pub(super) r#in: bool,
    pub(super) share: f64,
    pub(super) reason: String,
}

impl Row {
    /// `namespace/name`.
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// As the API names it: a load balancer has node ports and a cluster IP too.
    pub(super) fn kind(&self) -> &str {
        let order = ["LoadBalancer", "NodePort", "ExternalIP"];
        let found = order
            .into_iter()
            .find(|kind| self.types.iter().any(|it| it == kind));
        found.unwrap_or("ClusterIP")
    }

    /// The first address and the ports.
    pub(super) fn at(&self) -> String {
        let address = self.addresses.first().map_or("", String::as_str);
        format!("{address} {}", self.ports.join(","))
    }

    /// Those in use, and all if these are more.
    pub(super) fn endpoints(&self) -> String {
        let InAll { r#in, all } = self.endpoints;
        if r#in == all {
            all.to_string()
        } else {
            format!("{in}/{all}", in = r#in)
        }
    }
}

/// Asks the daemon.
pub(super) fn fetch(client: &Client, wanted: &Wanted) -> Result<Data, ClientError> {
    let path = format!(
        "services?limit={ROWS}&sort={}&filter={}",
        encode(&wanted.sort),
        encode(&wanted.filter)
    );
    Ok(Data {
        overview: get(client, "overview")?,
        services: get(client, &path)?,
        service: match &wanted.service {
            // It may have gone in between, which is no reason to end.
            Some(key) => get(client, &format!("services/{}", encode(key))).ok(),
            None => None,
        },
    })
}

fn get<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T, ClientError> {
    let answer = client.get(path)?;
    serde_json::from_value(answer).map_err(|error| client.strange(&error))
}

/// A rate for people: one digit after the point where that matters.
pub(super) fn rate(per_second: Option<f64>) -> String {
    match per_second {
        None => "-".to_owned(),
        Some(n) if n > 0.0 && n < 10.0 => format!("{n:.1}"),
        Some(n) => format!("{n:.0}"),
    }
}

pub(super) fn count(n: Option<u64>) -> String {
    n.map_or_else(|| "-".to_owned(), |n| n.to_string())
}
