//! An EndpointSlice as the proxy understands it; `legacy.rs` makes slices of the older Endpoints object.
//!
//! There are many of these and most of what they say is the same, so names are shared and rare parts are boxed.

mod legacy;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::address::{parse_ip_as_written, refused};
use super::name::{check, checked_names, valid_label_value, valid_name, valid_port_name};
use super::service::port_number;
use super::{NamePool, Protocol, ServiceKey, Unusable, Warning, Warnings, excerpt};
pub(crate) use legacy::mirror;

use crate::family::Family;
use crate::pod_name_hash::PodNameHash;
use crate::wire::{self, Kind};

const SERVICE_LABEL: &str = "kubernetes.io/service-name";
const SERVICE_LABEL_FIELD: &str = "metadata.labels[kubernetes.io/service-name]";
/// A slice with this label belongs to a headless Service, whatever the label's value.
const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";
const WEIGHT_ANNOTATION: &str = "ferrovia.io/weight";
const MAX_WEIGHT: u16 = 1000;

/// `namespace/name` of an EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SliceKey(Arc<str>);

/// Some of the endpoints of one Service, all of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSlice {
    pub key: SliceKey,
    /// The Service it belongs to, always of its own namespace.
    pub service: ServiceKey,
    /// The family of its addresses.
    pub family: Family,
    /// The ports every endpoint listens on.
    pub ports: Box<[SlicePort]>,
    /// The endpoints, in the order written.
    pub endpoints: Box<[SliceEndpoint]>,
    /// Each endpoint's share of new connections relative to those of other slices, 0 to 1000.
    pub weight: u16,
    /// It was made from a legacy Endpoints object, and counts only while its Service has no real slice.
    pub mirrored: bool,
}

/// One port of a slice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SlicePort {
    /// Name of the Service port it serves.
    pub name: Arc<str>,
    pub protocol: Protocol,
    pub port: u16,
}

/// One endpoint of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceEndpoint {
    pub ip: IpAddr,
    /// The `ready` condition; absent means true.
    pub ready: bool,
    /// It can answer, though it may be on its way out.
    pub serving: bool,
    /// It is on its way out.
    pub terminating: bool,
    /// The node it runs on.
    pub node: Option<Arc<str>>,
    /// Who should use it; usually absent.
    pub hints: Option<Box<Hints>>,
    /// The pod it is, for people who ask about one.
    pub pod: Option<PodNameHash>,
}

/// Who should use an endpoint. An empty list is no hint of its kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Clients in these zones.
    pub zones: Box<[Arc<str>]>,
    /// Clients on these nodes.
    pub nodes: Box<[Arc<str>]>,
}

impl SliceKey {
    /// Joins two names. The caller has checked them.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self([namespace, "/", name].concat().into())
    }

    /// `namespace/name`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SliceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl EndpointSlice {
    /// Reads the object. What is bad in it is left out with a warning; a slice without endpoints is still a slice.
    pub(crate) fn parse(object: &wire::EndpointSlice) -> Result<(Self, Vec<Warning>), Unusable> {
        let metadata = &object.metadata;
        if metadata.labels.contains_key(HEADLESS_LABEL) {
            return Err(Unusable::NotOurs("of a headless Service"));
        }
        let family = match object.address_type.as_str() {
            "IPv4" => Family::V4,
            "IPv6" => Family::V6,
            _ => return Err(Unusable::NotOurs("not of IP addresses")),
        };
        let (namespace, name) = checked_names(metadata)?;
        let Some(service) = metadata
            .labels
            .get(SERVICE_LABEL)
            .filter(|name| !name.is_empty())
        else {
            return Err(Unusable::NotOurs("of no Service"));
        };
        check(SERVICE_LABEL_FIELD, service)?;

        let key = SliceKey::new(namespace, name);
        let mut warnings = Warnings::new(Kind::EndpointSlice, key.as_str());
        let slice = Self {
            service: ServiceKey::from_checked_names(namespace, service),
            family,
            ports: ports("ports", &object.ports, &mut warnings),
            endpoints: endpoints(&object.endpoints, family, &mut warnings),
            weight: weight(metadata, &mut warnings),
            mirrored: false,
            key: key.clone(),
        };
        Ok((slice, warnings.into_vec()))
    }

    /// Uses shared copies of the names in it, but for its own and that of its Service.
    pub(crate) fn share_names(&mut self, names: &mut NamePool) {
        for port in &mut self.ports {
            names.share(&mut port.name);
        }
        for endpoint in &mut self.endpoints {
            let hints = endpoint
                .hints
                .iter_mut()
                .flat_map(|hints| hints.zones.iter_mut().chain(&mut hints.nodes));
            for name in endpoint.node.iter_mut().chain(hints) {
                names.share(name);
            }
        }
    }
}

/// The ports that can be served. `list` is where they stand in the object.
fn ports(
    list: &str,
    ports: &[wire::EndpointPort],
    warnings: &mut Warnings<'_>,
) -> Box<[SlicePort]> {
    let parsed = ports.iter().enumerate().filter_map(|(i, port)| {
        let field = |name: &str| format!("{list}[{i}].{name}");
        parse_port(field, port, warnings)
    });
    parsed.collect()
}

fn parse_port(
    field: impl Fn(&str) -> String,
    port: &wire::EndpointPort,
    warnings: &mut Warnings<'_>,
) -> Option<SlicePort> {
    // The API server turns an absent name into the empty one before any watcher sees it; files have only us to do so.
    let name = port.name.as_deref().unwrap_or_default();
    if !valid_port_name(name) {
        let problem = format!(
            "{} is not a valid port name; the port is not served",
            excerpt(name)
        );
        warnings.add(field("name"), problem);
        return None;
    }
    let Some(protocol) = Protocol::parse(&port.protocol) else {
        let problem = format!(
            "{} is not a known protocol; the port is not served",
            excerpt(&port.protocol)
        );
        warnings.add(field("protocol"), problem);
        return None;
    };
    let Some(number) = port.port.and_then(port_number) else {
        let problem = match port.port {
            Some(number) => format!("{number} is not a port number; the port is not served"),
            None => "no port number means all ports, which cannot be served".into(),
        };
        warnings.add(field("port"), problem);
        return None;
    };
    Some(SlicePort {
        name: name.into(),
        protocol,
        port: number,
    })
}

fn endpoints(
    endpoints: &[wire::Endpoint],
    family: Family,
    warnings: &mut Warnings<'_>,
) -> Box<[SliceEndpoint]> {
    let parsed = endpoints
        .iter()
        .enumerate()
        .filter_map(|(i, endpoint)| parse_endpoint(i, endpoint, family, warnings));
    parsed.collect()
}

/// One endpoint. Only its first address counts; the API gives the others no meaning.
fn parse_endpoint(
    i: usize,
    endpoint: &wire::Endpoint,
    family: Family,
    warnings: &mut Warnings<'_>,
) -> Option<SliceEndpoint> {
    let ip = endpoint_ip(endpoint.addresses.first()?).and_then(|ip| {
        let fits = Family::of(ip) == family;
        fits.then_some(ip)
            .ok_or_else(|| format!("{ip} is not an {family} address"))
    });
    let ip = usable(ip, || format!("endpoints[{i}].addresses[0]"), warnings)?;
    let conditions = &endpoint.conditions;
    Some(SliceEndpoint {
        ip,
        ready: conditions.ready.unwrap_or(true),
        serving: conditions.serving.unwrap_or(true),
        terminating: conditions.terminating.unwrap_or(false),
        node: node_name(
            || format!("endpoints[{i}].nodeName"),
            endpoint.node_name.as_deref(),
            warnings,
        ),
        hints: hints(i, &endpoint.hints, warnings),
        pod: endpoint.pod,
    })
}

/// The address of an endpoint, or why it is none. Endpoints can be written by hand, so they are not trusted.
fn endpoint_ip(text: &str) -> Result<IpAddr, String> {
    let ip =
        parse_ip_as_written(text).ok_or_else(|| format!("{} is not an address", excerpt(text)))?;
    // A mapped address would be checked as one family and used as the other.
    if ip != ip.to_canonical() {
        Err(format!("{ip} is an IPv4-mapped address"))
    } else if let Some(reason) = refused(ip) {
        Err(format!("{ip} is {reason}"))
    } else {
        Ok(ip)
    }
}

/// An endpoint's address, with a warning if it is none.
fn usable(
    ip: Result<IpAddr, String>,
    field: impl FnOnce() -> String,
    warnings: &mut Warnings<'_>,
) -> Option<IpAddr> {
    let warn = |problem| warnings.add(field(), format!("{problem}; the endpoint is not used"));
    ip.map_err(warn).ok()
}

/// The node of an endpoint. Taking a bad name for no name errs on the side of not treating the endpoint as local.
fn node_name(
    field: impl FnOnce() -> String,
    name: Option<&str>,
    warnings: &mut Warnings<'_>,
) -> Option<Arc<str>> {
    let name = name.filter(|name| !name.is_empty())?;
    if valid_name(name) {
        return Some(name.into());
    }
    let problem = format!(
        "{} is not a valid name; the endpoint counts as remote",
        excerpt(name)
    );
    warnings.add(field(), problem);
    None
}

fn hints(i: usize, hints: &wire::EndpointHints, warnings: &mut Warnings<'_>) -> Option<Box<Hints>> {
    let zones = named(i, "forZones", &hints.for_zones, valid_label_value, warnings);
    let nodes = named(i, "forNodes", &hints.for_nodes, valid_name, warnings);
    (!zones.is_empty() || !nodes.is_empty()).then(|| Box::new(Hints { zones, nodes }))
}

/// The names in a list of hints. A bad one is no hint, which at worst lets more clients use the endpoint.
fn named(
    i: usize,
    list: &str,
    hints: &[wire::HintTarget],
    is_valid: fn(&str) -> bool,
    warnings: &mut Warnings<'_>,
) -> Box<[Arc<str>]> {
    let mut found = Vec::with_capacity(hints.len());
    for (j, hint) in hints.iter().enumerate() {
        if is_valid(&hint.name) {
            found.push(hint.name.as_str().into());
        } else {
            let problem = format!(
                "{} is not a valid name; the hint is ignored",
                excerpt(&hint.name)
            );
            warnings.add(format!("endpoints[{i}].hints.{list}[{j}].name"), problem);
        }
    }
    found.into()
}

/// The weight of all endpoints in the slice: ours alone, so a bad value is as good as none.
fn weight(metadata: &wire::Metadata, warnings: &mut Warnings<'_>) -> u16 {
    let Some(text) = metadata.annotations.get(WEIGHT_ANNOTATION) else {
        return 1;
    };
    let weight = text
        .trim()
        .parse()
        .ok()
        .filter(|weight| *weight <= MAX_WEIGHT);
    if weight.is_none() {
        let problem = format!(
            "{} is not a number from 0 to {MAX_WEIGHT}; 1 is used",
            excerpt(text)
        );
        warnings.add(
            format!("metadata.annotations[{WEIGHT_ANNOTATION}]"),
            problem,
        );
    }
    weight.unwrap_or(1)
}

#[cfg(test)]
mod tests;
