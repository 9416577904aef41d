//! The lines of a `flows` section: who calls what, and what must come of it.
//!
//! ```text
//! pod-a > 10.96.0.10:80 => 10.244.1.10:80 | 10.244.2.10:80 hairpin
//! outside@192.0.2.77 > [2001:db8:51::10]:30080 => [fd00:10:244:1::10]:80 masq
//! outside > 203.0.113.1:53/udp => dropped
//! hold c1 pod-a > 10.96.0.10:80
//! check c1
//! ```
//!
//! - The source is a place of the lab, with an address where it is not the usual one.
//! - The destination is TCP unless `/udp` or `/sctp` says otherwise.
//! - The expectation is `refused`, `dropped`, `unreachable` (TCP only: the kernel does not tell
//!   others), or the endpoints: each must be seen and no other. Flags follow:
//!   - nothing or `kept`: the endpoint sees the client's own address;
//!   - `masq`: it sees an address of the node instead;
//!   - `hairpin`: it sees the node's address where the client is the endpoint itself, and the
//!     client's own elsewhere;
//!   - `sticky`: all calls reach one of the endpoints, whichever;
//!   - `share 3:1`: calls spread by these weights.
//! - `hold NAME` opens a connection (TCP, or a UDP socket) and keeps it for later steps.
//!   `check NAME` says that it still works, through the same endpoint as before;
//!   `check NAME => ip:port` that it is now answered by that one; `check NAME closed` that the
//!   other side has ended it.
//!
//! Empty lines and lines beginning with `#` are skipped. How flows are sent and judged is in
//! [`crate::run`].

use std::net::{IpAddr, SocketAddr};

use crate::document::{Problem, Section};
use crate::layout::{Place, Protocol};

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its number in the file.
    pub number: usize,
    /// The line as written, without the spaces round it.
    pub text: String,
    /// What it asks for.
    pub action: Action,
}

impl Line {
    /// The same where endpoints that are reached by a service see the node's address, whoever the client is: the node's process is theirs.
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

    /// The same where the node has the addresses of services itself: what nobody listens for there is refused by the kernel, not lost on the
    /// way.
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

/// What a line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Calls with an expectation.
    Call(Flow),
    /// A connection to keep.
    Hold {
        /// Its name in later lines.
        name: String,
        /// Who calls what.
        route: Route,
    },
    /// A look at a kept connection.
    Check {
        /// The name it was given.
        name: String,
        /// What must be true of it.
        state: HeldState,
    },
}

/// A call and what must come of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Who calls what.
    pub route: Route,
    /// What must come of it.
    pub expectation: Expectation,
}

/// Who calls what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where the call is made.
    pub place: Place,
    /// The source address, where it is not the place's usual one.
    pub from: Option<IpAddr>,
    /// The address called.
    pub to: SocketAddr,
    /// The protocol spoken.
    pub protocol: Protocol,
}

/// What must come of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// Endpoints answer.
    Answer {
        /// Those that may, at least one.
        endpoints: Vec<SocketAddr>,
        /// The source address they must see.
        source: SourceSeen,
        /// How calls spread over them.
        spread: Spread,
    },
    /// The call is refused.
    Refused,
    /// Nothing comes back.
    Dropped,
    /// The network says there is no way.
    Unreachable,
}

/// The source address an endpoint must see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceSeen {
    /// The client's own.
    Own,
    /// One of the node's.
    Node,
    /// One of the node's where the client is the endpoint, else the client's own.
    Hairpin,
}

/// How calls spread over endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Each is reached.
    Each,
    /// All calls reach the same one.
    Sticky,
    /// By weights, one for each endpoint.
    Share(Vec<u32>),
}

/// What must be true of a kept connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldState {
    /// It works, through the endpoint it had.
    Works,
    /// This endpoint answers on it.
    AnsweredBy(SocketAddr),
    /// The other side ended it.
    Closed,
}

/// Reads all lines of a section.
pub(crate) fn parse_section(section: &Section) -> Result<Vec<Line>, Problem> {
    section
        .lines()
        .map(|(number, text)| (number, text.trim()))
        .filter(|(_, text)| !text.is_empty() && !text.starts_with('#'))
        .map(|(number, text)| {
            let action = parse_action(text).map_err(|what| Problem::at(number, what))?;
            Ok(Line {
                number,
                text: text.to_owned(),
                action,
            })
        })
        .collect()
}

/// Reads one line.
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
            return Err("only TCP calls are told that a host is unreachable".to_owned());
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
    let (place, from) = match source.trim().split_once('@') {
        Some((place, address)) => {
            let address = address
                .parse()
                .map_err(|_| format!("\"{address}\" is no source address"))?;
            (place, Some(address))
        }
        None => (source.trim(), None),
    };
    let (address, protocol) = match destination.trim().rsplit_once('/') {
        None | Some((_, "tcp")) => (destination.trim().trim_end_matches("/tcp"), Protocol::Tcp),
        Some((address, "udp")) => (address, Protocol::Udp),
        Some((address, "sctp")) => (address, Protocol::Sctp),
        Some((_, other)) => return Err(format!("there is no protocol \"{other}\" here")),
    };
    let to = parse_address(address)?;
    if from.is_some_and(|from: IpAddr| from.is_ipv4() != to.is_ipv4()) {
        return Err("source and destination are of different families".to_owned());
    }
    Ok(Route {
        place: place.parse()?,
        from,
        to,
        protocol,
    })
}

/// Reads `ip:port | ip:port flag flag`.
fn parse_answers(text: &str, to: SocketAddr) -> Result<Expectation, String> {
    let mut parts: Vec<&str> = text.split('|').map(str::trim).collect();
    // Flags stand behind the last endpoint.
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
        return Err("an endpoint is of another family than the destination".to_owned());
    }
    if endpoints.is_empty() {
        return Err("the expectation is missing".to_owned());
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
            other => return Err(format!("there is no flag \"{other}\"")),
        };
        if repeated {
            return Err(format!(
                "\"{word}\" contradicts or repeats a flag before it"
            ));
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
                .map_err(|_| format!("\"{text}\" are no weights"))
        })
        .collect::<Result<_, _>>()?;
    if weights.len() != endpoints || weights.contains(&0) {
        return Err(format!("\"share\" needs {endpoints} weights above zero"));
    }
    Ok(weights)
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("\"{text}\" is no address with a port"))
}

#[cfg(test)]
mod tests;
