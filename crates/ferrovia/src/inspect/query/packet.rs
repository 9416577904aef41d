//! A packet as people write it.

use std::net::{IpAddr, SocketAddr};

use ferrovia_core::model::{Protocol, ServiceKey, parse_ip, valid_name};

use super::Unanswered;

const HOW: &str = "write SOURCE '->' DESTINATION, such as 10.244.1.20 '->' 10.96.0.10:53/udp, or node '->' service/default/web:http";
const SOURCES: &str =
    "give an address without a port, pod/NAMESPACE/NAME, `node` for this node itself, or `outside`";

/// A packet as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub(super) source: Source,
    pub(super) destination: Destination,
}

/// Who sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Node,
    /// Somebody beyond the cluster, whoever it is.
    Outside,
    Address(IpAddr),
    Pod {
        namespace: String,
        name: String,
    },
}

/// To whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    Address(SocketAddr, Protocol),
    Service {
        key: ServiceKey,
        /// The port's name or number.
        port: Option<String>,
        protocol: Option<Protocol>,
    },
}

impl Question {
    /// Takes words from a command line apart into source and destination. Between them may stand an arrow or `to`.
    ///
    /// # Errors
    /// If there are too few or too many.
    pub fn split(words: &[String], from: Option<&str>) -> Result<(String, String), Unanswered> {
        let joined = words.join(" ").replace("->", " ").replace('→', " ");
        let mut words: Vec<&str> = joined.split_whitespace().collect();
        words.retain(|word| *word != "to");
        let (source, destination) = match (words.as_slice(), from) {
            ([destination], Some(source)) => (source, *destination),
            ([source, destination], None) => (*source, *destination),
            ([_], None) => return Err(Unanswered::nonsense("the packet has no source", HOW)),
            ([_, _, ..], Some(_)) => {
                return Err(Unanswered::nonsense(
                    "the packet has two sources",
                    "leave out --from, or the one before the arrow",
                ));
            }
            _ => {
                return Err(Unanswered::nonsense(
                    format!("{joined:?} is no packet"),
                    HOW,
                ));
            }
        };
        Ok((source.to_owned(), destination.to_owned()))
    }

    /// Reads source and destination.
    ///
    /// # Errors
    /// If one of them makes no sense.
    pub fn read(source: &str, destination: &str) -> Result<Self, Unanswered> {
        Ok(Self {
            source: Source::read(source)?,
            destination: Destination::read(destination)?,
        })
    }
}

impl Source {
    fn read(text: &str) -> Result<Self, Unanswered> {
        let bad = || Unanswered::nonsense(format!("{text:?} is no source"), SOURCES);
        match text {
            "node" => return Ok(Self::Node),
            "outside" => return Ok(Self::Outside),
            _ => {}
        }
        if let Some(pod) = text.strip_prefix("pod/") {
            let (namespace, name) = pod.split_once('/').unwrap_or(("default", pod));
            if !valid_name(namespace) || !valid_name(name) {
                return Err(bad());
            }
            return Ok(Self::Pod {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            });
        }
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        parse_ip(bare).map(Self::Address).ok_or_else(bad)
    }
}

impl Destination {
    fn read(text: &str) -> Result<Self, Unanswered> {
        for prefix in ["service/", "svc/"] {
            if let Some(rest) = text.strip_prefix(prefix) {
                return Self::read_service(text, rest);
            }
        }
        let (address, protocol) = match text.rsplit_once('/') {
            Some((address, name)) => (address, protocol(name)?),
            None => (text, Protocol::Tcp),
        };
        match address.parse::<SocketAddr>() {
            Ok(at) if at.port() > 0 => Ok(Self::Address(at, protocol)),
            Ok(_) => Err(Unanswered::nonsense(
                format!("{address:?} has port 0, which nobody can send to"),
                "give another port",
            )),
            Err(_) => Err(no_destination(address)),
        }
    }

    /// Reads `namespace/name[:port][/protocol]`.
    fn read_service(text: &str, rest: &str) -> Result<Self, Unanswered> {
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
            return Err(Unanswered::nonsense(
                format!("{text:?} has an empty port"),
                "write service/NAMESPACE/NAME:PORT",
            ));
        }
        Ok(Self::Service {
            key: service_name(name)?,
            port: port.map(str::to_owned),
            protocol,
        })
    }
}

fn no_destination(address: &str) -> Unanswered {
    let without_port = |example: String| {
        let error = format!("{address:?} has no port");
        Unanswered::nonsense(error, format!("write {example}"))
    };
    match address.parse::<IpAddr>() {
        Ok(IpAddr::V6(ip)) => without_port(format!("[{ip}]:80")),
        Ok(IpAddr::V4(ip)) => without_port(format!("{ip}:80")),
        Err(_) => Unanswered::nonsense(
            format!("{address:?} is no destination"),
            "write ADDRESS:PORT[/udp], [IPV6]:PORT or service/NAMESPACE/NAME[:PORT]",
        ),
    }
}

/// Reads a protocol's name.
///
/// # Errors
/// If there is none of that name.
pub fn protocol(name: &str) -> Result<Protocol, Unanswered> {
    match Protocol::parse(&name.to_ascii_uppercase()) {
        Some(protocol) if !name.is_empty() => Ok(protocol),
        _ => Err(Unanswered::nonsense(
            format!("there is no protocol {name:?}"),
            "write tcp, udp or sctp",
        )),
    }
}

/// Reads `service/namespace/name` or `namespace/name`; without a namespace `default` is meant.
///
/// # Errors
/// If it is no name.
pub fn service_name(text: &str) -> Result<ServiceKey, Unanswered> {
    let rest = ["service/", "svc/"]
        .iter()
        .find_map(|prefix| text.strip_prefix(prefix))
        .unwrap_or(text);
    let (namespace, name) = rest.split_once('/').unwrap_or(("default", rest));
    ServiceKey::new(namespace, name).ok_or_else(|| {
        Unanswered::nonsense(
            format!("{text:?} names no Service"),
            "write service/NAMESPACE/NAME",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str], from: Option<&str>) -> Result<Question, Unanswered> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let (source, destination) = Question::split(&words, from)?;
        Question::read(&source, &destination)
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
        let pod = parse(&["svc/web"], Some("pod/shop/web-0")).unwrap();
        let named = Source::Pod {
            namespace: "shop".to_owned(),
            name: "web-0".to_owned(),
        };
        assert_eq!(pod.source, named);
        let service = Destination::Service {
            key: ServiceKey::new("default", "web").unwrap(),
            port: None,
            protocol: None,
        };
        assert_eq!(pod.destination, service);
    }

    #[test]
    fn nonsense_is_one_line_that_says_what_to_try() {
        for (words, from, part) in [
            (&["10.96.0.10:53"][..], None, "no source"),
            (&["10.0.0.1", "10.96.0.10"], None, "write 10.96.0.10:80"),
            (&["10.0.0.1", "fd00::1"], None, "write [fd00::1]:80"),
            (&["10.0.0.1", "10.96.0.10:0"], None, "port 0"),
            (&["10.0.0.1:80", "10.96.0.10:80"], None, "without a port"),
            (&["pod/a/b/c", "10.96.0.10:80"], None, "pod/NAMESPACE/NAME"),
            (&["pod/", "10.96.0.10:80"], None, "pod/NAMESPACE/NAME"),
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
            (&["10.0.0.1", "service/A/b"], None, "service/NAMESPACE/NAME"),
            (&["10.0.0.1", "service/a/b:"], None, "empty port"),
            (&["10.0.0.1", "10.96.0.10:80"], Some("node"), "two sources"),
            (&["a", "b", "c"], None, "no packet"),
        ] {
            let error = parse(words, from).unwrap_err().to_string();
            assert!(error.contains(part), "{words:?}: {error}");
            assert_eq!(error.lines().count(), 1);
        }
    }
}
