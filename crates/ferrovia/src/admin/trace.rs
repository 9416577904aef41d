//! `trace`: where a packet would go. Reading what is asked for is here; the answer is [`ferrovia_core::trace`]'s.

use std::net::{IpAddr, SocketAddr};

use ferrovia_core::desired::Frontend;
use ferrovia_core::family::Family;
use ferrovia_core::model::{Protocol, ServiceKey, parse_ip, valid_name};
use ferrovia_core::trace::{Ground, Packet, Place, Trace, trace};
use serde_json::{Value, json};

use super::problem::Problem;
use super::query::Query;
use super::{Admin, VERSION};

const HINT: &str = "ask for trace?from=10.244.1.20&to=10.96.0.10:53/udp; from may also be node, to may be service/NAMESPACE/NAME:PORT";

/// Who sends.
#[derive(Clone, Debug, PartialEq, Eq)]
enum From {
    Node,
    Address(IpAddr),
}

/// To whom.
#[derive(Clone, Debug, PartialEq, Eq)]
enum To {
    Address {
        at: SocketAddr,
        protocol: Protocol,
    },
    Service {
        key: ServiceKey,
        /// A port's number or name; the first port if none is given.
        port: Option<String>,
    },
}

impl Admin {
    pub(super) async fn trace(&self, query: &Query) -> Result<Value, Problem> {
        let need = |name: &str| {
            let missing = || Problem::bad(format!("the parameter {name} is missing"), HINT);
            query.get(name).map(str::trim).ok_or_else(missing)
        };
        let (from, to) = (From::read(need("from")?)?, To::read(need("to")?)?);
        let mode = self.about.trace;
        let traced = self.ask(move |engine| follow(&engine.ground(mode), &from, &to));
        let traced = traced.await??;
        let text = traced.to_string();
        let mut answer = json!(traced);
        answer["version"] = VERSION.into();
        answer["text"] = text.into();
        Ok(answer)
    }
}

fn follow(ground: &Ground<'_>, from: &From, to: &To) -> Result<Trace, Problem> {
    let wants_v6 = match from {
        From::Address(ip) => Some(ip.is_ipv6()),
        From::Node => None,
    };
    let (at, protocol) = to.resolve(ground, wants_v6)?;
    let source = match from {
        From::Address(ip) => *ip,
        From::Node => ground.node_source(at.ip(), own_address(ground, at.is_ipv6())),
    };
    if source.is_ipv4() != at.is_ipv4() {
        return Err(Problem::bad(
            format!("{source} and {} are of different address families", at.ip()),
            "give two addresses of one family",
        ));
    }
    let packet = Packet {
        source,
        place: match from {
            From::Node => Place::Node,
            From::Address(_) => ground.place(source),
        },
        destination: at.ip(),
        port: at.port(),
        protocol,
    };
    Ok(trace(ground, &packet))
}

/// An address of this node that it would send from; any of the family will do, as rules treat all of them alike.
fn own_address(ground: &Ground<'_>, is_v6: bool) -> IpAddr {
    let family = if is_v6 { Family::V6 } else { Family::V4 };
    let node_ip = ground.store.node().and_then(|node| node.ip(family));
    let usable = |ip: &&IpAddr| ip.is_ipv6() == is_v6 && !ip.is_loopback();
    let any = ground.addresses.iter().find(usable).copied();
    let loopback = if is_v6 {
        IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])
    } else {
        IpAddr::from([127, 0, 0, 1])
    };
    node_ip.or(any).unwrap_or(loopback)
}

impl From {
    fn read(text: &str) -> Result<Self, Problem> {
        if text == "node" {
            return Ok(Self::Node);
        }
        let ip = parse_ip(text.trim_matches(['[', ']']));
        let bad = || {
            Problem::bad(
                format!("from={text:?} is neither an address nor node"),
                HINT,
            )
        };
        ip.map(Self::Address).ok_or_else(bad)
    }
}

impl To {
    fn read(text: &str) -> Result<Self, Problem> {
        if let Some(rest) = text.strip_prefix("service/") {
            return Self::read_service(rest).ok_or_else(|| {
                let error = format!("to={text:?} does not name a service");
                Problem::bad(
                    error,
                    "write service/NAMESPACE/NAME or service/NAMESPACE/NAME:PORT",
                )
            });
        }
        let (address, protocol) = text.rsplit_once('/').unwrap_or((text, "tcp"));
        let protocol = Protocol::parse(&protocol.to_ascii_uppercase());
        let at: Option<SocketAddr> = address.parse().ok();
        match (at, protocol) {
            (Some(at), Some(protocol)) if at.port() > 0 => Ok(Self::Address { at, protocol }),
            _ => Err(Problem::bad(
                format!("to={text:?} is not ADDRESS:PORT/PROTOCOL"),
                HINT,
            )),
        }
    }

    fn read_service(text: &str) -> Option<Self> {
        let (namespace, rest) = text.split_once('/')?;
        let (name, port) = match rest.split_once(':') {
            Some((name, port)) => (name, Some(port.to_owned())),
            None => (rest, None),
        };
        let is_good = valid_name(namespace) && valid_name(name);
        is_good.then(|| Self::Service {
            key: ServiceKey::new(namespace, name),
            port,
        })
    }

    /// The address and protocol; of a service the cluster IP, of the sender's family where that is known.
    fn resolve(
        &self,
        ground: &Ground<'_>,
        wants_v6: Option<bool>,
    ) -> Result<(SocketAddr, Protocol), Problem> {
        let (key, wanted) = match self {
            Self::Address { at, protocol } => return Ok((*at, *protocol)),
            Self::Service { key, port } => (key, port),
        };
        let families = Family::ALL
            .into_iter()
            .filter(|family| wants_v6.is_none_or(|wants_v6| wants_v6 == (*family == Family::V6)));
        let mut found = families.flat_map(|family| {
            ground
                .builder
                .desired(family)
                .ports_of(key)
                .flat_map(|(port, wanted)| {
                    wanted
                        .frontends
                        .iter()
                        .filter_map(move |frontend| match frontend {
                            Frontend::ClusterIp(at) => Some((&*port.name, *at, port.protocol)),
                            _ => None,
                        })
                })
        });
        let is_it = |name: &str, at: SocketAddr| {
            wanted
                .as_ref()
                .is_none_or(|it| **it == *name || *it == at.port().to_string())
        };
        let found = found.find(|(name, at, _)| is_it(name, *at));
        found.map(|(_, at, protocol)| (at, protocol)).ok_or_else(|| {
            let port = wanted.as_ref().map(|port| format!(" with port {port}"));
            Problem::missing(
                format!("there is no service {key}{} here", port.unwrap_or_default()),
                "look at services?filter=; the sender's address family must be one the service has",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_read() {
        let address = |text: &str, protocol| To::Address {
            at: text.parse().unwrap(),
            protocol,
        };
        let udp = To::read("10.96.0.10:53/udp");
        assert_eq!(udp, Ok(address("10.96.0.10:53", Protocol::Udp)));
        let tcp = To::read("[fd00::1]:80");
        assert_eq!(tcp, Ok(address("[fd00::1]:80", Protocol::Tcp)));
        let service = |port: Option<&str>| To::Service {
            key: ServiceKey::new("shop", "web"),
            port: port.map(str::to_owned),
        };
        assert_eq!(To::read("service/shop/web"), Ok(service(None)));
        assert_eq!(To::read("service/shop/web:80"), Ok(service(Some("80"))));
        for bad in [
            "",
            "10.96.0.10",
            "10.96.0.10:0",
            "a:80",
            "10.0.0.1:80/icmp",
            "service/x",
            "service/A/b",
        ] {
            assert!(To::read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn senders_are_read() {
        assert_eq!(From::read("node"), Ok(From::Node));
        assert!(From::read("10.0.0.1").is_ok() && From::read("[fd00::1]").is_ok());
        assert!(From::read("pod").is_err() && From::read("10.0.0.256").is_err());
    }
}
