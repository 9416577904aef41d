//! The lines of a `flows` section: calls and their expected outcomes.
//!
//! ```text
//! pod-a > 10.96.0.10:80 => 10.244.1.10:80 | 10.244.2.10:80 hairpin
//! outside@192.0.2.77 > [2001:db8:51::10]:30080 => [fd00:10:244:1::10]:80 masq
//! outside > 203.0.113.1:53/udp => dropped
//! hold c1 pod-a > 10.96.0.10:80
//! check c1
//! ```
//!
//! - The source is a host of the lab, with `@address` if it is not the host's primary address.
//! - The destination is TCP unless `/udp` or `/sctp` follows.
//! - The expectation is `refused`, `dropped`, `unreachable` (TCP only: the kernel does not report it
//!   for other protocols), or a list of endpoints, each of which must answer and no other. Flags follow:
//!   - none or `kept`: the endpoint sees the client's own address;
//!   - `masq`: it sees an address of the node;
//!   - `hairpin`: it sees the node's address if the client is the endpoint itself, otherwise the
//!     client's own;
//!   - `sticky`: all calls reach the same endpoint, any of the list;
//!   - `share 3:1`: calls are distributed by these weights.
//! - `hold NAME` opens a connection (TCP, or a UDP socket) and keeps it for later steps.
//!   `check NAME` requires that it still works, with the same endpoint as before;
//!   `check NAME => ip:port` that this endpoint answers now; `check NAME closed` that the peer has
//!   closed it.
//!
//! Empty lines and lines beginning with `#` are skipped. [`crate::run`] runs flows.

use std::net::{IpAddr, SocketAddr};

use crate::document::{Section, SyntaxError};
use crate::layout::{ClientHost, Protocol};

/// A line of a `flows` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The line number in the file.
    pub number: usize,
    /// The line, trimmed.
    pub text: String,
    /// The parsed line.
    pub action: Action,
}

impl Line {
    /// The line for a userspace proxy: endpoints of a Service always see the node's address, because the proxy is their client.
    #[must_use]
    pub fn proxied(mut self) -> Self {
        if let Action::Call(flow) = &mut self.action
            && let Expectation::Answer {
                source, endpoints, ..
            } = &mut flow.expectation
            && !endpoints.contains(&flow.route.to)
        {
            *source = SourceSeen::Node;
        }
        self
    }

    /// The line for bind portals: the node has the addresses of Services itself, so that its kernel refuses calls to closed ports, which
    /// would otherwise be dropped.
    #[must_use]
    pub fn refused_at(mut self, has: impl Fn(IpAddr) -> bool) -> Self {
        if let Action::Call(flow) = &mut self.action
            && flow.expectation == Expectation::Dropped
            && has(flow.route.to.ip())
        {
            flow.expectation = Expectation::Refused;
        }
        self
    }
}

/// What a line does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Makes calls, with an expectation.
    Call(Flow),
    /// Opens a connection and keeps it.
    Hold {
        /// The connection's name in later lines.
        name: String,
        /// The call's source and destination.
        route: Route,
    },
    /// Checks an open connection.
    Check { name: String, state: HeldState },
}

/// A call and its expected outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The call's source and destination.
    pub route: Route,
    pub expectation: Expectation,
}

/// The call's source and destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The calling host.
    pub host: ClientHost,
    /// The source address, if it is not the host's primary one.
    pub from: Option<IpAddr>,
    pub to: SocketAddr,
    pub protocol: Protocol,
}

/// The expected outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    Answer {
        /// The endpoints that may answer, at least one.
        endpoints: Vec<SocketAddr>,
        /// The source address they must see.
        source: SourceSeen,
        /// How calls are distributed over them.
        spread: Spread,
    },
    /// The call is refused.
    Refused,
    /// No packet comes back.
    Dropped,
    /// The network reports that the host is unreachable.
    Unreachable,
}

/// The source address an endpoint must see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceSeen {
    /// The client's own address.
    Own,
    /// An address of the node.
    Node,
    /// An address of the node if the client is the endpoint, otherwise the client's own.
    Hairpin,
}

/// How calls are distributed over endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Each endpoint is reached.
    Each,
    /// All calls reach the same endpoint.
    Sticky,
    /// By weights, one for each endpoint.
    Share(Vec<u32>),
}

/// The expected state of an open connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldState {
    /// It works, with the same endpoint as before.
    Works,
    /// This endpoint answers on it.
    AnsweredBy(SocketAddr),
    /// The peer closed it.
    Closed,
}

/// Parses all lines of a section.
pub(crate) fn parse_section(section: &Section) -> Result<Vec<Line>, SyntaxError> {
    section
        .lines()
        .map(|(number, text)| (number, text.trim()))
        .filter(|(_, text)| !text.is_empty() && !text.starts_with('#'))
        .map(|(number, text)| {
            let action = parse_action(text).map_err(|what| SyntaxError::at(number, what))?;
            Ok(Line {
                number,
                text: text.to_owned(),
                action,
            })
        })
        .collect()
}

pub fn parse_action(text: &str) -> Result<Action, String> {
    match text.split_once(char::is_whitespace) {
        Some(("hold", rest)) => parse_hold(rest),
        Some(("check", rest)) => parse_check(rest),
        _ => parse_flow(text).map(Action::Call),
    }
}

fn parse_hold(text: &str) -> Result<Action, String> {
    let (name, route) = text
        .trim()
        .split_once(char::is_whitespace)
        .ok_or("expected \"hold NAME <source> > <destination>\"")?;
    let route = parse_route(route)?;
    if route.protocol == Protocol::Sctp {
        return Err("only TCP and UDP can be held".to_owned());
    }
    Ok(Action::Hold {
        name: name.to_owned(),
        route,
    })
}

fn parse_check(text: &str) -> Result<Action, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (name, state) = match words.as_slice() {
        [name] => (name, HeldState::Works),
        [name, "closed"] => (name, HeldState::Closed),
        [name, "=>", endpoint] => (name, HeldState::AnsweredBy(parse_address(endpoint)?)),
        _ => {
            return Err(
                "expected \"check NAME\", then nothing, \"closed\" or \"=> ip:port\"".into(),
            );
        }
    };
    Ok(Action::Check {
        name: (*name).to_owned(),
        state,
    })
}

fn parse_flow(text: &str) -> Result<Flow, String> {
    let (route, expectation) = text
        .split_once("=>")
        .ok_or("expected \"<source> > <destination> => <expectation>\"")?;
    let route = parse_route(route)?;
    let expectation = match expectation.trim() {
        "refused" => Expectation::Refused,
        "dropped" => Expectation::Dropped,
        "unreachable" if route.protocol != Protocol::Tcp => {
            return Err("\"unreachable\" is only possible for TCP".to_owned());
        }
        "unreachable" => Expectation::Unreachable,
        answers => parse_answers(answers, route.to)?,
    };
    Ok(Flow { route, expectation })
}

fn parse_route(text: &str) -> Result<Route, String> {
    let (source, destination) = text
        .split_once('>')
        .ok_or("expected \"<source> > <destination>\"")?;
    let (host, from) = match source.trim().split_once('@') {
        Some((host, address)) => {
            let address = address
                .parse()
                .map_err(|_| format!("invalid source address \"{address}\""))?;
            (host, Some(address))
        }
        None => (source.trim(), None),
    };
    let (address, protocol) = match destination.trim().rsplit_once('/') {
        None | Some((_, "tcp")) => (destination.trim().trim_end_matches("/tcp"), Protocol::Tcp),
        Some((address, "udp")) => (address, Protocol::Udp),
        Some((address, "sctp")) => (address, Protocol::Sctp),
        Some((_, other)) => {
            return Err(format!(
                "invalid protocol \"{other}\": expected tcp, udp or sctp"
            ));
        }
    };
    let to = parse_address(address)?;
    if from.is_some_and(|from: IpAddr| from.is_ipv4() != to.is_ipv4()) {
        return Err("source and destination have different address families".to_owned());
    }
    Ok(Route {
        host: host.parse()?,
        from,
        to,
        protocol,
    })
}

/// Parses `ip:port | ip:port flag flag`.
fn parse_answers(text: &str, to: SocketAddr) -> Result<Expectation, String> {
    let mut parts: Vec<&str> = text.split('|').map(str::trim).collect();
    // Flags follow the last endpoint.
    let last = parts.pop().unwrap_or_default();
    let mut words = last.split_whitespace();
    parts.extend(words.next());
    let endpoints = parts
        .into_iter()
        .map(parse_address)
        .collect::<Result<Vec<SocketAddr>, String>>()?;
    if endpoints
        .iter()
        .any(|endpoint| endpoint.is_ipv4() != to.is_ipv4())
    {
        return Err("endpoint and destination have different address families".to_owned());
    }
    if endpoints.is_empty() {
        return Err("missing expectation".to_owned());
    }
    let (source, spread) = parse_flags(words, endpoints.len())?;
    Ok(Expectation::Answer {
        endpoints,
        source,
        spread,
    })
}

fn parse_flags<'a>(
    mut words: impl Iterator<Item = &'a str>,
    endpoints: usize,
) -> Result<(SourceSeen, Spread), String> {
    let (mut source, mut spread) = (None, None);
    while let Some(word) = words.next() {
        let repeated = match word {
            "kept" => source.replace(SourceSeen::Own).is_some(),
            "masq" => source.replace(SourceSeen::Node).is_some(),
            "hairpin" => source.replace(SourceSeen::Hairpin).is_some(),
            "sticky" => spread.replace(Spread::Sticky).is_some(),
            "share" => {
                let weights = parse_weights(words.next().unwrap_or_default(), endpoints)?;
                spread.replace(Spread::Share(weights)).is_some()
            }
            other => return Err(format!("invalid flag \"{other}\"")),
        };
        if repeated {
            return Err(format!("\"{word}\" contradicts or repeats an earlier flag"));
        }
    }
    Ok((
        source.unwrap_or(SourceSeen::Own),
        spread.unwrap_or(Spread::Each),
    ))
}

fn parse_weights(text: &str, endpoints: usize) -> Result<Vec<u32>, String> {
    let weights: Vec<u32> = text
        .split(':')
        .map(|weight| {
            weight
                .parse()
                .map_err(|_| format!("invalid weights \"{text}\""))
        })
        .collect::<Result<_, _>>()?;
    if weights.len() != endpoints || weights.contains(&0) {
        return Err(format!("\"share\" needs {endpoints} weights above zero"));
    }
    Ok(weights)
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("invalid address and port \"{text}\""))
}

#[cfg(test)]
mod tests;
