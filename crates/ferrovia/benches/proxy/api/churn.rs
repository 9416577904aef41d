//! Many changes a second for a while: does the daemon keep up, and what does it cost?

use std::thread;
use std::time::{Duration, Instant};

use ferrovia_lab::Pod;

use super::daemon::Node;
use super::objects;
use crate::cluster::Size;
use crate::connect::{CLIENT, who_answers};
use crate::figures::Samples;

/// Slices that change each second.
pub(super) const EACH_SECOND: u32 = 1_000;
/// How often the last service is moved, to see how far the daemon lags behind.
const PROBE_EVERY: Duration = Duration::from_millis(50);
/// Lags are told of the first and of the last part of the time.
const PARTS: u32 = 5;

/// How it went.
pub(super) struct Churn {
    /// From a change to its effect, in the first fifth of the time.
    pub(super) first: Samples,
    /// The same in the last fifth.
    pub(super) last: Samples,
    /// CPU time of the daemon in a second.
    pub(super) cpu: Duration,
    /// Changes that were made in a second.
    pub(super) rate: f64,
}

/// Changes one slice after the other on a thread of its own. Meanwhile the last service is moved to and fro between two pods, and a client
/// calls it until the new one answers.
pub(super) fn churn(node: &Node, size: Size, lasting: Duration) -> anyhow::Result<Churn> {
    let (begin, cpu) = (Instant::now(), node.cpu()?);
    let (changed, lags) = thread::scope(|scope| {
        let changing = scope.spawn(|| change(node, size, begin, lasting));
        let lags = probe(node, size, begin, lasting);
        (changing.join(), lags)
    });
    let changed = changed.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let (cpu, took) = (node.cpu()?.saturating_sub(cpu), begin.elapsed());
    let (first, last) = lags?;
    Ok(Churn {
        first,
        last,
        cpu: cpu.div_f64(took.as_secs_f64()),
        rate: f64::from(changed) / took.as_secs_f64(),
    })
}

/// Answers with the number of changes.
fn change(node: &Node, size: Size, begin: Instant, lasting: Duration) -> anyhow::Result<u32> {
    let others = size.last();
    let mut changed = 0;
    for number in 0.. {
        // One that comes late does not delay the next ones.
        let due = begin + Duration::from_secs(1) / EACH_SECOND * changed;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if begin.elapsed() >= lasting {
            break;
        }
        let round = number / others + 1;
        node.server
            .apply(objects::slice(size, number % others, round))?;
        changed += 1;
    }
    Ok(changed)
}

/// Answers with the lags at the beginning and at the end.
fn probe(
    node: &Node,
    size: Size,
    begin: Instant,
    lasting: Duration,
) -> anyhow::Result<(Samples, Samples)> {
    let _inside = node.world.enter(CLIENT)?;
    let service = size.last();
    let (mut first, mut last) = (Samples::default(), Samples::default());
    let pods = [Pod::C, objects::FIRST_POD].into_iter().cycle();
    for (probe, pod) in (0..).zip(pods) {
        let due = begin + PROBE_EVERY * probe;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let moved = Instant::now();
        let age = moved - begin;
        if age >= lasting {
            break;
        }
        node.server.apply(objects::slice_at_pod(service, pod))?;
        let lag = node.until(moved, || {
            Ok(who_answers(objects::address(service))? == pod.name())
        })?;
        if age < lasting / PARTS {
            first.add(lag);
        } else if age >= lasting - lasting / PARTS {
            last.add(lag);
        }
    }
    Ok((first, last))
}
