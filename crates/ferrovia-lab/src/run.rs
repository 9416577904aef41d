//! Runs flows in a world. `judge.rs` compares their answers with the expectations.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::client::{Answer, Call, Caller, DROP_WAIT, Outcome, PATIENCE, outcome_of};
use crate::flow::{Action, Expectation, Flow, HeldState, Line, Route, Spread};
use crate::judge;
use crate::world::World;

/// Flows that run concurrently. They mostly wait, some of them for drops.
const PARALLEL: usize = 8;

/// Concurrent calls of a flow that no endpoint answers: enough to detect a rule that handles only the
/// first packet, or every other one.
const VERDICT_TRIES: usize = 4;

/// After this many answers without a result, concurrent callers may be synchronised with each other.
const IN_STEP: usize = 16;

/// How long a session waits for answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Long enough for any answer, however busy the machine is.
    Long,
    /// For callers that repeat the flows until they hold.
    Short,
}

impl Patience {
    /// How long to wait for an expected answer.
    fn answer(self) -> Duration {
        match self {
            Self::Long => PATIENCE,
            Self::Short => Duration::from_millis(400),
        }
    }

    /// How often a flow may repeat a call whose SYN was retransmitted. A wrong rule affects repeated
    /// calls, too; a machine that was stalled for a second does not.
    fn retries(self) -> usize {
        match self {
            Self::Long => 2,
            Self::Short => 0,
        }
    }
}

/// Runs the flows of a case step by step, and keeps the connections that outlive a step.
#[derive(Debug)]
pub struct Session<'w> {
    world: &'w World,
    patience: Patience,
    held: BTreeMap<String, HeldConnection>,
}

#[derive(Debug)]
struct HeldConnection {
    call: Call,
    endpoint: SocketAddr,
}

impl<'w> Session<'w> {
    /// A session without open connections.
    pub fn new(world: &'w World) -> Self {
        Self::with(world, Patience::Long)
    }

    /// Like [`Self::new`], with another patience.
    pub fn with(world: &'w World, patience: Patience) -> Self {
        Self {
            world,
            patience,
            held: BTreeMap::new(),
        }
    }

    /// Runs the lines of one step; returns a message for each that failed, in their order.
    ///
    /// `hold` and `check` run first, in order. Then calls run concurrently, except sticky ones,
    /// which run alone, so that no other call of the same client changes its affinity.
    pub fn run(&mut self, lines: &[Line]) -> Vec<String> {
        let mut failures = Failures::new();
        let (mut together, mut alone) = (vec![], vec![]);
        for line in lines {
            match &line.action {
                Action::Call(flow) if flow.is_sticky() => alone.push((line, flow)),
                Action::Call(flow) => together.push((line, flow)),
                Action::Hold { name, route } => note(&mut failures, line, self.hold(name, route)),
                Action::Check { name, state } => {
                    note(&mut failures, line, self.check(name, *state));
                }
            }
        }
        failures.extend(run_concurrently(self.world, self.patience, &together));
        for (line, flow) in alone {
            note(&mut failures, line, flow.run(self.world, self.patience));
        }
        failures.into_values().collect()
    }

    fn hold(&mut self, name: &str, route: &Route) -> Result<(), String> {
        let caller = enter(self.world, route)?;
        let mut retries = self.patience.retries();
        loop {
            let mut call = caller
                .start(route.protocol, route.source(), route.to)
                .map_err(|error| format!("cannot call: {error}"))?;
            match call.finish_without_retransmission(Instant::now() + self.patience.answer()) {
                Some(Outcome::Answer(Answer { endpoint, .. })) => {
                    self.held
                        .insert(name.to_owned(), HeldConnection { call, endpoint });
                    return Ok(());
                }
                None if retries > 0 => retries -= 1,
                other => {
                    let saw = other.unwrap_or(Outcome::TimedOut);
                    return Err(format!("expected an answer, got {saw}"));
                }
            }
        }
    }

    fn check(&mut self, name: &str, state: HeldState) -> Result<(), String> {
        let held = self
            .held
            .get_mut(name)
            .ok_or("no connection with this name is open")?;
        let answer = match (state, held.call.repeat(self.patience.answer())) {
            (HeldState::Closed, Err(error)) if is_closed_by_peer(&error) => return Ok(()),
            (HeldState::Closed, Err(error)) => {
                return Err(format!(
                    "expected a closed connection, got {}",
                    outcome_of(&error)
                ));
            }
            (HeldState::Closed, Ok(_)) => {
                return Err("expected a closed connection, but it works".to_owned());
            }
            (_, Err(error)) => {
                return Err(format!(
                    "expected a working connection, got {}",
                    outcome_of(&error)
                ));
            }
            (_, Ok(answer)) => answer,
        };
        // A TCP connection cannot change its endpoint; a UDP answer names the current one.
        let now = answer.map_or(held.endpoint, |answer| answer.endpoint);
        let expected = match state {
            HeldState::AnsweredBy(endpoint) => endpoint,
            HeldState::Works | HeldState::Closed => held.endpoint,
        };
        if now == expected {
            Ok(())
        } else {
            Err(format!("expected {expected}, got {now}"))
        }
    }
}

impl Flow {
    /// Makes the calls and compares outcomes; the error names expectation and outcome.
    pub fn run(&self, world: &World, patience: Patience) -> Result<(), String> {
        let caller = enter(world, &self.route)?;
        let calls = FlowCalls {
            caller,
            route: &self.route,
            patience,
            retries: patience.retries(),
        };
        match &self.expectation {
            Expectation::Answer {
                endpoints,
                source,
                spread,
            } => {
                let answers = calls.collect_answers(endpoints, spread)?;
                let is_node = |address| world.is_node_address(address);
                judge::sources(&answers, self.route.host, *source, is_node)?;
                let reached: Vec<SocketAddr> =
                    answers.iter().map(|answer| answer.endpoint).collect();
                judge::spread(&reached, endpoints, spread)
            }
            Expectation::Refused => {
                calls.expect_verdict("refused", |seen| *seen == Outcome::Refused)
            }
            Expectation::Dropped => {
                calls.expect_verdict("dropped", |seen| *seen == Outcome::TimedOut)
            }
            Expectation::Unreachable => calls.expect_verdict("unreachable", |seen| {
                matches!(seen, Outcome::Unreachable(_))
            }),
        }
    }

    fn is_sticky(&self) -> bool {
        matches!(
            self.expectation,
            Expectation::Answer {
                spread: Spread::Sticky,
                ..
            }
        )
    }
}

/// Makes the calls of one flow.
struct FlowCalls<'a> {
    caller: Caller<'a>,
    route: &'a Route,
    patience: Patience,
    retries: usize,
}

impl FlowCalls<'_> {
    /// Calls until there are enough answers. It stops at the first failed call: the others would fail,
    /// too, and take long.
    fn collect_answers(
        mut self,
        endpoints: &[SocketAddr],
        spread: &Spread,
    ) -> Result<Vec<Answer>, String> {
        let mut answers = vec![];
        while judge::needs_more_calls(&answers, endpoints, spread) {
            if answers.len() >= IN_STEP {
                desynchronise();
            }
            match self.seen(1, self.patience.answer()).pop() {
                Some(Outcome::Answer(answer)) => answers.push(answer),
                other => {
                    let (seen, before) = (other.unwrap_or(Outcome::TimedOut), answers.len());
                    return Err(format!(
                        "expected an answer, got {seen} after {before} answers"
                    ));
                }
            }
        }
        Ok(answers)
    }

    fn expect_verdict(
        mut self,
        expected: &str,
        fits: impl Fn(&Outcome) -> bool,
    ) -> Result<(), String> {
        let wait = if fits(&Outcome::TimedOut) {
            DROP_WAIT
        } else {
            self.patience.answer()
        };
        let seen = self.seen(VERDICT_TRIES, wait);
        match seen.iter().find(|seen| !fits(seen)) {
            Some(seen) => Err(format!("expected {expected}, got {seen}")),
            None => Ok(()),
        }
    }

    /// The outcomes of concurrent calls. A retransmitted SYN counts as a drop once the retries are
    /// used up.
    fn seen(&mut self, count: usize, wait: Duration) -> Vec<Outcome> {
        loop {
            let Route { to, protocol, .. } = *self.route;
            let start = || self.caller.start(protocol, self.route.source(), to);
            let calls: Vec<_> = (0..count).map(|_| start()).collect();
            let deadline = Instant::now() + wait;
            let seen = calls.into_iter().map(|call| match call {
                Ok(mut call) => call.finish_without_retransmission(deadline),
                Err(error) => Some(outcome_of(&error)),
            });
            let seen: Vec<_> = seen.collect();
            if self.retries == 0 || seen.iter().all(Option::is_some) {
                let drop = |seen: Option<Outcome>| seen.unwrap_or(Outcome::TimedOut);
                return seen.into_iter().map(drop).collect();
            }
            self.retries -= 1;
        }
    }
}

impl Route {
    /// The source address to bind to, if any.
    fn source(&self) -> Option<IpAddr> {
        self.from.or_else(|| self.host.source(self.to.ip()))
    }
}

fn enter<'w>(world: &'w World, route: &Route) -> Result<Caller<'w>, String> {
    Caller::enter(world, route.host.role()).map_err(|error| error.to_string())
}

/// Sleeps for a random time. With round-robin, two synchronised callers would otherwise always reach the same endpoints.
fn desynchronise() {
    // The only randomness in the standard library is the seed of its hash maps.
    let micros = RandomState::new().hash_one(0) % 1000;
    std::thread::sleep(Duration::from_micros(micros));
}

/// Messages by line number, in the order of the file.
type Failures = BTreeMap<usize, String>;

fn note(failures: &mut Failures, line: &Line, result: Result<(), String>) {
    if let Err(message) = result {
        let Line { number, text, .. } = line;
        failures.insert(*number, format!("line {number}: {text}: {message}"));
    }
}

/// Runs flows on several threads.
fn run_concurrently(world: &World, patience: Patience, flows: &[(&Line, &Flow)]) -> Failures {
    let failures = Mutex::new(Failures::new());
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((line, flow)) = flows.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = flow.run(world, patience);
            // A poisoned lock means that another flow panicked, which the scope propagates.
            if let Ok(mut failures) = failures.lock() {
                note(&mut failures, line, result);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL.min(flows.len()) {
            scope.spawn(work);
        }
    });
    failures.into_inner().unwrap_or_default()
}

/// Whether an error means that the peer closed the connection.
fn is_closed_by_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}
