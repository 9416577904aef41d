//! What this process uses, as `/proc` has it.

use std::fs;

/// Ticks of a second in `/proc`. The kernel fixes it for user space on every architecture we are built for.
const TICKS: f64 = 100.0;

/// What this process uses. What cannot be read is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usage {
    /// Seconds on processors.
    pub(super) cpu: Option<f64>,
    /// Open file descriptors.
    pub(super) fds: Option<f64>,
    /// The limit of those.
    pub(super) max_fds: Option<f64>,
    /// Bytes of resident memory.
    pub(super) resident: Option<f64>,
    /// Bytes of virtual memory.
    pub(super) virtual_memory: Option<f64>,
    /// The limit of that; -1 without one.
    pub(super) max_virtual: Option<f64>,
}

impl Usage {
    /// Reads it.
    pub(super) fn read() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        Self {
            cpu: cpu(&stat),
            // Reading the folder opens it, so it lists one too many.
            fds: fs::read_dir("/proc/self/fd")
                .ok()
                .map(|fds| count(fds) - 1.0),
            max_fds: limit(&limits, "Max open files"),
            resident: kilobytes(&status, "VmRSS:"),
            virtual_memory: kilobytes(&status, "VmSize:"),
            max_virtual: limit(&limits, "Max address space"),
        }
    }
}

/// When this process started, in seconds since 1970.
pub(super) fn started() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let kernel = fs::read_to_string("/proc/stat").ok()?;
    let booted: f64 = field(&kernel, "btime")?.parse().ok()?;
    Some(booted + ticks(&stat, 19)? / TICKS)
}

fn cpu(stat: &str) -> Option<f64> {
    Some((ticks(stat, 11)? + ticks(stat, 12)?) / TICKS)
}

/// A field of `/proc/self/stat`, counted from the one after the program's name: that is in brackets and may hold anything.
fn ticks(stat: &str, index: usize) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(index)?.parse().ok()
}

fn kilobytes(status: &str, name: &str) -> Option<f64> {
    let number: f64 = field(status, name)?.parse().ok()?;
    Some(number * 1024.0)
}

/// The soft limit in a line of `/proc/self/limits`.
fn limit(limits: &str, name: &str) -> Option<f64> {
    match field(limits, name)? {
        "unlimited" => Some(-1.0),
        number => number.parse().ok(),
    }
}

/// The first word after a name at the beginning of a line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()
}

fn count(entries: impl Iterator) -> f64 {
    entries.count() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_can_be_read() {
        let usage = Usage::read();
        assert!(usage.cpu.is_some_and(|cpu| cpu >= 0.0));
        assert!(usage.fds.is_some_and(|fds| fds >= 3.0));
        assert!(usage.max_fds > usage.fds);
        assert!(usage.resident.is_some_and(|bytes| bytes > 1e5));
        assert!(usage.virtual_memory > usage.resident);
        assert!(usage.max_virtual.is_some());
        let now = jiff::Timestamp::now().as_second();
        let age = now as f64 - started().unwrap();
        assert!((-2.0..36_000.0).contains(&age), "started {age} s ago");
    }

    #[test]
    fn a_program_may_be_called_anything() {
        let stat = "7 (a ) R 1) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1 0 4200 9 9";
        assert_eq!(cpu(stat), Some(3.0));
        assert_eq!(ticks(stat, 19), Some(4200.0));
        assert_eq!(cpu(""), None);
    }
}
