//! Compares the answers to a flow's calls with what the flow expects.
//!
//! Pure functions of the answers: no sockets, no namespaces.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::client::Answer;
use crate::flow::{SourceSeen, Spread};
use crate::layout::{ClientHost, Pod};

/// The number of calls for a `share`.
const SHARE_TRIES: usize = 400;

/// Whether more calls are needed.
///
/// A minimum number of calls detects unexpected endpoints. Calls continue until every expected one has
/// answered: with random selection, one of k endpoints misses all of 40k calls with a probability
/// below k times e^-40.
pub(crate) fn needs_more_calls(
    answers: &[Answer],
    endpoints: &[SocketAddr],
    spread: &Spread,
) -> bool {
    let made = answers.len();
    let at_least = 8 * endpoints.len() + 8;
    match spread {
        Spread::Share(_) => made < SHARE_TRIES,
        Spread::Sticky => made < at_least,
        Spread::Each => {
            let unseen = |endpoint: &SocketAddr| !answers.iter().any(|a| a.endpoint == *endpoint);
            made < at_least || (made < 40 * endpoints.len() && endpoints.iter().any(unseen))
        }
    }
}

/// Checks the source addresses that endpoints saw.
pub(crate) fn sources(
    answers: &[Answer],
    host: ClientHost,
    expected: SourceSeen,
    is_node: impl Fn(IpAddr) -> bool,
) -> Result<(), String> {
    for answer in answers {
        let calls_itself = answer.endpoint.ip() == answer.own_source;
        let masquerade = match expected {
            SourceSeen::Own => false,
            SourceSeen::Node => true,
            SourceSeen::Hairpin => calls_itself,
        };
        let fits = match (masquerade, host) {
            (false, _) => answer.seen_source == answer.own_source,
            // The node's own address is also the masqueraded one.
            (true, ClientHost::Node) => is_node(answer.seen_source),
            (true, _) => is_node(answer.seen_source) && answer.seen_source != answer.own_source,
        };
        if !fits {
            let wanted = if masquerade {
                "a node address"
            } else {
                "the client's own address"
            };
            return Err(format!("expected {wanted} as source, got: {answer}"));
        }
    }
    Ok(())
}

/// Checks which endpoints answered, and how often.
pub(crate) fn spread(
    reached: &[SocketAddr],
    endpoints: &[SocketAddr],
    spread: &Spread,
) -> Result<(), String> {
    let mut counts: BTreeMap<SocketAddr, usize> = BTreeMap::new();
    for endpoint in reached {
        *counts.entry(*endpoint).or_default() += 1;
    }
    let seen = || {
        counts
            .iter()
            .map(|(e, n)| format!("{e} x{n}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let count = |endpoint: &SocketAddr| counts.get(endpoint).copied().unwrap_or_default();
    if let Some(stranger) = counts.keys().find(|endpoint| !endpoints.contains(endpoint)) {
        return Err(format!(
            "unexpected endpoint {}; got {}",
            described(*stranger),
            seen()
        ));
    }
    match spread {
        Spread::Each => match endpoints.iter().find(|endpoint| count(endpoint) == 0) {
            Some(missing) => Err(format!(
                "{} never answered; got {}",
                described(*missing),
                seen()
            )),
            None => Ok(()),
        },
        Spread::Sticky if counts.len() > 1 => {
            Err(format!("expected a single endpoint; got {}", seen()))
        }
        Spread::Sticky => Ok(()),
        Spread::Share(weights) => {
            let total: f64 = weights.iter().copied().map(f64::from).sum();
            for (endpoint, weight) in endpoints.iter().zip(weights) {
                let share = f64::from(*weight) / total;
                if !near_share(count(endpoint), reached.len(), share, weights.len()) {
                    return Err(format!(
                        "expected {:.0} % for {endpoint}; got {}",
                        share * 100.0,
                        seen()
                    ));
                }
            }
            Ok(())
        }
    }
}

/// Whether a count is within the statistical tolerance of a share.
///
/// Bernstein's inequality bounds the tail of a binomial distribution for any share, however small:
/// P(|X - np| >= t) <= 2 exp(-t^2 / (2 (np(1-p) + t/3))). Solved for the t at which all
/// endpoints together cause a false failure once in a million flows.
fn near_share(count: usize, tries: usize, share: f64, endpoints: usize) -> bool {
    const FALSE_ALARMS: f64 = 1e-6;
    let (count, tries, endpoints) = (count as f64, tries as f64, endpoints as f64);
    let variance = tries * share * (1.0 - share);
    let bits = (2.0 * endpoints / FALSE_ALARMS).ln();
    let tolerance = bits / 3.0 + (bits * bits / 9.0 + 2.0 * bits * variance).sqrt();
    (count - tries * share).abs() <= tolerance
}

/// An endpoint and the name of its pod.
fn described(endpoint: SocketAddr) -> String {
    match Pod::ALL
        .into_iter()
        .chain(Pod::HOST_NETWORK)
        .find(|pod| pod.address(endpoint.ip()) == endpoint.ip())
    {
        Some(pod) => format!("{endpoint} ({})", pod.name()),
        None => endpoint.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn answer(endpoint: &str, own: &str, seen: &str) -> Answer {
        Answer {
            pod: "pod".to_owned(),
            endpoint: address(endpoint),
            seen_source: seen.parse().unwrap(),
            own_source: own.parse().unwrap(),
        }
    }

    const POD: ClientHost = ClientHost::Pod(Pod::A);
    const NODE: &str = "198.51.100.10";

    fn source_fits(answer: Answer, host: ClientHost, expected: SourceSeen) -> bool {
        let is_node = |address: IpAddr| address.to_string() == NODE;
        sources(&[answer], host, expected, is_node).is_ok()
    }

    #[test]
    fn a_source_is_kept_or_masqueraded_and_nothing_between() {
        let kept = || answer("10.0.0.2:80", "10.0.0.1", "10.0.0.1");
        let masqueraded = || answer("10.0.0.2:80", "10.0.0.1", NODE);
        let strange = || answer("10.0.0.2:80", "10.0.0.1", "10.9.9.9");
        assert!(source_fits(kept(), POD, SourceSeen::Own));
        assert!(source_fits(masqueraded(), POD, SourceSeen::Node));
        assert!(!source_fits(kept(), POD, SourceSeen::Node));
        assert!(!source_fits(masqueraded(), POD, SourceSeen::Own));
        assert!(!source_fits(strange(), POD, SourceSeen::Own));
        assert!(!source_fits(strange(), POD, SourceSeen::Node));
    }

    #[test]
    fn a_hairpin_masquerades_only_the_way_back_to_oneself() {
        let itself = |seen| answer("10.0.0.1:80", "10.0.0.1", seen);
        let another = |seen| answer("10.0.0.2:80", "10.0.0.1", seen);
        assert!(source_fits(itself(NODE), POD, SourceSeen::Hairpin));
        assert!(source_fits(another("10.0.0.1"), POD, SourceSeen::Hairpin));
        assert!(!source_fits(itself("10.0.0.1"), POD, SourceSeen::Hairpin));
        assert!(!source_fits(another(NODE), POD, SourceSeen::Hairpin));
    }

    #[test]
    fn the_node_may_be_masqueraded_as_itself() {
        let seen = answer("10.0.0.2:80", NODE, NODE);
        assert!(source_fits(
            seen.clone(),
            ClientHost::Node,
            SourceSeen::Node
        ));
        assert!(source_fits(seen, ClientHost::Node, SourceSeen::Own));
    }

    #[test]
    fn spreads() {
        let (a, b) = (address("10.0.0.1:80"), address("10.0.0.2:80"));
        assert!(spread(&[a, b, a], &[a, b], &Spread::Each).is_ok());
        assert!(spread(&[a, a], &[a, b], &Spread::Each).is_err());
        assert!(spread(&[a, b], &[a], &Spread::Each).is_err());
        assert!(spread(&[b, b], &[a, b], &Spread::Sticky).is_ok());
        assert!(spread(&[a, b], &[a, b], &Spread::Sticky).is_err());
        let three_to_one: Vec<_> = (0..400).map(|i| if i % 4 == 0 { b } else { a }).collect();
        assert!(spread(&three_to_one, &[a, b], &Spread::Share(vec![3, 1])).is_ok());
        assert!(spread(&three_to_one, &[a, b], &Spread::Share(vec![1, 1])).is_err());
        assert!(spread(&three_to_one, &[a, b], &Spread::Share(vec![1, 3])).is_err());
    }

    #[test]
    fn a_share_has_room_for_chance_but_not_for_a_wrong_weight() {
        assert!(near_share(300, 400, 0.75, 2));
        // Four and a half standard deviations happen; eleven do not.
        assert!(near_share(261, 400, 0.75, 2));
        assert!(!near_share(200, 400, 0.75, 2));
    }
}
