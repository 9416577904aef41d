//! The ipvs mode: the whole daemon, through the API server, in user-mode Linux, which has IPVS wherever this is run.
//!
//! The daemon is measured as in [`crate::api`], and beside it, in the same run, what `ipvsadm` and `ipset` need to restore the same state
//! ([`floor`]). This binary boots the guest and is the program that measures inside. A guest has one slow core for everybody, so times are
//! to be compared with each other, and not with those of other sections.

mod floor;
mod report;

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use ferrovia_host::iptables::Backend;
use ferrovia_lab::Role;
use ferrovia_lab::uml::{Job, Machine};

use crate::api::daemon::{Launch, Node, Program};
use crate::api::edits;
use crate::api::objects;
use crate::api::phases::Phases;
use crate::cluster::Size;
use crate::connect::is_answered;
use crate::figures::Samples;
use crate::process::Memory;
use crate::{Extent, TINY};

use floor::Floor;

/// The argument that makes this binary the one that measures in the guest.
pub(crate) const INSIDE: &str = "--inside-user-mode-linux";

/// What a cluster's growth is told by.
const SMALL: Size = Size::new(100, 2);
const LARGE: Size = Size::new(10_000, 2);
/// How often something is changed, and how often something is added.
const CHANGES: usize = 60;
/// The daemon, the API server and ten thousand services of each are in it.
const MEMORY: &str = "2G";
/// Memory is looked at this long after the start.
const SETTLE: Duration = Duration::from_secs(1);
/// Who tries to connect while the proxy starts; all other calls come from another pod. See [`crate::api`].
const EARLY_CLIENT: Role = Role::PodD;

/// The figures of a size.
struct Figures {
    size: Size,
    /// From the start of the process until the last service answered.
    start: Duration,
    /// What the first sync's time went to.
    phases: Phases,
    /// From a change of an endpoint until the new one answered.
    changes: Samples,
    /// Programs that were started while these changes were made, by anybody.
    started: u64,
    /// From a new service until it answered.
    additions: Samples,
    /// When all that was done.
    memory: Memory,
    floor: Floor,
}

/// Boots a guest, and answers with the section of the page that was measured there.
pub(crate) fn section() -> anyhow::Result<String> {
    eprintln!("measuring the ipvs mode in user-mode Linux ...");
    let arguments = std::env::args().skip(1).chain([INSIDE.to_owned()]);
    let job = Job::new(std::env::current_exe()?, arguments)?;
    let mut printed = Vec::new();
    let code = Machine::default().memory(MEMORY).run(&job, &mut printed)?;
    let printed = String::from_utf8_lossy(&printed).into_owned();
    ensure!(code == 0, "measuring inside failed: {printed}");
    Ok(printed)
}

/// Measures, inside, and prints the section. Nothing else may be printed.
pub(crate) fn inside(extent: Extent) -> anyhow::Result<()> {
    let (sizes, changes) = match extent {
        Extent::Tiny => (&[TINY][..], 2),
        Extent::Quick => (&[SMALL, Size::new(1_000, 2)][..], CHANGES),
        Extent::Full => (&[SMALL, LARGE][..], CHANGES),
    };
    let results = sizes.iter().map(|size| measure(*size, changes));
    let results = results.collect::<anyhow::Result<Vec<_>>>()?;
    print!("{}", report::section(&results));
    Ok(())
}

fn measure(size: Size, times: usize) -> anyhow::Result<Figures> {
    let mut node = Node::new(objects::all(size))?;
    let launch = Launch {
        program: Program::Ferrovia,
        mode: "ipvs".to_owned(),
        environment: vec![("XTABLES_LOCKFILE", node.file("xtables.lock"))],
    };
    // The guest's kernel has only this kind's rules.
    node.use_tools(&launch, Backend::Legacy.as_str())?;
    std::thread::sleep(SETTLE);
    let begin = Instant::now();
    node.start(&launch)?;
    let start = {
        let _inside = node.world.enter(EARLY_CLIENT)?;
        node.until(begin, || Ok(is_answered(objects::address(size.last()))))?
    };
    let phases = Phases::of_first_sync(&node)?;
    let floor = floor::measure(&node)?;
    let additions = edits::additions(&node, size, times)?;
    let before = processes()?;
    let changes = edits::changes(&node, size, times)?;
    let started = processes()? - before;
    std::thread::sleep(SETTLE);
    Ok(Figures {
        size,
        start,
        phases,
        changes,
        started,
        additions,
        memory: node.memory()?,
        floor,
    })
}

/// How many processes and threads the guest's kernel has ever started.
fn processes() -> anyhow::Result<u64> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let count = stat
        .lines()
        .find_map(|line| line.strip_prefix("processes "));
    count
        .and_then(|count| count.trim().parse().ok())
        .context("the kernel does not say how many processes it has started")
}
