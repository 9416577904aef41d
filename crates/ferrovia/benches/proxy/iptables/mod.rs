//! The iptables mode: the whole daemon, through the API server, with each of the two kinds of iptables tools.
//!
//! The daemon is measured as in [`crate::api`]. Beside it stands what the tools need by themselves, in the same run ([`floor`]): they are
//! programs of others, and no proxy that uses them is faster than they are.

mod floor;
mod report;

use std::time::{Duration, Instant};

use ferrovia_host::iptables::Backend;
use ferrovia_lab::Role;

use crate::api::daemon::{Launch, Node, Program};
use crate::api::edits;
use crate::api::objects;
use crate::api::phases::Phases;
use crate::cluster::Size;
use crate::connect::is_answered;
use crate::figures::Samples;
use crate::page::{Mode, Page};
use crate::process::Memory;
use crate::{COMPARED, Extent, TINY};

use floor::Floor;

/// The kinds of tools.
const BACKENDS: [Backend; 2] = [Backend::Nft, Backend::Legacy];
/// How often something is changed, and how often something is added.
const CHANGES: usize = 100;
/// Memory is looked at this long after the start.
const SETTLE: Duration = Duration::from_secs(1);
/// Who tries to connect while the proxy starts; all other calls come from another pod. See [`crate::api`].
const EARLY_CLIENT: Role = Role::PodD;

/// The figures of a size with one kind of tools.
struct Figures {
    backend: Backend,
    size: Size,
    /// From the start of the process until the last service answered.
    start: Duration,
    /// What the first sync's time went to.
    phases: Phases,
    /// From a change of an endpoint until the new one answered.
    changes: Samples,
    /// From a new service until it answered.
    additions: Samples,
    /// When all that was done.
    memory: Memory,
    floor: Floor,
}

impl Figures {
    /// From the objects in memory to the end of the restoring tool.
    fn full_load(&self) -> Duration {
        self.phases.total()
    }
}

/// Measures, and writes the section of the page.
pub(crate) fn section(extent: Extent, page: &mut Page) -> anyhow::Result<()> {
    let (size, changes) = match extent {
        Extent::Tiny => (TINY, 2),
        Extent::Quick => (Size::new(1_000, 2), CHANGES),
        Extent::Full => (Size::new(10_000, 2), CHANGES),
    };
    let mut results = Vec::new();
    for backend in BACKENDS {
        eprintln!("measuring {size} in the iptables mode with {backend} ...");
        results.push(measure(size, backend, changes)?);
    }
    page.write(&report::section(&results));
    for figures in results.iter().filter(|f| f.size == COMPARED) {
        page.compare(Mode {
            name: format!("iptables, {}", figures.backend),
            load: figures.full_load(),
            change: figures.changes.p50(),
        });
    }
    Ok(())
}

fn measure(size: Size, backend: Backend, changes: usize) -> anyhow::Result<Figures> {
    let mut node = Node::new(objects::all(size))?;
    let launch = Launch {
        program: Program::Ferrovia,
        mode: "iptables".to_owned(),
        // The tools' lock is the whole machine's unless they are told otherwise.
        environment: vec![("XTABLES_LOCKFILE", node.file("xtables.lock"))],
    };
    node.use_tools(&launch, backend.as_str())?;
    std::thread::sleep(SETTLE);
    let begin = Instant::now();
    node.start(&launch)?;
    let start = {
        let _inside = node.world.enter(EARLY_CLIENT)?;
        node.until(begin, || Ok(is_answered(objects::address(size.last()))))?
    };
    let phases = Phases::of_first_sync(&node)?;
    let floor = floor::measure(&node, &launch, size, backend, changes)?;
    let additions = edits::additions(&node, size, changes)?;
    let changes = edits::changes(&node, size, changes)?;
    std::thread::sleep(SETTLE);
    Ok(Figures {
        backend,
        size,
        start,
        phases,
        changes,
        additions,
        memory: node.memory()?,
        floor,
    })
}
