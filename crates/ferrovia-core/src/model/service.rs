//! A Service as the proxy understands it.
//!
//! Defaults are those the API server fills in, so a manifest written by hand means the same as the object it would become. What holds
//! only for one node or one endpoint is not decided here but in [`desired`](crate::desired).

mod addresses;
mod options;

use std::collections::HashSet;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::Arc;

use ipnet::IpNet;

pub(crate) use self::options::{DEFAULT_AFFINITY, MAX_AFFINITY};
use super::name::valid_port_name;
use super::{
    Algorithm, NamePool, Protocol, Scheduler, ServiceKey, ServicePolicy, TrafficPolicy, Unusable,
    Warning, Warnings, excerpt,
};
use crate::family::{Family, PerFamily};
use crate::wire::{self, Kind};

/// A Service with this label is served by another proxy, whatever the label's value.
const OTHER_PROXY_LABEL: &str = "service.kubernetes.io/service-proxy-name";

/// A Service that has at least one cluster IP and one port, or no port if its namespace has too many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub key: ServiceKey,
    /// Its cluster IP in each family. Without one the Service does not exist in that family.
    pub cluster_ips: PerFamily<Option<IpAddr>>,
    /// Its ports, in the order written; no two have both name and protocol in common.
    pub ports: Box<[ServicePortSpec]>,
    /// External IPs, load balancer IPs and source ranges. Boxed because few Services have any.
    pub external_access: Option<Box<ExternalAccess>>,
    /// Seconds a client sticks to its endpoint; none without session affinity.
    pub affinity: Option<u32>,
    /// Policy for traffic from outside. `Local` only where that means something.
    pub external_policy: TrafficPolicy,
    /// Policy for traffic to the cluster IP.
    pub internal_policy: TrafficPolicy,
    /// `healthCheckNodePort`: where load balancers check whether this node has endpoints.
    pub health_check_port: Option<u16>,
    /// How an endpoint is chosen.
    pub algorithm: Algorithm,
    /// The IPVS scheduler for this Service, if it overrides the configured one.
    pub scheduler: Option<Scheduler>,
    /// `metadata.creationTimestamp`, if set.
    pub created: Option<CreationTime>,
}

/// Addresses of a Service that clients outside the cluster use. Never all empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExternalAccess {
    /// External addresses it answers on, of both families.
    pub external_ips: Box<[IpAddr]>,
    /// It lists external addresses of the family, whether they are served or not.
    pub lists_external_ips: PerFamily<bool>,
    /// Load balancers' addresses that packets arrive with, of both families.
    pub load_balancer_ips: Box<[IpAddr]>,
    /// Who may use the load balancers' addresses, as written but masked; of both families.
    pub source_ranges: Box<[IpNet]>,
}

/// One port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePortSpec {
    /// Its name, empty for an unnamed one.
    pub name: Arc<str>,
    pub protocol: Protocol,
    /// The port clients use.
    pub port: u16,
    /// The port on every node.
    pub node_port: Option<u16>,
}

/// When an object was created, to the second: the digits of the timestamp read as one number, which sorts as time does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CreationTime(NonZeroU64);

impl Service {
    /// Reads the object. What is bad in it or not allowed is left out with a warning, as long as anything usable is left.
    pub(crate) fn parse(
        object: &wire::Service,
        policy: &ServicePolicy,
    ) -> Result<(Self, Vec<Warning>), Unusable> {
        reject_not_ours(object)?;
        let key = ServiceKey::of(&object.metadata)?;
        let mut warnings = Warnings::new(Kind::Service, key.as_str());
        let spec = &object.spec;

        let cluster_ips = addresses::cluster_ips(spec, &mut warnings);
        if Family::ALL
            .iter()
            .all(|family| cluster_ips[*family].is_none())
        {
            return Err(warnings.nothing_left("spec.clusterIP", "no usable cluster IP"));
        }
        let ports = ports(&spec.ports, &mut warnings);
        if ports.is_empty() {
            return Err(warnings.nothing_left("spec.ports", "no usable port"));
        }
        let external_policy = options::external_policy(spec, &mut warnings);
        let algorithm = options::algorithm(&object.metadata, ports.len(), &mut warnings);
        let external_access = external_access(object, ports.len(), policy, &mut warnings);
        let service = Self {
            cluster_ips,
            ports,
            external_access: (external_access != ExternalAccess::default())
                .then(|| Box::new(external_access)),
            affinity: options::affinity(spec, &mut warnings),
            external_policy,
            internal_policy: options::policy(
                "internalTrafficPolicy",
                &spec.internal_traffic_policy,
                &mut warnings,
            ),
            health_check_port: options::health_check_port(spec, external_policy, &mut warnings),
            algorithm,
            scheduler: options::scheduler(&object.metadata, &mut warnings),
            created: options::created(&object.metadata, &mut warnings),
            key: key.clone(),
        };
        Ok((service, warnings.into_vec()))
    }

    /// The external addresses of a family.
    pub(crate) fn external_ips(&self, family: Family) -> impl Iterator<Item = IpAddr> {
        let external_access = self.external_access.iter();
        external_access
            .flat_map(move |external_access| of_family(&external_access.external_ips, family))
    }

    /// It lists external addresses of a family, whether they are served or not.
    pub(crate) fn lists_external_ips(&self, family: Family) -> bool {
        let external_access = self.external_access.as_ref();
        external_access.is_some_and(|external_access| external_access.lists_external_ips[family])
    }

    /// How many external addresses it has, in both families.
    pub(crate) fn external_ip_count(&self) -> usize {
        let external_access = self.external_access.as_ref();
        external_access.map_or(0, |external_access| external_access.external_ips.len())
    }

    /// The same with only so many of its external addresses, the first ones.
    pub(crate) fn with_external_ips(&self, count: usize) -> Self {
        let mut service = self.clone();
        if let Some(external_access) = &mut service.external_access {
            external_access.external_ips = external_access
                .external_ips
                .iter()
                .take(count)
                .copied()
                .collect();
        }
        service
    }

    /// A copy with at most this many ports, the first ones.
    pub(crate) fn with_ports(&self, count: usize) -> Self {
        let mut service = self.clone();
        service.ports = self.ports.iter().take(count).cloned().collect();
        service
    }

    /// The load balancers' addresses of a family.
    pub(crate) fn load_balancer_ips(&self, family: Family) -> impl Iterator<Item = IpAddr> {
        let external_access = self.external_access.iter();
        external_access
            .flat_map(move |external_access| of_family(&external_access.load_balancer_ips, family))
    }

    /// All its external and load balancers' addresses.
    pub fn outside_ips(&self) -> impl Iterator<Item = IpAddr> {
        let external_access = self.external_access.iter();
        external_access.flat_map(|it| it.external_ips.iter().chain(&it.load_balancer_ips).copied())
    }

    /// Who may use the load balancers' addresses of a family.
    pub(crate) fn source_ranges(&self, family: Family) -> impl Iterator<Item = IpNet> {
        let ranges = self.external_access.iter().flat_map(|it| &it.source_ranges);
        ranges
            .copied()
            .filter(move |net| Family::of_net(net) == family)
    }

    /// Uses shared copies of the names in it, but for its own.
    pub(crate) fn share_names(&mut self, names: &mut NamePool) {
        for port in &mut self.ports {
            names.share(&mut port.name);
        }
    }
}

impl CreationTime {
    /// Reads the one form the API server writes, `2026-01-31T23:59:59Z`. Others would not sort with it.
    fn parse(text: &str) -> Option<Self> {
        const SHAPE: &[u8] = b"0000-00-00T00:00:00Z";
        let fits = |(byte, shape): (u8, &u8)| {
            if *shape == b'0' {
                byte.is_ascii_digit()
            } else {
                byte == *shape
            }
        };
        if text.len() != SHAPE.len() || !text.bytes().zip(SHAPE).all(fits) {
            return None;
        }
        let digits = text.bytes().filter(u8::is_ascii_digit);
        let number = digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
        NonZeroU64::new(number).map(Self)
    }
}

/// How the Service is reached from outside, with its number of ports.
fn external_access(
    object: &wire::Service,
    ports: usize,
    policy: &ServicePolicy,
    warnings: &mut Warnings<'_>,
) -> ExternalAccess {
    let (spec, limits) = (&object.spec, &policy.limits);
    let (mut source_ranges, bad_range) = addresses::source_ranges(spec, warnings);
    addresses::limit_ranges(&mut source_ranges, limits, warnings);
    let mut balanced = addresses::load_balancer_ips(&object.status, warnings);
    if bad_range {
        addresses::withhold_unprotected(&mut balanced, &source_ranges, warnings);
    }
    let field = "status.loadBalancer.ingress";
    addresses::limit_guarded(&mut balanced, field, ports, source_ranges.len(), warnings);
    addresses::limit(&mut balanced, field, ports, limits, warnings);
    let mut external = addresses::external_ips(spec, warnings);
    let lists_external_ips =
        PerFamily::from_fn(|family| of_family(&external, family).next().is_some());
    addresses::withhold_denied(&mut external, &policy.external_ips, warnings);
    addresses::limit(&mut external, "spec.externalIPs", ports, limits, warnings);
    ExternalAccess {
        external_ips: external.into(),
        lists_external_ips,
        load_balancer_ips: balanced.into(),
        source_ranges: source_ranges.into(),
    }
}

fn of_family(ips: &[IpAddr], family: Family) -> impl Iterator<Item = IpAddr> {
    ips.iter()
        .copied()
        .filter(move |ip| Family::of(*ip) == family)
}

/// Rejects Services that other components implement. None of this is a mistake, so it is not a warning.
fn reject_not_ours(object: &wire::Service) -> Result<(), Unusable> {
    let reason = if object.metadata.labels.contains_key(OTHER_PROXY_LABEL) {
        "served by another proxy"
    } else if object.spec.kind == "ExternalName" {
        "an alias for an external name"
    } else if object.spec.cluster_ip == "None" {
        "headless"
    } else if object.spec.cluster_ip.is_empty() && object.spec.cluster_ips.is_empty() {
        // Not so from an API server, which gives every other Service one; from a file it is an oversight.
        return Err(Unusable::Broken {
            field: "spec.clusterIP".into(),
            problem: "is required".into(),
        });
    } else {
        return Ok(());
    };
    Err(Unusable::NotOurs(reason))
}

/// The usable ports. Name and protocol are a port's identity, so of two that share both only the first is used.
fn ports(ports: &[wire::ServicePort], warnings: &mut Warnings<'_>) -> Box<[ServicePortSpec]> {
    let mut found: Vec<ServicePortSpec> = Vec::with_capacity(ports.len());
    let mut seen = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let Some(port) = parse_port(i, port, warnings) else {
            continue;
        };
        if seen.insert((Arc::clone(&port.name), port.protocol)) {
            found.push(port);
        } else {
            let problem = format!(
                "an earlier {} port has the same name; this one is not served",
                port.protocol
            );
            warnings.add(format!("spec.ports[{i}].name"), problem);
        }
    }
    found.into()
}

/// One port. A bad node port costs only the node port: the Service still works inside the cluster.
fn parse_port(
    i: usize,
    port: &wire::ServicePort,
    warnings: &mut Warnings<'_>,
) -> Option<ServicePortSpec> {
    if !valid_port_name(&port.name) {
        let problem = format!(
            "{} is not a valid port name; the port is not served",
            excerpt(&port.name)
        );
        warnings.add(format!("spec.ports[{i}].name"), problem);
        return None;
    }
    let Some(protocol) = Protocol::parse(&port.protocol) else {
        let problem = format!(
            "{} is not a known protocol; the port is not served",
            excerpt(&port.protocol)
        );
        warnings.add(format!("spec.ports[{i}].protocol"), problem);
        return None;
    };
    let Some(number) = port_number(port.port) else {
        let problem = format!("{} is not a port number; the port is not served", port.port);
        warnings.add(format!("spec.ports[{i}].port"), problem);
        return None;
    };
    let node_port = port_number(port.node_port);
    if node_port.is_none() && port.node_port != 0 {
        let problem = format!(
            "{} is not a port number; there is no node port",
            port.node_port
        );
        warnings.add(format!("spec.ports[{i}].nodePort"), problem);
    }
    Some(ServicePortSpec {
        name: port.name.as_str().into(),
        protocol,
        port: number,
        node_port,
    })
}

/// A port a client can connect to; 0 is none.
pub(super) fn port_number(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|number| *number != 0)
}

#[cfg(test)]
mod tests;
