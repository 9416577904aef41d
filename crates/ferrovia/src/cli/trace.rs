//! `ferrovia trace`

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use clap::Args;
use ferrovia_core::family::Family;
use ferrovia_core::model::{Protocol, ServiceKey};
use ferrovia_core::trace::in_kernel::KernelObject;
use ferrovia_core::trace::{Outcome, Packet, Place, Trace, trace as follow};
use ferrovia_host::conntrack::{Reader, SentTo};
use serde::Serialize;

use super::diff::Format;
use super::objects::{Loaded, ObjectFlags};
use super::output::print;
use super::plan::{service_name, unknown_service};
use crate::sync::backend::SyncError;

const HOW: &str = "write SOURCE '->' DESTINATION, such as 10.244.1.20 '->' 10.96.0.10:53/udp, or node '->' service/default/web:http";

/// Flags of `ferrovia trace`.
#[derive(Debug, Args)]
pub(super) struct TraceArgs {
    /// SOURCE [->] DESTINATION. A source is an address or `node`; a destination is ADDRESS:PORT[/PROTOCOL] or
    /// service/NAMESPACE/NAME[:PORT]. Shells take an unquoted > for themselves: quote the arrow, write `to`, or leave it out
    #[arg(value_name = "PACKET", required = true, num_args = 1..=6)]
    packet: Vec<String>,

    /// The source, if it is not part of the packet
    #[arg(long, value_name = "SOURCE")]
    from: Option<String>,

    #[command(flatten)]
    objects: ObjectFlags,

    /// Do not look into the kernel
    #[arg(long)]
    no_kernel: bool,

    /// How to print it
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

/// The answer as it is serialised: a trace's fields and these.
#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    trace: Trace,
    /// The objects in the kernel that do it, if it was asked.
    kernel: Option<Vec<KernelObject>>,
    /// Connections of this client to this destination that are already tracked: their packets go on as before, whatever the rules say.
    connections: Vec<Tracked>,
    /// Why the kernel could not be asked.
    kernel_problem: Option<String>,
}

/// A connection that is already tracked.
#[derive(Serialize)]
struct Tracked {
    client: SocketAddr,
    answered_by: SocketAddr,
}

/// At most so many are named.
const MOST_TRACKED: usize = 10;

pub(super) fn trace(args: &TraceArgs) -> anyhow::Result<ExitCode> {
    let question = Question::parse(&args.packet, args.from.as_deref())?;
    let loaded = args.objects.load()?;
    loaded.print_warnings();
    let trace = follow(&loaded.ground(), &question.packet(&loaded)?);
    let outcome = trace.outcome;
    let mut answer = Answer {
        trace,
        kernel: None,
        connections: Vec::new(),
        kernel_problem: None,
    };
    if !args.no_kernel
        && loaded.is_here
        && let Err(error) = answer.ask_kernel(&loaded)
    {
        answer.kernel_problem = Some(error.to_string());
    }
    match args.output {
        Format::Json => print(format_args!("{}\n", serde_json::to_string_pretty(&answer)?))?,
        Format::Text => print(text(&answer))?,
    }
    if !loaded.is_complete {
        bail!("some objects could not be read; the answer above is without them");
    }
    Ok(ExitCode::from(match outcome {
        Outcome::Delivered => 0,
        Outcome::Refused => 10,
        Outcome::Dropped => 11,
        Outcome::NotAService => 12,
    }))
}

impl Answer {
    fn ask_kernel(&mut self, loaded: &Loaded) -> Result<(), SyncError> {
        self.kernel = Some(loaded.mode.find_in_kernel(&self.trace)?);
        let packet = &self.trace.packet;
        let sent_to = SocketAddr::new(packet.destination, packet.port);
        let asked = match sent_to {
            SocketAddr::V4(place) => SentTo::V4(place),
            SocketAddr::V6(place) => SentTo::Port(place.port()),
        };
        let (family, found) = (Family::of(packet.destination), &mut self.connections);
        Reader::open()?.each_of_protocol(packet.protocol, family, asked, |flow| {
            let client = flow.client.filter(|client| client.ip() == packet.source);
            if let Some(client) = client
                && flow.sent_to == sent_to
                && found.len() < MOST_TRACKED
            {
                found.push(Tracked {
                    client,
                    answered_by: flow.answered_by,
                });
            }
        })?;
        Ok(())
    }
}

fn text(answer: &Answer) -> String {
    let mut text = answer.trace.to_string();
    match &answer.kernel {
        Some(objects) if !objects.is_empty() => {
            text += "\nin the kernel now:\n";
            for KernelObject { place, text: says } in objects {
                text += &format!("  {place}: {says}\n");
            }
        }
        Some(_) if answer.trace.service.is_some() => {
            text += "\nin the kernel now: nothing about it. Does the proxy run here, in this mode? ferrovia diff tells what is missing\n";
        }
        _ => {}
    }
    if !answer.connections.is_empty() {
        text += "\nalready tracked, and so decided:\n";
        for tracked in &answer.connections {
            text += &format!(
                "  {} is answered by {}\n",
                tracked.client, tracked.answered_by
            );
        }
    }
    if let Some(problem) = &answer.kernel_problem {
        text += &format!("\nthe kernel was not asked: {problem}\n");
    }
    text
}

/// A packet as typed.
#[derive(Debug, PartialEq, Eq)]
struct Question {
    source: Source,
    destination: Destination,
}

#[derive(Debug, PartialEq, Eq)]
enum Source {
    Node,
    Address(IpAddr),
}

#[derive(Debug, PartialEq, Eq)]
enum Destination {
    Address(SocketAddr, Protocol),
    Service {
        key: ServiceKey,
        /// The port's name or number.
        port: Option<String>,
        protocol: Option<Protocol>,
    },
}

impl Question {
    fn parse(words: &[String], from: Option<&str>) -> anyhow::Result<Self> {
        let joined = words.join(" ").replace("->", " ").replace('→', " ");
        let mut words: Vec<&str> = joined.split_whitespace().collect();
        words.retain(|word| *word != "to");
        let (source, destination) = match (words.as_slice(), from) {
            ([destination], Some(source)) => (source, *destination),
            ([source, destination], None) => (*source, *destination),
            ([_], None) => bail!("the packet has no source: {HOW}"),
            ([_, _, ..], Some(_)) => {
                bail!("the packet has two sources: leave out --from, or the one before the arrow")
            }
            _ => bail!("{joined:?} is no packet: {HOW}"),
        };
        Ok(Self {
            source: Source::parse(source)?,
            destination: Destination::parse(destination)?,
        })
    }

    fn packet(&self, loaded: &Loaded) -> anyhow::Result<Packet> {
        let (destination, protocol) = match &self.destination {
            Destination::Address(at, protocol) => (*at, *protocol),
            Destination::Service {
                key,
                port,
                protocol,
            } => {
                let family = match self.source {
                    Source::Address(ip) => Some(Family::of(ip)),
                    Source::Node => None,
                };
                cluster_ip(loaded, key, port.as_deref(), *protocol, family)?
            }
        };
        let ground = loaded.ground();
        let (source, place) = match self.source {
            Source::Address(ip) => (ip, ground.place(ip)),
            Source::Node => {
                let primary = node_address(loaded, Family::of(destination.ip()));
                (ground.node_source(destination.ip(), primary), Place::Node)
            }
        };
        if source.is_ipv4() != destination.is_ipv4() {
            bail!(
                "{source} cannot send to {}: one is IPv4, the other IPv6",
                destination.ip()
            );
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
    fn parse(text: &str) -> anyhow::Result<Self> {
        if text == "node" {
            return Ok(Self::Node);
        }
        if let Some(pod) = text.strip_prefix("pod/") {
            bail!(
                "pods' names are not among the objects this program reads; give the address of pod {pod} (kubectl get pod -o wide shows it)"
            );
        }
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        let address = bare.parse().map_err(|_| {
            anyhow!("{text:?} is no source: give an address without a port, or `node` for this node itself")
        })?;
        Ok(Self::Address(address))
    }
}

impl Destination {
    fn parse(text: &str) -> anyhow::Result<Self> {
        for prefix in ["service/", "svc/"] {
            if let Some(rest) = text.strip_prefix(prefix) {
                return Self::service(text, rest);
            }
        }
        let (address, protocol) = match text.rsplit_once('/') {
            Some((address, name)) => (address, protocol(name)?),
            None => (text, Protocol::Tcp),
        };
        let at: SocketAddr = address.parse().map_err(|_| {
            let hint = match address.parse::<IpAddr>() {
                Ok(IpAddr::V6(ip)) => format!("has no port: write [{ip}]:80"),
                Ok(IpAddr::V4(ip)) => format!("has no port: write {ip}:80"),
                Err(_) => "is no destination: write ADDRESS:PORT[/udp], [IPV6]:PORT or service/NAMESPACE/NAME[:PORT]".to_owned(),
            };
            anyhow!("{address:?} {hint}")
        })?;
        Ok(Self::Address(at, protocol))
    }

    /// Reads `namespace/name[:port][/protocol]`.
    fn service(text: &str, rest: &str) -> anyhow::Result<Self> {
        let (name, port) = match rest.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (rest, None),
        };
        let (port, protocol) = match port.map(|port| port.split_once('/').unwrap_or((port, ""))) {
            Some((port, "")) => (Some(port), None),
            Some((port, name)) => (Some(port), Some(protocol(name)?)),
            None => (None, None),
        };
        if port.is_some_and(str::is_empty) {
            bail!("{text:?} has an empty port: write service/NAMESPACE/NAME:PORT");
        }
        Ok(Self::Service {
            key: service_name(name)?,
            port: port.map(str::to_owned),
            protocol,
        })
    }
}

fn protocol(name: &str) -> anyhow::Result<Protocol> {
    match Protocol::parse(&name.to_ascii_uppercase()) {
        Some(protocol) if !name.is_empty() => Ok(protocol),
        _ => bail!("there is no protocol {name:?}: write tcp, udp or sctp"),
    }
}

/// The cluster IP and port that a Service's name stands for.
fn cluster_ip(
    loaded: &Loaded,
    key: &ServiceKey,
    port: Option<&str>,
    protocol: Option<Protocol>,
    family: Option<Family>,
) -> anyhow::Result<(SocketAddr, Protocol)> {
    let Some(service) = loaded.store.service(key) else {
        bail!("{}", unknown_service(loaded, key));
    };
    let families = Family::ALL
        .into_iter()
        .filter(|f| family.is_none_or(|wanted| wanted == *f));
    let Some(ip) = families
        .filter_map(|family| service.cluster_ips[family])
        .next()
    else {
        bail!("Service {key} has no cluster IP of the source's family");
    };
    let is_meant = |candidate: &&ferrovia_core::model::Port| {
        let by_port =
            port.is_none_or(|port| *candidate.name == *port || candidate.port.to_string() == port);
        by_port && protocol.is_none_or(|protocol| protocol == candidate.protocol)
    };
    let meant: Vec<_> = service.ports.iter().filter(is_meant).collect();
    match meant.as_slice() {
        [port] => Ok((SocketAddr::new(ip, port.port), port.protocol)),
        found => {
            let candidates = if found.is_empty() {
                &*service.ports
            } else {
                &[]
            };
            let names: Vec<String> = (found.iter().copied().chain(candidates))
                .map(|port| format!("{}/{}", port.port, port.protocol))
                .collect();
            let names = names.join(", ");
            match (found.is_empty(), port) {
                (true, _) => bail!("Service {key} has no such port; it has {names}"),
                (false, _) => bail!("Service {key} has several ports: say which of {names}"),
            }
        }
    }
}

/// This node's address of a family, for what it sends to others.
fn node_address(loaded: &Loaded, family: Family) -> IpAddr {
    let by_object = loaded.store.node().and_then(|node| node.ip(family));
    let mut others = loaded.addresses.iter().copied();
    let other = || others.find(|ip| Family::of(*ip) == family && !ip.is_loopback());
    by_object.or_else(other).unwrap_or(match family {
        Family::V4 => IpAddr::from([127, 0, 0, 1]),
        Family::V6 => IpAddr::from(std::net::Ipv6Addr::LOCALHOST),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str], from: Option<&str>) -> anyhow::Result<Question> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Question::parse(&words, from)
    }

    #[test]
    fn packets_are_written_in_several_ways() {
        let expected = parse(&["10.0.0.1", "10.96.0.10:53/udp"], None).unwrap();
        assert_eq!(
            expected.destination,
            Destination::Address("10.96.0.10:53".parse().unwrap(), Protocol::Udp)
        );
        for words in [
            &["10.0.0.1", "->", "10.96.0.10:53/udp"][..],
            &["10.0.0.1 -> 10.96.0.10:53/udp"],
            &["10.0.0.1->10.96.0.10:53/UDP"],
            &["10.0.0.1", "to", "10.96.0.10:53/udp"],
        ] {
            assert_eq!(parse(words, None).unwrap(), expected, "{words:?}");
        }
        assert_eq!(
            parse(&["10.96.0.10:53/udp"], Some("10.0.0.1")).unwrap(),
            expected
        );
        let v6 = parse(&["[fd00::1]", "[fd00::2]:80"], None).unwrap();
        assert_eq!(v6.source, Source::Address("fd00::1".parse().unwrap()));
        let service = parse(&["node", "service/shop/web:http"], None).unwrap();
        assert_eq!(service.source, Source::Node);
    }

    #[test]
    fn nonsense_is_one_line_that_says_what_to_try() {
        for (words, from, part) in [
            (&["10.96.0.10:53"][..], None, "no source"),
            (&["10.0.0.1", "10.96.0.10"], None, "write 10.96.0.10:80"),
            (&["10.0.0.1", "fd00::1"], None, "write [fd00::1]:80"),
            (&["10.0.0.1:80", "10.96.0.10:80"], None, "without a port"),
            (
                &["10.0.0.1", "10.96.0.10:80/icmp"],
                None,
                "tcp, udp or sctp",
            ),
            (&["10.0.0.1", "web"], None, "service/NAMESPACE/NAME"),
            (
                &["10.0.0.1", "service/a/b/c"],
                None,
                "service/NAMESPACE/NAME",
            ),
            (&["10.0.0.1", "service/a/b:"], None, "empty port"),
            (&["10.0.0.1", "10.96.0.10:80"], Some("node"), "two sources"),
            (&["a", "b", "c"], None, "write SOURCE"),
            (
                &["pod/shop/web", "10.96.0.10:80"],
                None,
                "address of pod shop/web",
            ),
            (&["10.0.0.1", "10.96.0.10:99999"], None, "no destination"),
        ] {
            let error = parse(words, from).unwrap_err().to_string();
            assert!(
                error.contains(part) && !error.contains('\n'),
                "{words:?}: {error}"
            );
        }
    }
}
