//! The loop: takes what comes in, syncs when the pacer says so.

use std::fmt;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use ferrovia_core::family::Family;
use ferrovia_core::store::Event;
use flume::RecvTimeoutError;

use super::engine::Engine;
use super::family::{Outcome, SyncKind};
use super::node_wait::Wait;
use super::observer::Observer;
use super::pacer::{Due, Pace, Pacer};

/// Something the loop should know.
#[derive(Debug)]
pub enum Input {
    /// Objects came, changed or went.
    Events {
        /// What happened to them.
        events: Vec<Event>,
        /// The source could not read all objects yet.
        has_unreadable_objects: bool,
    },
    /// This machine's addresses.
    Addresses(Vec<IpAddr>),
    /// The process that wrote rules here before us has exited.
    Owned,
    /// Somebody may have changed our rules while nobody listened.
    Check,
    /// Somebody else wrote to our tables; to both if the family is not known.
    ForeignChange(Option<Family>),
    /// No more events will come, for this reason.
    SourceEnded(String),
    /// Somebody wants to know something.
    Ask(Question),
    /// Leave everything as it is and end.
    Stop,
    /// The same, with an error.
    Fail(String),
}

/// The capacity of the queue. A source that is faster than the loop has to wait: decoded objects that pile up fragment the heap, and one start
/// in five then kept 10 MiB more than the others.
const QUEUE: usize = 16;

/// The sending side of the loop's queue. While the queue is full, threads block in `send` and tasks wait in `send_async`.
pub type Inputs = flume::Sender<Input>;

/// The receiving side of the loop's queue.
pub type InputReceiver = flume::Receiver<Input>;

/// The only queue between the sources and the loop.
pub fn queue() -> (Inputs, InputReceiver) {
    flume::bounded(QUEUE)
}

/// Something that only the loop knows. It waits for the question to be dealt with, so that must not take long.
pub struct Question(Box<dyn FnOnce(&Engine) + Send + Sync>);

impl Question {
    /// Calls this with the engine, on the loop's thread.
    pub fn new(ask: impl FnOnce(&Engine) + Send + Sync + 'static) -> Self {
        Self(Box::new(ask))
    }
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Question")
    }
}

/// Why the loop ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It was told to.
    Asked,
    /// The source of events has ended, for this reason.
    SourceEnded(String),
    /// Whoever was told about the syncs had enough.
    Satisfied,
    /// It cannot go on, for this reason.
    Failed(String),
}

/// Runs until told to stop.
pub fn run(
    mut engine: Engine,
    inputs: &InputReceiver,
    pace: Pace,
    observer: &mut impl Observer,
) -> Stop {
    let mut pacer = Pacer::new(pace, Instant::now());
    let mut was_ready = false;
    loop {
        let idle = match wait_for_node(&mut engine, &mut pacer) {
            Ok(idle) => idle,
            Err(why) => return Stop::Failed(why),
        };
        match inputs.recv_timeout(idle) {
            Ok(input) => {
                // What has piled up while we were busy is one change. No more than that: who never stops talking must not keep us
                // from writing.
                let mut is_news = false;
                for input in std::iter::once(input).chain(inputs.try_iter().take(QUEUE)) {
                    is_news |= !matches!(input, Input::Ask(_));
                    if let ControlFlow::Break(stop) = take_in(&mut engine, &mut pacer, input) {
                        return stop;
                    }
                }
                if is_news {
                    observer.received(&engine);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Stop::SourceEnded("everyone has gone".into());
            }
        }
        if engine.is_ready()
            && !std::mem::replace(&mut was_ready, true)
            && let Err(why) = observer.ready(&engine)
        {
            return Stop::Failed(why);
        }
        let done = do_what_is_due(&mut engine, &mut pacer, observer);
        let warnings = engine.take_unreported();
        if !warnings.is_empty() {
            observer.warned(&warnings);
        }
        let Some(outcomes) = done else {
            continue;
        };
        outcomes.iter().for_each(log);
        if observer.synced(&engine, &outcomes).is_break() {
            return Stop::Satisfied;
        }
    }
}

/// How long there is nothing to do unless something comes in.
fn wait_for_node(engine: &mut Engine, pacer: &mut Pacer) -> Result<Duration, String> {
    let now = Instant::now();
    let was_ready = engine.is_ready();
    let limit = match engine.look_for_node(now) {
        Wait::Over => None,
        Wait::Until(at) => at,
        Wait::Failed(why) => return Err(why),
    };
    if engine.is_ready() && !was_ready {
        pacer.request();
    }
    let idle = pacer.idle(now);
    Ok(limit.map_or(idle, |at| idle.min(at.saturating_duration_since(now))))
}

/// What was done, if anything was due.
fn do_what_is_due(
    engine: &mut Engine,
    pacer: &mut Pacer,
    observer: &mut impl Observer,
) -> Option<Vec<Outcome>> {
    let now = Instant::now();
    if !engine.is_ready() {
        pacer.not_ready(now);
        return None;
    }
    let due = pacer.due(now)?;
    observer.syncing();
    let outcomes = match due {
        Due::Sync => engine.sync(),
        Due::Check => {
            pacer.checked(now);
            engine.check();
            engine.sync()
        }
        Due::Tidy => engine.tidy(),
    };
    let succeeded = outcomes.iter().all(|outcome| outcome.result.is_ok());
    match due {
        Due::Tidy => pacer.tidied(succeeded, engine.leftovers_after(), Instant::now()),
        Due::Sync | Due::Check => pacer.synced(succeeded, engine.leftovers_after(), Instant::now()),
    }
    Some(outcomes)
}

fn take_in(engine: &mut Engine, pacer: &mut Pacer, input: Input) -> ControlFlow<Stop> {
    match input {
        Input::Events {
            events,
            has_unreadable_objects,
        } => {
            engine.set_unreadable_objects(has_unreadable_objects);
            events.iter().for_each(|event| engine.handle(event));
            pacer.request();
        }
        Input::Addresses(addresses) => {
            engine.set_addresses(addresses);
            pacer.request();
        }
        Input::Owned => {
            engine.own();
            pacer.request();
        }
        Input::Check => {
            engine.check();
            pacer.request();
        }
        Input::ForeignChange(family) => {
            let families = family.map_or(Family::ALL.to_vec(), |family| vec![family]);
            families
                .into_iter()
                .for_each(|family| engine.suspect(family));
            pacer.request_repair(Instant::now());
        }
        Input::SourceEnded(why) => return ControlFlow::Break(Stop::SourceEnded(why)),
        Input::Ask(question) => (question.0)(engine),
        Input::Stop => return ControlFlow::Break(Stop::Asked),
        Input::Fail(why) => return ControlFlow::Break(Stop::Failed(why)),
    }
    ControlFlow::Continue(())
}

fn log(outcome: &Outcome) {
    let Outcome {
        family,
        kind,
        repaired,
        result,
        ..
    } = outcome;
    match result {
        Err(error) => {
            tracing::error!(%family, ?kind, %error, "cannot write the rules; trying again in full");
        }
        Ok(_) if *repaired => {
            tracing::warn!(%family, "somebody changed our rules; they are whole again");
        }
        Ok(written) if *kind == SyncKind::Full && written.changed => {
            tracing::info!(%family, observe = ?written.observe, plan = ?written.plan, apply = ?written.apply, "wrote the rules");
        }
        Ok(written) => tracing::debug!(%family, ?kind, ?written, "in sync"),
    }
}
