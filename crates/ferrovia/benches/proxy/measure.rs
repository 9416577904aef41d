//! Everything that is measured of one size.

use std::time::Duration;

use ferrovia_lab::{Spec, World};

use crate::change::{self, Changes};
use crate::cluster::{Size, TARGET_PORT};
use crate::connect::{self, Latency};
use crate::figures::Samples;
use crate::orders::{Cost, Order};
use crate::process::Memory;
use crate::subject::Subject;

/// How often all is loaded, each time into a new world by a new process.
const LOADS: usize = 5;
/// The kernel removes a world's leftovers in the background; the next measurement waits that out.
const SETTLE: Duration = Duration::from_secs(1);

/// The figures of a size.
pub(crate) struct Figures {
    /// The size.
    pub(crate) size: Size,
    /// The load that took neither longest nor shortest.
    pub(crate) load: Cost,
    /// CPU time of all until then, from the start of the process.
    pub(crate) load_cpu: Duration,
    /// Memory after the load.
    pub(crate) memory: Memory,
    /// Memory at the very end, after all changes and a comparison.
    pub(crate) memory_after: Memory,
    /// Moves to another pod.
    pub(crate) moves: Changes,
    /// Until the new pod answered.
    pub(crate) answered: Samples,
    /// One endpoint more or less.
    pub(crate) resizes: Changes,
    /// A service more.
    pub(crate) additions: Changes,
    /// Comparing the kernel with all that is wanted.
    pub(crate) compare: Cost,
    /// How long connections take.
    pub(crate) latency: Latency,
}

/// Measures a size.
pub(crate) fn measure(size: Size) -> anyhow::Result<Figures> {
    let mut loads = Vec::new();
    for _ in 1..LOADS {
        let (_world, _subject, load) = loaded(size)?;
        loads.push(load);
    }
    let (world, mut subject, load) = loaded(size)?;
    loads.push(load);
    loads.sort_by_key(Cost::total);

    let (load_cpu, memory) = (subject.cpu()?, subject.memory()?);
    let latency = connect::latency(&world, size)?;
    let (moves, answered) = change::moves(&world, &mut subject, size)?;
    let resizes = change::resizes(&mut subject, size)?;
    let additions = change::additions(&mut subject, size)?;
    let compare = subject.obey(Order::Compare)?;
    Ok(Figures {
        size,
        load: loads[LOADS / 2],
        load_cpu,
        memory,
        memory_after: subject.memory()?,
        moves,
        answered,
        resizes,
        additions,
        compare,
        latency,
    })
}

/// A new world whose node has all services.
fn loaded(size: Size) -> anyhow::Result<(World, Subject, Cost)> {
    std::thread::sleep(SETTLE);
    let world = World::new(Spec {
        ports: vec![TARGET_PORT],
        ..Spec::default()
    })?;
    let mut subject = Subject::start(&world)?;
    let cost = subject.obey(Order::Load(size))?;
    std::thread::sleep(SETTLE);
    Ok((world, subject, cost))
}
