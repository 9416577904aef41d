//! Calls from hosts of the cluster, and the pods that answered.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ferrovia_lab::client::{Caller, DROP_WAIT};
use ferrovia_lab::{ClientHost, Outcome, Pod, Protocol, World};

/// A survey stops after this many failures: further calls would fail, too, and take long.
const GIVE_UP: u32 = 3;

/// The pause between two calls of one client: thousands of calls per second, but leaves a processor for the
/// proxy on a small machine.
const PAUSE: Duration = Duration::from_micros(300);

/// How long to wait for an answer. Less than the second after which TCP retransmits its SYN, so that a lost
/// packet is visible.
const PATIENCE: Duration = Duration::from_millis(900);

/// Concurrent calls to a destination that must not answer.
const SILENT_TRIES: usize = 4;

/// A client of the demo.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DemoClient {
    pub(crate) host: ClientHost,
    /// One of the host's addresses, if it has several; otherwise the routes choose.
    pub(crate) source: Option<IpAddr>,
}

impl DemoClient {
    /// A client on a host, with its primary address.
    pub(crate) const fn at(host: ClientHost) -> Self {
        Self { host, source: None }
    }

    /// A client in a pod.
    pub(crate) const fn in_pod(pod: Pod) -> Self {
        Self::at(ClientHost::Pod(pod))
    }

    fn source(self, to: IpAddr) -> Option<IpAddr> {
        self.source.or_else(|| self.host.source(to))
    }
}

impl fmt::Display for DemoClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source {
            Some(source) => write!(f, "{} {source}", self.host),
            None => self.host.fmt(f),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Destination {
    Http(SocketAddr),
    Udp(SocketAddr),
}

impl Destination {
    fn address(self) -> SocketAddr {
        match self {
            Self::Http(address) | Self::Udp(address) => address,
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(address) => address.fmt(f),
            Self::Udp(address) => write!(f, "{address} (UDP)"),
        }
    }
}

/// The source address that pods are expected to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpectedSource {
    /// The client's own.
    Kept,
    /// The node's: the packets were masqueraded.
    Node,
}

/// The outcomes of calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallTally {
    pub(crate) by_pod: BTreeMap<String, u32>,
    pub(crate) failed: u32,
    first_failure: Option<String>,
    kept: u32,
    masqueraded: u32,
}

impl CallTally {
    fn add(&mut self, world: &World, outcome: &Outcome) {
        let Outcome::Answer(answer) = outcome else {
            self.failed += 1;
            self.first_failure
                .get_or_insert_with(|| outcome.to_string());
            return;
        };
        *self.by_pod.entry(answer.pod.clone()).or_default() += 1;
        // In this order, because a client on the node has the node's address as its own.
        if answer.seen_source == answer.own_source {
            self.kept += 1;
        } else if world.is_node_address(answer.seen_source) {
            self.masqueraded += 1;
        }
    }

    /// How many calls were answered.
    pub(crate) fn answered(&self) -> u32 {
        self.by_pod.values().sum()
    }

    /// Checks that there were calls and all were answered.
    pub(crate) fn expect_no_failure(&self) -> Result<(), String> {
        match &self.first_failure {
            Some(failure) => Err(format!(
                "{} calls failed, the first: {failure}",
                self.failed
            )),
            None if self.answered() == 0 => Err("no calls were made".to_owned()),
            None => Ok(()),
        }
    }

    /// Checks that only these pods answered, in proportion to their weights.
    pub(crate) fn expect_shares(&self, shares: &[(Pod, u32)]) -> Result<(), String> {
        let unexpected = self
            .by_pod
            .keys()
            .find(|name| shares.iter().all(|(pod, _)| pod.name() != *name));
        if let Some(unexpected) = unexpected {
            return Err(format!("unexpected pod {unexpected} answered"));
        }
        let calls = f64::from(self.answered());
        let weights: u32 = shares.iter().map(|(_, weight)| weight).sum();
        for (pod, weight) in shares {
            let share = f64::from(*weight) / f64::from(weights.max(1));
            // Six standard deviations are exceeded by chance twice in a billion runs.
            let allowed = 6.0 * (calls * share * (1.0 - share)).sqrt();
            let (seen, expected) = (f64::from(self.count(*pod)), calls * share);
            if (seen - expected).abs() > allowed {
                let name = pod.name();
                return Err(format!(
                    "{name} answered {seen} times, expected about {expected:.0}"
                ));
            }
        }
        Ok(())
    }

    /// The source address that the pods saw.
    pub(crate) fn seen_source(&self) -> &'static str {
        if self.kept == self.answered() {
            "the client's address"
        } else if self.masqueraded == self.answered() {
            "the node's address"
        } else {
            "several source addresses"
        }
    }

    /// Checks that the pods always saw this source.
    pub(crate) fn expect_source(&self, source: ExpectedSource) -> Result<(), String> {
        let seen = match source {
            ExpectedSource::Kept => self.kept,
            ExpectedSource::Node => self.masqueraded,
        };
        if seen == self.answered() {
            Ok(())
        } else {
            Err(format!(
                "expected source {source:?}; {} calls had another one",
                self.answered() - seen
            ))
        }
    }

    fn count(&self, pod: Pod) -> u32 {
        self.by_pod.get(pod.name()).copied().unwrap_or_default()
    }
}

/// Makes `count` calls, one after the other.
pub(crate) fn survey(
    world: &World,
    client: DemoClient,
    target: Destination,
    calls: u32,
) -> anyhow::Result<CallTally> {
    let caller = Caller::enter(world, client.host.role())?;
    let mut tally = CallTally::default();
    for _ in 0..calls {
        tally.add(world, &ask(&caller, client, target));
        if tally.failed >= GIVE_UP {
            break;
        }
    }
    Ok(tally)
}

/// Makes calls that must not be answered.
pub(crate) fn expect_silence(
    world: &World,
    client: DemoClient,
    target: Destination,
) -> anyhow::Result<Result<(), String>> {
    let to = target.address();
    let caller = Caller::enter(world, client.host.role())?;
    let calls: Vec<_> = (0..SILENT_TRIES)
        .map(|_| caller.start(Protocol::Tcp, client.source(to.ip()), to))
        .collect::<Result<_, _>>()
        .context("cannot call")?;
    let deadline = Instant::now() + DROP_WAIT;
    for mut call in calls {
        // An HTTP server responds only to a request.
        match call.get(deadline) {
            Outcome::TimedOut => {}
            other => return Ok(Err(format!("expected no answer, got {other}"))),
        }
    }
    Ok(Ok(()))
}

/// A call during an operation.
#[derive(Debug)]
pub(crate) struct Observation {
    pub(crate) started: Instant,
    pub(crate) outcome: Outcome,
}

impl Observation {
    /// Whether a pod answered it.
    pub(crate) fn is_by(&self, pod: Pod) -> bool {
        matches!(&self.outcome, Outcome::Answer(answer) if answer.pod == pod.name())
    }
}

pub(crate) fn tally(world: &World, observations: &[Observation]) -> CallTally {
    let mut tally = CallTally::default();
    for observation in observations {
        tally.add(world, &observation.outcome);
    }
    tally
}

/// Runs an operation while clients call without pause, each in its own thread. Returns their calls and the
/// result of the operation.
pub(crate) fn during<T>(
    world: &World,
    clients: &[(DemoClient, Destination)],
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(Vec<Observation>, T)> {
    let over = AtomicBool::new(false);
    let hammer = |client: DemoClient, target: Destination| -> anyhow::Result<Vec<Observation>> {
        let caller = Caller::enter(world, client.host.role())?;
        let mut observations = vec![];
        while !over.load(Ordering::Relaxed) {
            let started = Instant::now();
            let outcome = ask(&caller, client, target);
            observations.push(Observation { started, outcome });
            thread::sleep(PAUSE);
        }
        Ok(observations)
    };
    let hammer = &hammer;
    thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter()
            .map(|(client, target)| scope.spawn(move || hammer(*client, *target)))
            .collect();
        let result = work();
        over.store(true, Ordering::Relaxed);
        let mut observations = vec![];
        for thread in threads {
            match thread.join() {
                Ok(seen) => observations.extend(seen?),
                Err(_) => bail!("a client's thread panicked"),
            }
        }
        Ok((observations, result?))
    })
}

/// Sends a datagram at every tick and then waits for answers, so that each lost one means a tick of outage.
/// Returns whether each was answered.
pub(crate) fn pulse(
    world: &World,
    client: DemoClient,
    to: SocketAddr,
    tick: Duration,
    count: usize,
) -> anyhow::Result<Vec<bool>> {
    let caller = Caller::enter(world, client.host.role())?;
    let mut calls = Vec::with_capacity(count);
    let mut next = Instant::now();
    for _ in 0..count {
        calls.push(caller.start(Protocol::Udp, client.source(to.ip()), to));
        next += tick;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let deadline = Instant::now() + DROP_WAIT;
    let answered = calls
        .into_iter()
        .map(|call| call.is_ok_and(|mut call| matches!(call.finish(deadline), Outcome::Answer(_))));
    Ok(answered.collect())
}

fn ask(caller: &Caller<'_>, client: DemoClient, target: Destination) -> Outcome {
    let to = target.address();
    let from = client.source(to.ip());
    match target {
        Destination::Http(_) => caller.get(from, to, PATIENCE),
        Destination::Udp(_) => caller.connect(Protocol::Udp, from, to, PATIENCE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(counts: &[(Pod, u32)]) -> CallTally {
        let by_pod = counts
            .iter()
            .map(|(pod, count)| (pod.name().to_owned(), *count));
        CallTally {
            by_pod: by_pod.collect(),
            ..CallTally::default()
        }
    }

    #[test]
    fn shares_may_vary_as_chance_does() {
        let even = [(Pod::A, 1), (Pod::B, 1)];
        assert_eq!(
            tally(&[(Pod::A, 110), (Pod::B, 90)]).expect_shares(&even),
            Ok(())
        );
        assert!(
            tally(&[(Pod::A, 150), (Pod::B, 50)])
                .expect_shares(&even)
                .is_err()
        );
        assert!(tally(&[(Pod::A, 100)]).expect_shares(&even).is_err());
        assert!(
            tally(&[(Pod::A, 95), (Pod::B, 95), (Pod::C, 1)])
                .expect_shares(&even)
                .is_err()
        );
        assert_eq!(
            tally(&[(Pod::A, 890), (Pod::B, 110)]).expect_shares(&[(Pod::A, 9), (Pod::B, 1)]),
            Ok(())
        );
    }

    #[test]
    fn no_calls_are_no_success() {
        assert!(CallTally::default().expect_no_failure().is_err());
        assert_eq!(tally(&[(Pod::A, 1)]).expect_no_failure(), Ok(()));
    }
}
