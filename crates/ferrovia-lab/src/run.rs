//! Sends flows through a world. Whether what came back is right, `judge.rs` says.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::client::{Answer, Call, Caller, DROP_WAIT, Outcome, PATIENCE, outcome_of};
use crate::flow::{Action, Expectation, Flow, HeldState, Line, Route, Spread};
use crate::judge;
use crate::world::World;

/// Flows sent at the same time. They mostly wait, some of them for drops.
const PARALLEL: usize = 8;

/// Calls made where no endpoint answers, all at the same time: rules are no dice, but one that
/// spoils only the first packet, or every other one, should be seen.
const VERDICT_TRIES: usize = 4;

/// The flows of one case, step by step: holds the connections that outlive a step.
#[derive(Debug)]
pub struct Session<'w> {
    world: &'w World,
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
        Self {
            world,
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
        failures.extend(run_side_by_side(self.world, &together));
        for (line, flow) in alone {
            note(&mut failures, line, flow.run(self.world));
        }
        failures.into_values().collect()
    }

    fn hold(&mut self, name: &str, route: &Route) -> Result<(), String> {
        let caller = enter(self.world, route)?;
        let mut call = caller
            .start(route.protocol, route.source(), route.to)
            .map_err(|error| format!("cannot call: {error}"))?;
        match call.finish(Instant::now() + PATIENCE) {
            Outcome::Answer(Answer { endpoint, .. }) => {
                self.held.insert(name.to_owned(), Held { call, endpoint });
                Ok(())
            }
            other => Err(format!("expected an answer to hold, saw {other}")),
        }
    }

    fn check(&mut self, name: &str, state: HeldState) -> Result<(), String> {
        let held = self
            .held
            .get_mut(name)
            .ok_or("no connection of this name is held")?;
        let answer = match (state, held.call.again(PATIENCE)) {
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
    pub fn run(&self, world: &World) -> Result<(), String> {
        let caller = enter(world, &self.route)?;
        match &self.expectation {
            Expectation::Answer {
                endpoints,
                source,
                spread,
            } => {
                let answers = self.collect_answers(&caller, endpoints, spread)?;
                let is_node = |address| world.is_node_address(address);
                judge::sources(&answers, self.route.place, *source, is_node)?;
                let reached: Vec<SocketAddr> =
                    answers.iter().map(|answer| answer.endpoint).collect();
                judge::spread(&reached, endpoints, spread)
            }
            Expectation::Refused => {
                self.expect_verdict(&caller, "refused", |seen| *seen == Outcome::Refused)
            }
            Expectation::Dropped => {
                self.expect_verdict(&caller, "dropped", |seen| *seen == Outcome::TimedOut)
            }
            Expectation::Unreachable => self.expect_verdict(&caller, "unreachable", |seen| {
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

    /// Calls until enough was seen. Anything but an answer ends it: what follows would be more of
    /// the same, and slow.
    fn collect_answers(
        &self,
        caller: &Caller<'_>,
        endpoints: &[SocketAddr],
        spread: &Spread,
    ) -> Result<Vec<Answer>, String> {
        let mut answers = vec![];
        while judge::wants_more(&answers, endpoints, spread) {
            let Route { to, protocol, .. } = self.route;
            match caller.connect(protocol, self.route.source(), to, PATIENCE) {
                Outcome::Answer(answer) => answers.push(answer),
                other => {
                    let before = answers.len();
                    return Err(format!(
                        "expected an answer, saw {other} after {before} answers"
                    ));
                }
            }
        }
        Ok(answers)
    }

    fn expect_verdict(
        &self,
        caller: &Caller<'_>,
        expected: &str,
        fits: impl Fn(&Outcome) -> bool,
    ) -> Result<(), String> {
        let Route { to, protocol, .. } = self.route;
        let wait = if self.expectation == Expectation::Dropped {
            DROP_WAIT
        } else {
            PATIENCE
        };
        let calls: Vec<_> = (0..VERDICT_TRIES)
            .map(|_| caller.start(protocol, self.route.source(), to))
            .collect();
        let deadline = Instant::now() + wait;
        for call in calls {
            let seen = match call {
                Ok(mut call) => call.finish(deadline),
                Err(error) => outcome_of(&error),
            };
            if !fits(&seen) {
                return Err(format!("expected {expected}, saw {seen}"));
            }
        }
        Ok(())
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

/// Messages by line, so that they come in the order of the file whatever ran first.
type Failures = BTreeMap<usize, String>;

fn note(failures: &mut Failures, line: &Line, result: Result<(), String>) {
    if let Err(message) = result {
        let Line { number, text, .. } = line;
        failures.insert(*number, format!("line {number}: {text}: {message}"));
    }
}

/// Runs calls on a few threads.
fn run_side_by_side(world: &World, flows: &[(&Line, &Flow)]) -> Failures {
    let failures = Mutex::new(Failures::new());
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((line, flow)) = flows.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = flow.run(world);
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
