//! The whole daemon, through the API server: from objects in protobuf over TLS to connections.
//!
//! The lab's API server runs in the process that measures, the daemon is the program as people run it, in the lab's node. Only the daemon's
//! memory and CPU time are counted; the server needs the machine's CPUs, too, all the same.
//!
//! - [`objects`]: a cluster as the API server has it.
//! - [`daemon`]: the measured process, and the server it follows.
//! - [`churn`]: many changes a second for a while. [`edits`]: one after the other, for other modes.
//! - [`phases`]: what the daemon itself says its first sync went to.
//! - [`report`]: the figures as a table.

mod churn;
pub(crate) mod daemon;
pub(crate) mod edits;
pub(crate) mod objects;
pub(crate) mod phases;
pub(crate) mod report;

use std::time::{Duration, Instant};

use ferrovia_lab::Role;

use crate::cluster::Size;
use crate::connect::{CLIENT, is_answered};
use crate::figures::Samples;
use crate::process::Memory;

use churn::Churn;
use daemon::{Launch, Node};

/// How often everything is loaded, each time in a new world by a new process.
const LOADS: usize = 3;
/// How many services are added, one after the other.
const NEW_SERVICES: usize = 100;
/// Memory is looked at this long after the start: what came with the first list has been given back by then.
const SETTLE: Duration = Duration::from_secs(1);
/// Who tries to connect while the proxy starts. What it sends before there are rules is tracked as it is, and connections from the same ports
/// are not translated until the kernel forgets that, two minutes later: so all other calls come from another pod.
const EARLY_CLIENT: Role = Role::PodD;

/// The figures of a size.
pub(crate) struct Figures {
    size: Size,
    /// The start that took neither longest nor shortest.
    start: Start,
    /// The most that any of them took.
    memory: Memory,
    /// Until a new service answered.
    additions: Samples,
    churn: Option<Churn>,
    /// At the very end.
    memory_after: Memory,
}

/// What a start took.
#[derive(Clone, Copy)]
struct Start {
    /// From the start of the process until the last service answered.
    answered: Duration,
    /// CPU time until a second later.
    cpu: Duration,
    /// Memory at that time.
    memory: Memory,
}

/// Measures a size; with many changes a second, for this long, if asked to.
pub(crate) fn measure(size: Size, churn: Option<Duration>) -> anyhow::Result<Figures> {
    let mut starts = Vec::new();
    for _ in 1..LOADS {
        starts.push(start(size)?.1);
    }
    let (node, last) = start(size)?;
    starts.push(last);
    starts.sort_by_key(|start| start.answered);

    let memory = Memory {
        resident: most(&starts, |memory| memory.resident),
        peak: most(&starts, |memory| memory.peak),
    };
    let additions = additions(&node, size)?;
    let churn = churn
        .map(|lasting| churn::churn(&node, size, lasting))
        .transpose()?;
    Ok(Figures {
        size,
        start: starts[LOADS / 2],
        memory,
        additions,
        churn,
        memory_after: node.memory()?,
    })
}

fn most(starts: &[Start], figure: impl Fn(Memory) -> u64) -> u64 {
    let figures = starts.iter().map(|start| figure(start.memory));
    figures.max().unwrap_or_default()
}

/// Starts a daemon in a new world, and waits until the last service answers.
fn start(size: Size) -> anyhow::Result<(Node, Start)> {
    let mut node = Node::new(objects::all(size))?;
    std::thread::sleep(SETTLE);
    let begin = Instant::now();
    node.start(&Launch::nftables())?;
    let answered = {
        let _inside = node.world.enter(EARLY_CLIENT)?;
        node.until(begin, || Ok(is_answered(objects::address(size.last()))))?
    };
    std::thread::sleep(SETTLE);
    let start = Start {
        answered,
        cpu: node.cpu()?,
        memory: node.memory()?,
    };
    Ok((node, start))
}

/// Adds services; the clock runs from the moment the server is given the slice.
fn additions(node: &Node, size: Size) -> anyhow::Result<Samples> {
    let _inside = node.world.enter(CLIENT)?;
    let mut samples = Samples::default();
    for number in size.services..size.services + NEW_SERVICES {
        node.server.apply(objects::service(number))?;
        let begin = Instant::now();
        node.server
            .apply(objects::slice_at_pod(number, objects::FIRST_POD))?;
        samples.add(node.until(begin, || Ok(is_answered(objects::address(number))))?);
    }
    Ok(samples)
}
