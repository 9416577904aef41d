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
pub fn parse_section(section: &Section) -> Result<Vec<Line>, Problem> {
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
mod tests {
    use super::*;
    use crate::layout::Pod;

    fn flow(text: &str) -> Flow {
        match parse_action(text).unwrap() {
            Action::Call(flow) => flow,
            other => panic!("{other:?} is no call"),
        }
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn endpoints_and_flags() {
        let flow =
            flow("pod-a   >  10.96.0.1:80/tcp =>10.244.1.10:80 | 10.244.2.10:80  masq sticky");
        assert_eq!(flow.route.place, Place::Pod(Pod::A));
        assert_eq!(flow.route.protocol, Protocol::Tcp);
        assert_eq!(
            flow.expectation,
            Expectation::Answer {
                endpoints: vec![address("10.244.1.10:80"), address("10.244.2.10:80")],
                source: SourceSeen::Node,
                spread: Spread::Sticky,
            }
        );
    }

    #[test]
    fn sources_protocols_and_verdicts() {
        let udp = flow("outside@2001:db8:2::77 > [2001:db8::1]:53/udp => dropped");
        assert_eq!(udp.route.from, Some("2001:db8:2::77".parse().unwrap()));
        assert_eq!(udp.route.to, address("[2001:db8::1]:53"));
        assert_eq!(udp.route.protocol, Protocol::Udp);
        assert_eq!(udp.expectation, Expectation::Dropped);
        assert_eq!(
            flow("node > 10.0.0.1:1/sctp => refused").route.protocol,
            Protocol::Sctp
        );
        assert_eq!(
            flow("node2 > 10.0.0.1:1 => unreachable").expectation,
            Expectation::Unreachable
        );
    }

    #[test]
    fn without_flags_the_source_is_kept_and_each_endpoint_seen() {
        let Expectation::Answer { source, spread, .. } =
            flow("node > 10.0.0.1:1 => 10.0.0.2:2").expectation
        else {
            panic!("an answer is expected");
        };
        assert_eq!((source, spread), (SourceSeen::Own, Spread::Each));
    }

    #[test]
    fn shares_need_a_weight_for_each_endpoint() {
        let Expectation::Answer { spread, .. } =
            flow("node > 10.0.0.1:1 => 10.0.0.2:2 | 10.0.0.3:2 share 3:1").expectation
        else {
            panic!("an answer is expected");
        };
        assert_eq!(spread, Spread::Share(vec![3, 1]));
        assert!(parse_action("node > 10.0.0.1:1 => 10.0.0.2:2 share 3:1").is_err());
        assert!(parse_action("node > 10.0.0.1:1 => 10.0.0.2:2 share 0").is_err());
        assert!(parse_action("node > 10.0.0.1:1 => 10.0.0.2:2 share").is_err());
    }

    #[test]
    fn kept_connections() {
        let Action::Hold { name, route } = parse_action("hold c1 pod-x > 10.0.0.1:1/udp").unwrap()
        else {
            panic!("a hold is expected");
        };
        assert_eq!((name.as_str(), route.protocol), ("c1", Protocol::Udp));
        let state = |text| match parse_action(text).unwrap() {
            Action::Check { state, .. } => state,
            other => panic!("{other:?} is no check"),
        };
        assert_eq!(state("check c1"), HeldState::Works);
        assert_eq!(state("check c1 closed"), HeldState::Closed);
        assert_eq!(
            state("check c1 => 10.0.0.2:80"),
            HeldState::AnsweredBy(address("10.0.0.2:80"))
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("pod-q > 10.0.0.1:1 => refused", "pod-q"),
            ("pod-a 10.0.0.1:1 => refused", "<source> > <destination>"),
            ("pod-a > 10.0.0.1 => refused", "no address with a port"),
            ("pod-a > 10.0.0.1:1/icmp => refused", "icmp"),
            ("pod-a > 10.0.0.1:1", "<expectation>"),
            ("pod-a > 10.0.0.1:1 =>", "no address|missing"),
            ("pod-a > 10.0.0.1:1 => 10.0.0.2:2 often", "often"),
            ("pod-a > 10.0.0.1:1 => 10.0.0.2:2 masq kept", "contradicts"),
            ("pod-a > 10.0.0.1:1 => [fd00::1]:2", "family"),
            ("pod-a@fd00::1 > 10.0.0.1:1 => refused", "families"),
            ("pod-a > 10.0.0.1:1/udp => unreachable", "only TCP"),
            ("check c1 open", "closed"),
            ("hold c1 pod-a > 10.0.0.1:1/sctp", "TCP and UDP"),
        ] {
            let error = parse_action(text).unwrap_err();
            assert!(
                part.split('|').any(|part| error.contains(part)),
                "{text}: {error}"
            );
        }
    }
}
