//! What a process uses, as the kernel tells it.

use std::fs;
use std::time::Duration;

use anyhow::Context;

/// What a process has in memory, in KiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Now.
    pub(crate) resident: u64,
    /// At most, ever.
    pub(crate) peak: u64,
}

/// What a process has in memory.
pub(crate) fn memory(pid: u32) -> anyhow::Result<Memory> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        number.with_context(|| format!("no {name} in the status of a process"))
    };
    Ok(Memory {
        resident: field("VmRSS:")?,
        peak: field("VmHWM:")?,
    })
}

/// The time that a process's threads were on a CPU, in user mode and in the kernel; those that have ended are not in it. The kernel brings
/// a thread's figure up to date when it goes to sleep, and at every tick of the clock.
pub(crate) fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let folder = format!("/proc/{pid}/task");
    let tasks = fs::read_dir(&folder).with_context(|| format!("cannot read {folder}"))?;
    let mut sum = Duration::ZERO;
    for task in tasks {
        let path = task?.path().join("schedstat");
        // A thread may end while we look.
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        let nanoseconds = text.split_whitespace().next().and_then(|n| n.parse().ok());
        sum += nanoseconds
            .map(Duration::from_nanos)
            .with_context(|| format!("{}: {text:?}", path.display()))?;
    }
    Ok(sum)
}

/// The time that programs which a process started and waited for were on a CPU, to a hundredth of a second.
pub(crate) fn cpu_of_children(pid: u32) -> anyhow::Result<Duration> {
    /// Ticks a second: the kernel tells all programs of this many, whatever it uses itself.
    const TICKS: u64 = 100;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The program's name comes before, in brackets, and may hold anything.
    let fields = stat.rsplit_once(')').context("no name in /proc/PID/stat")?;
    let mut fields = fields.1.split_whitespace().skip(13);
    let mut ticks = || fields.next().and_then(|field| field.parse::<u64>().ok());
    let (user, system) = (ticks(), ticks());
    let sum = user.zip(system).map(|(user, system)| user + system);
    let sum = sum.context("no times of children in /proc/PID/stat")?;
    Ok(Duration::from_millis(sum * 1000 / TICKS))
}
