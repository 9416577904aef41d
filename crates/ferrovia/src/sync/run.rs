//! The loop: takes what comes in, syncs when the pacer says so.

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use ferrovia_core::family::Family;
use ferrovia_core::store::Event;

use super::engine::{Engine, Outcome, SyncKind};
use super::pacer::{Due, Pace, Pacer};

/// Something the loop should know.
#[derive(Debug)]
pub enum Input {
    /// Objects came, changed or went.
    Events {
        /// What happened to them.
        events: Vec<Event>,
        /// The source could not read all objects yet.
        is_partial: bool,
    },
    /// This machine's addresses.
    Addresses(Vec<IpAddr>),
    /// Somebody may have changed our rules while nobody listened.
    Check,
    /// Somebody else wrote to our tables; to both if the family is not known.
    ForeignChange(Option<Family>),
    /// No more events will come, for this reason.
    SourceEnded(String),
    /// Leave everything as it is and end.
    Stop,
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
}

/// Runs until told to stop. `report` hears of every sync.
pub fn run(
    mut engine: Engine,
    inputs: &Receiver<Input>,
    pace: Pace,
    mut report: impl FnMut(&[Outcome]) -> ControlFlow<()>,
) -> Stop {
    let mut pacer = Pacer::new(pace, Instant::now());
    loop {
        match inputs.recv_timeout(pacer.idle(Instant::now())) {
            Ok(input) => {
                // What has piled up while we were busy is one change.
                for input in std::iter::once(input).chain(inputs.try_iter()) {
                    if let ControlFlow::Break(stop) = take_in(&mut engine, &mut pacer, input) {
                        return stop;
                    }
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Stop::SourceEnded("everyone has gone".into());
            }
        }
        let outcomes = do_what_is_due(&mut engine, &mut pacer);
        outcomes.iter().for_each(log);
        if report(&outcomes).is_break() {
            return Stop::Satisfied;
        }
    }
}

fn do_what_is_due(engine: &mut Engine, pacer: &mut Pacer) -> Vec<Outcome> {
    let now = Instant::now();
    let due = pacer.due(now);
    if !engine.is_ready() {
        pacer.not_ready(now);
        return Vec::new();
    }
    let outcomes = match due {
        None => return Vec::new(),
        Some(Due::Sync) => engine.sync(),
        Some(Due::Check) => {
            pacer.checked(now);
            engine.check();
            engine.sync()
        }
        Some(Due::Tidy) => engine.tidy(),
    };
    let succeeded = outcomes.iter().all(|outcome| outcome.result.is_ok());
    match due {
        Some(Due::Tidy) => pacer.tidied(succeeded, engine.has_leftovers(), Instant::now()),
        _ => pacer.synced(succeeded, engine.has_leftovers(), Instant::now()),
    }
    outcomes
}

fn take_in(engine: &mut Engine, pacer: &mut Pacer, input: Input) -> ControlFlow<Stop> {
    match input {
        Input::Events { events, is_partial } => {
            engine.set_partial(is_partial);
            events.iter().for_each(|event| engine.handle(event));
            pacer.request();
        }
        Input::Addresses(addresses) => {
            engine.set_addresses(addresses);
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
        Input::Stop => return ControlFlow::Break(Stop::Asked),
    }
    ControlFlow::Continue(())
}

fn log(outcome: &Outcome) {
    let Outcome {
        family,
        kind,
        repaired,
        result,
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
