//! Connections of single services and endpoints: read from the kernel when somebody asks, and limited in number.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use ferrovia_core::family::Family;
use ferrovia_core::model::{PortKey, Protocol};

use super::series::{write_head, write_sample};
use crate::sync::backend::SyncError;

/// Reads the kernel's counts into a [`Connections`]. It may take its time: it is called on a thread of its own, by one caller at a time.
pub type ReadConnections = Box<dyn FnMut(&mut Connections) -> Result<(), SyncError> + Send>;

/// The most series, unless somebody chooses another number. At about 200 bytes a line this is two megabytes of text.
pub const DEFAULT_MAX_SERIES: usize = 10_000;

/// How much text is gathered before it is passed on.
const PIECE: usize = 16 * 1024;

const SERVICE: Head = Head {
    name: "ferrovia_service_connections_total",
    help: "New connections to a service port.",
};
const ENDPOINT: Head = Head {
    name: "ferrovia_endpoint_connections_total",
    help: "New connections that an endpoint of a service port got.",
};
const REFUSED: Head = Head {
    name: "ferrovia_service_refused_packets_total",
    help: "Packets to a service port that no endpoint could take.",
};

struct Head {
    name: &'static str,
    help: &'static str,
}

/// What the kernel counted. Counts of the same series add up. Series that would be too many are only counted, so those that matter most
/// should be told first.
#[derive(Debug)]
pub struct Connections {
    limit: usize,
    omitted: u64,
    services: BTreeMap<Port, u64>,
    endpoints: BTreeMap<(Port, SocketAddr), u64>,
    refused: BTreeMap<(Port, Refused), u64>,
}

/// A service port of one family.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Port {
    key: PortKey,
    family: Family,
}

/// Why no endpoint could take a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refused {
    /// There is none; the sender was told.
    NoEndpoints,
    /// There are some, but none that the policy allows; dropped.
    NoLocalEndpoints,
}

impl Connections {
    /// Nothing counted yet; holds up to `limit` series.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            omitted: 0,
            services: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    /// Connections to a service port.
    pub fn service(&mut self, family: Family, key: &PortKey, n: u64) {
        let has_room = self.has_room();
        let added = add(&mut self.services, has_room, Port::new(family, key), n);
        self.omitted += u64::from(!added);
    }

    /// Connections that an endpoint of a service port got.
    pub fn endpoint(&mut self, family: Family, key: &PortKey, endpoint: SocketAddr, n: u64) {
        let series = (Port::new(family, key), endpoint);
        let has_room = self.has_room();
        let added = add(&mut self.endpoints, has_room, series, n);
        self.omitted += u64::from(!added);
    }

    /// Packets to a service port that nobody took.
    pub fn refused(&mut self, family: Family, key: &PortKey, why: Refused, n: u64) {
        let series = (Port::new(family, key), why);
        let has_room = self.has_room();
        let added = add(&mut self.refused, has_room, series, n);
        self.omitted += u64::from(!added);
    }

    /// Connections to each service port.
    pub fn services(&self) -> impl Iterator<Item = (&PortKey, u64)> {
        self.services.iter().map(|(port, n)| (&port.key, *n))
    }

    /// Connections that each endpoint of a service port got.
    pub fn endpoints(&self) -> impl Iterator<Item = (&PortKey, SocketAddr, u64)> {
        self.endpoints
            .iter()
            .map(|((port, endpoint), n)| (&port.key, *endpoint, *n))
    }

    /// Packets to each service port that nobody took.
    pub fn refusals(&self) -> impl Iterator<Item = (&PortKey, u64)> {
        self.refused.iter().map(|((port, _), n)| (&port.key, *n))
    }

    /// How many series there was no room for.
    pub fn omitted(&self) -> u64 {
        self.omitted
    }

    fn has_room(&self) -> bool {
        self.services.len() + self.endpoints.len() + self.refused.len() < self.limit
    }

    /// Writes all of it, in pieces.
    pub(super) fn expose(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let services = self.services.iter().map(|(port, n)| (port, None, *n));
        write_family(out, &SERVICE, services)?;
        let endpoints = self
            .endpoints
            .iter()
            .map(|((port, endpoint), n)| (port, Some(("endpoint", endpoint.to_string())), *n));
        write_family(out, &ENDPOINT, endpoints)?;
        let refused = self
            .refused
            .iter()
            .map(|((port, why), n)| (port, Some(("reason", why.label().to_owned())), *n));
        write_family(out, &REFUSED, refused)
    }
}

impl Port {
    fn new(family: Family, key: &PortKey) -> Self {
        Self {
            key: key.clone(),
            family,
        }
    }
}

impl Refused {
    fn label(self) -> &'static str {
        match self {
            Self::NoEndpoints => "no_endpoints",
            Self::NoLocalEndpoints => "no_local_endpoints",
        }
    }
}

/// Adds to a count, which begins to exist if there is room. False if there is none.
fn add<K: Ord>(counts: &mut BTreeMap<K, u64>, has_room: bool, key: K, n: u64) -> bool {
    if let Some(count) = counts.get_mut(&key) {
        *count = count.saturating_add(n);
        return true;
    }
    if has_room {
        counts.insert(key, n);
    }
    has_room
}

fn write_family<'a>(
    out: &mut dyn fmt::Write,
    head: &Head,
    series: impl Iterator<Item = (&'a Port, Option<(&'static str, String)>, u64)>,
) -> fmt::Result {
    let mut text = String::new();
    for (i, (Port { key, family }, more, n)) in series.enumerate() {
        if i == 0 {
            write_head(&mut text, head.name, head.help, "counter");
        }
        let labels = [
            more.as_ref().map(|(label, value)| (*label, value.as_str())),
            Some(("ip_family", family.name())),
            Some(("namespace", key.service.namespace())),
            Some(("port", &key.name)),
            Some(("protocol", protocol(key.protocol))),
            Some(("service", key.service.name())),
        ];
        let mut labels: Vec<(&str, &str)> = labels.into_iter().flatten().collect();
        labels.sort_unstable();
        write_sample(&mut text, head.name, "", &labels, n);
        if text.len() >= PIECE {
            out.write_str(&text)?;
            text.clear();
        }
    }
    out.write_str(&text)
}

/// As the API spells it.
pub(super) fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Sctp => "SCTP",
    }
}

#[cfg(test)]
mod tests {
    use ferrovia_core::model::ServiceKey;

    use super::*;

    fn key(name: &str) -> PortKey {
        PortKey {
            service: ServiceKey::new("shop", name).unwrap(),
            name: "http".into(),
            protocol: Protocol::Tcp,
        }
    }

    #[test]
    fn each_kind_is_one_family() {
        let mut counted = Connections::new(10);
        counted.service(Family::V4, &key("web"), 3);
        counted.endpoint(Family::V6, &key("web"), "[fd00::1]:80".parse().unwrap(), 2);
        counted.service(Family::V4, &key("web"), 4);
        counted.refused(Family::V4, &key("db"), Refused::NoEndpoints, 1);
        let mut text = String::new();
        counted.expose(&mut text).unwrap();
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                r#"ferrovia_service_connections_total{ip_family="IPv4",namespace="shop",port="http",protocol="TCP",service="web"} 7"#,
                r#"ferrovia_endpoint_connections_total{endpoint="[fd00::1]:80",ip_family="IPv6",namespace="shop",port="http",protocol="TCP",service="web"} 2"#,
                r#"ferrovia_service_refused_packets_total{ip_family="IPv4",namespace="shop",port="http",protocol="TCP",reason="no_endpoints",service="db"} 1"#,
            ]
        );
        assert_eq!(text.lines().count(), 9);
    }

    #[test]
    fn what_exceeds_the_limit_is_only_counted() {
        let mut counted = Connections::new(2);
        for i in 0..5 {
            counted.service(Family::V4, &key(&format!("s{i}")), 1);
        }
        counted.service(Family::V4, &key("s0"), 1);
        counted.endpoint(Family::V4, &key("s0"), "10.0.0.1:80".parse().unwrap(), 1);
        assert_eq!(counted.omitted(), 4);
        let mut text = String::new();
        counted.expose(&mut text).unwrap();
        assert_eq!(text.matches("\nferrovia_").count(), 2);
        assert!(text.contains("service=\"s0\"} 2\n"));
    }
}
