//! Which addresses a question is about.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ferrovia_core::family::Family;
use ferrovia_core::model::{Protocol, ServiceKey, ServicePortSpec};
use ferrovia_core::trace::{Packet, Place, TraceContext};

use super::Unanswered;
use super::packet::{Destination, Question, Source};

/// So many others of the same name are told.
const MOST_ALIKE: usize = 3;

impl Question {
    /// The packet that is meant.
    ///
    /// # Errors
    /// If something named does not exist, or could be several things.
    pub fn packet(&self, context: &TraceContext<'_>) -> Result<Packet, Unanswered> {
        let (destination, protocol) = match &self.destination {
            Destination::Address(at, protocol) => (*at, *protocol),
            Destination::Service {
                key,
                port,
                protocol,
            } => {
                let families = self.source.families(context);
                cluster_ip(context, key, port.as_deref(), *protocol, &families)?
            }
        };
        let (source, place) = self.source.resolve(context, destination.ip())?;
        if source.is_ipv4() != destination.is_ipv4() {
            let error = format!(
                "{source} cannot send to {}: one is IPv4, the other IPv6",
                destination.ip()
            );
            return Err(Unanswered::nonsense(
                error,
                "give two addresses of one family",
            ));
        }
        Ok(Packet {
            source,
            place,
            destination: destination.ip(),
            port: destination.port(),
            protocol,
        })
    }
}

impl Source {
    /// The families it can send in.
    fn families(&self, context: &TraceContext<'_>) -> Vec<Family> {
        match self {
            Self::Node | Self::Outside => Family::ALL.to_vec(),
            Self::Address(ip) => vec![Family::of(*ip)],
            Self::Pod { namespace, name } => {
                let addresses = context.store.pod_addresses(namespace, name);
                let has = |family: &Family| addresses.keys().any(|ip| Family::of(*ip) == *family);
                let has_any = !addresses.is_empty();
                // Of a pod that is not known the family is not what is wrong.
                let families = Family::ALL.into_iter();
                families.filter(|family| !has_any || has(family)).collect()
            }
        }
    }

    /// Its address for packets to this one, and where it is.
    fn resolve(
        &self,
        context: &TraceContext<'_>,
        to: IpAddr,
    ) -> Result<(IpAddr, Place), Unanswered> {
        let family = Family::of(to);
        match self {
            Self::Address(ip) => Ok((*ip, context.place(*ip))),
            Self::Node => {
                let primary = node_address(context, family);
                Ok((context.node_source(to, primary), Place::Node))
            }
            Self::Outside => Ok((nobody(family), Place::Outside)),
            Self::Pod { namespace, name } => pod(context, (namespace, name), family),
        }
    }
}

/// A pod's address of a family.
fn pod(
    context: &TraceContext<'_>,
    (namespace, name): (&str, &str),
    family: Family,
) -> Result<(IpAddr, Place), Unanswered> {
    let all = context.store.pod_addresses(namespace, name);
    if all.is_empty() {
        return Err(Unanswered::unknown(
            format!("no EndpointSlice names pod {namespace}/{name}"),
            "only pods that are endpoints of a Service are known here; give its address (kubectl get pod -o wide shows it)",
        ));
    }
    let found: Vec<(IpAddr, bool)> = all
        .into_iter()
        .filter(|(ip, _)| Family::of(*ip) == family)
        .collect();
    match found.as_slice() {
        [(ip, is_here)] => {
            // It may share the node's address; else the object knows best where it runs.
            let place = match context.place(*ip) {
                Place::Node => Place::Node,
                _ if *is_here => Place::LocalPod,
                _ => Place::RemotePod,
            };
            Ok((*ip, place))
        }
        [] => Err(Unanswered::nonsense(
            format!("pod {namespace}/{name} has no {family} address"),
            "give a destination of its own family",
        )),
        several => {
            let several: Vec<String> = several.iter().map(|(ip, _)| ip.to_string()).collect();
            Err(Unanswered::nonsense(
                format!(
                    "pod {namespace}/{name} could be any of {}",
                    several.join(", ")
                ),
                "give the address that you mean",
            ))
        }
    }
}

/// The cluster IP and port that a Service's name stands for.
fn cluster_ip(
    context: &TraceContext<'_>,
    key: &ServiceKey,
    port: Option<&str>,
    protocol: Option<Protocol>,
    families: &[Family],
) -> Result<(SocketAddr, Protocol), Unanswered> {
    let Some(service) = context.store.service(key) else {
        return Err(unknown_service(context, key));
    };
    let mut ips = families
        .iter()
        .filter_map(|family| service.cluster_ips[*family]);
    let Some(ip) = ips.next() else {
        return Err(Unanswered::unknown(
            format!("Service {key} has no cluster IP of the source's family"),
            "give a source of the other family",
        ));
    };
    let is_meant = |candidate: &&ServicePortSpec| {
        let by_port =
            port.is_none_or(|port| *candidate.name == *port || candidate.port.to_string() == port);
        by_port && protocol.is_none_or(|protocol| protocol == candidate.protocol)
    };
    let meant: Vec<_> = service.ports.iter().filter(is_meant).collect();
    let list = |ports: &mut dyn Iterator<Item = &ServicePortSpec>| {
        let names: Vec<String> = ports
            .map(|port| format!("{}/{}", port.port, port.protocol))
            .collect();
        names.join(", ")
    };
    match meant.as_slice() {
        [port] => Ok((SocketAddr::new(ip, port.port), port.protocol)),
        [] => Err(Unanswered::unknown(
            format!(
                "Service {key} has no such port; it has {}",
                list(&mut service.ports.iter())
            ),
            "give one of these",
        )),
        several => Err(Unanswered::nonsense(
            format!("Service {key} has several ports"),
            format!("say which of {}", list(&mut several.iter().copied())),
        )),
    }
}

/// There is no such Service; others of its name are told.
pub fn unknown_service(context: &TraceContext<'_>, service: &ServiceKey) -> Unanswered {
    let families = Family::ALL.into_iter();
    let ports = families.flat_map(|family| context.builder.desired(family).ports.keys());
    let mut alike: Vec<&str> = ports
        .filter(|key| key.service.name() == service.name())
        .map(|key| key.service.as_str())
        .collect();
    alike.sort_unstable();
    alike.dedup();
    alike.truncate(MOST_ALIKE);
    let hint = match alike.as_slice() {
        [] => "services without a cluster IP (headless, ExternalName) and those of other proxies are not ours".to_owned(),
        alike => format!("did you mean {}?", alike.join(" or ")),
    };
    Unanswered::unknown(format!("there is no Service {service} here"), hint)
}

/// This node's address of a family, for what it sends to others.
fn node_address(context: &TraceContext<'_>, family: Family) -> IpAddr {
    let by_object = context.store.node().and_then(|node| node.ip(family));
    let mut others = context.addresses.iter().copied();
    let other = || others.find(|ip| Family::of(*ip) == family && !ip.is_loopback());
    by_object.or_else(other).unwrap_or(match family {
        Family::V4 => Ipv4Addr::LOCALHOST.into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    })
}

/// An address for documentation, which nobody has.
fn nobody(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(192, 0, 2, 1).into(),
        Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    }
}
