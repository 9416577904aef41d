//! Sends flows through a world. Whether what came back is right, `judge.rs` says.

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

/// Flows sent at the same time. They mostly wait, some of them for drops.
const PARALLEL: usize = 8;

/// Calls made where no endpoint answers, all at the same time: rules are no dice, but one that
/// spoils only the first packet, or every other one, should be seen.
const VERDICT_TRIES: usize = 4;

/// After so many answers that were not enough, callers may be in step with each other.
const IN_STEP: usize = 16;

/// How much a session bears with the machine it runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// What should come has time to come, however busy the machine is.
    Long,
    /// For whoever asks again and again until it is right: no single call is worth a long wait.
    Short,
}

impl Patience {
    /// How long to wait for an answer that should come.
    fn answer(self) -> Duration {
        match self {
            Self::Long => PATIENCE,
            Self::Short => Duration::from_millis(400),
        }
    }

    /// How often a flow may call again because TCP had to send a packet twice. What a rule does to a
    /// call it does to the next ones too; a machine that stood still for a second does not.
    fn second_chances(self) -> usize {
        match self {
            Self::Long => 2,
            Self::Short => 0,
        }
    }
}

/// The flows of one case, step by step: holds the connections that outlive a step.
#[derive(Debug)]
pub struct Session<'w> {
    world: &'w World,
    patience: Patience,
    held: BTreeMap<String, Held>,
}

#[derive(Debug)]
struct Held {
    call: Call,
    endpoint: SocketAddr,
}

impl<'w> Session<'w> {
    /// A session in which nothing is held yet.
    pub fn new(world: &'w World) -> Self {
        Self::with(world, Patience::Long)
    }

    /// The same with another patience.
    pub fn with(world: &'w World, patience: Patience) -> Self {
        Self {
            world,
            patience,
            held: BTreeMap::new(),
        }
    }

    /// Runs the lines of one step and returns a message for each that failed, in their order.
    ///
    /// Kept connections come first, in the order written. Then calls run side by side, except
    /// the sticky ones: those run alone, so that no other call of the same client moves it.
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
        failures.extend(run_side_by_side(self.world, self.patience, &together));
        for (line, flow) in alone {
            note(&mut failures, line, flow.run(self.world, self.patience));
        }
        failures.into_values().collect()
    }

    fn hold(&mut self, name: &str, route: &Route) -> Result<(), String> {
        let caller = enter(self.world, route)?;
        let mut chances = self.patience.second_chances();
        loop {
            let mut call = caller
                .start(route.protocol, route.source(), route.to)
                .map_err(|error| format!("cannot call: {error}"))?;
            match call.finish_at_first_try(Instant::now() + self.patience.answer()) {
                Some(Outcome::Answer(Answer { endpoint, .. })) => {
                    self.held.insert(name.to_owned(), Held { call, endpoint });
                    return Ok(());
                }
                None if chances > 0 => chances -= 1,
                other => {
                    let saw = other.unwrap_or(Outcome::TimedOut);
                    return Err(format!("expected an answer to hold, saw {saw}"));
                }
            }
        }
    }

    fn check(&mut self, name: &str, state: HeldState) -> Result<(), String> {
        let held = self
            .held
            .get_mut(name)
            .ok_or("no connection of this name is held")?;
        let answer = match (state, held.call.again(self.patience.answer())) {
            (HeldState::Closed, Err(error)) if ended(&error) => return Ok(()),
            (HeldState::Closed, Err(error)) => {
                return Err(format!("expected it closed, saw {}", outcome_of(&error)));
            }
            (HeldState::Closed, Ok(_)) => return Err("expected it closed, but it works".to_owned()),
            (_, Err(error)) => {
                return Err(format!("expected it to work, saw {}", outcome_of(&error)));
            }
            (_, Ok(answer)) => answer,
        };
        // A TCP connection cannot change its endpoint; a UDP flow says who answers now.
        let now = answer.map_or(held.endpoint, |answer| answer.endpoint);
        let expected = match state {
            HeldState::AnsweredBy(endpoint) => endpoint,
            HeldState::Works | HeldState::Closed => held.endpoint,
        };
        if now == expected {
            Ok(())
        } else {
            Err(format!("expected {expected}, saw {now}"))
        }
    }
}

impl Flow {
    /// Makes the calls and judges them; the error says what was expected and what was seen.
    pub fn run(&self, world: &World, patience: Patience) -> Result<(), String> {
        let caller = enter(world, &self.route)?;
        let calls = Calls {
            caller,
            route: &self.route,
            patience,
            second_chances: patience.second_chances(),
        };
        match &self.expectation {
            Expectation::Answer {
                endpoints,
                source,
                spread,
            } => {
                let answers = calls.collect_answers(endpoints, spread)?;
                let is_node = |address| world.is_node_address(address);
                judge::sources(&answers, self.route.place, *source, is_node)?;
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

/// The calls of one flow.
struct Calls<'a> {
    caller: Caller<'a>,
    route: &'a Route,
    patience: Patience,
    second_chances: usize,
}

impl Calls<'_> {
    /// Calls until enough was seen. Anything but an answer ends it: what follows would be more of
    /// the same, and slow.
    fn collect_answers(
        mut self,
        endpoints: &[SocketAddr],
        spread: &Spread,
    ) -> Result<Vec<Answer>, String> {
        let mut answers = vec![];
        while judge::wants_more(&answers, endpoints, spread) {
            if answers.len() >= IN_STEP {
                fall_out_of_step();
            }
            match self.seen(1, self.patience.answer()).pop() {
                Some(Outcome::Answer(answer)) => answers.push(answer),
                other => {
                    let (seen, before) = (other.unwrap_or(Outcome::TimedOut), answers.len());
                    return Err(format!(
                        "expected an answer, saw {seen} after {before} answers"
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
            Some(seen) => Err(format!("expected {expected}, saw {seen}")),
            None => Ok(()),
        }
    }

    /// What becomes of some calls at the same time. Where TCP had to send a packet again it is a
    /// drop, once the second chances are used up.
    fn seen(&mut self, count: usize, wait: Duration) -> Vec<Outcome> {
        loop {
            let Route { to, protocol, .. } = *self.route;
            let start = || self.caller.start(protocol, self.route.source(), to);
            let calls: Vec<_> = (0..count).map(|_| start()).collect();
            let deadline = Instant::now() + wait;
            let seen = calls.into_iter().map(|call| match call {
                Ok(mut call) => call.finish_at_first_try(deadline),
                Err(error) => Some(outcome_of(&error)),
            });
            let seen: Vec<_> = seen.collect();
            if self.second_chances == 0 || seen.iter().all(Option::is_some) {
                let drop = |seen: Option<Outcome>| seen.unwrap_or(Outcome::TimedOut);
                return seen.into_iter().map(drop).collect();
            }
            self.second_chances -= 1;
        }
    }
}

impl Route {
    /// The source address to bind to, if any.
    fn source(&self) -> Option<IpAddr> {
        self.from.or_else(|| self.place.source(self.to.ip()))
    }
}

fn enter<'w>(world: &'w World, route: &Route) -> Result<Caller<'w>, String> {
    Caller::enter(world, route.place.role()).map_err(|error| error.to_string())
}

/// Waits for a moment of any length. Endpoints that are taken in turn would else never change places between two callers in step.
fn fall_out_of_step() {
    // The standard library's source of randomness is the seed of its hash tables.
    let micros = RandomState::new().hash_one(0) % 1000;
    std::thread::sleep(Duration::from_micros(micros));
}

/// Messages by line, so that they come in the order of the file whatever ran first.
type Failures = BTreeMap<usize, String>;

fn note(failures: &mut Failures, line: &Line, result: Result<(), String>) {
    if let Err(message) = result {
        let Line { number, text, .. } = line;
        failures.insert(*number, format!("line {number}: {text}: {message}"));
    }
}

/// Runs calls on a few threads.
fn run_side_by_side(world: &World, patience: Patience, flows: &[(&Line, &Flow)]) -> Failures {
    let failures = Mutex::new(Failures::new());
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((line, flow)) = flows.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = flow.run(world, patience);
            // A poisoned lock means another flow panicked; the scope passes that on.
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

/// Whether an error means that the other side ended the connection.
fn ended(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}
