//! Who else runs on this machine, as far as this process can see.

use std::fmt;
use std::fs;

use super::printable;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// The name it goes by, at most 15 bytes of it.
    pub name: String,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {})", self.name, self.pid)
    }
}

/// The processes there are. In a container that has process numbers of its own these are the container's only.
pub fn running() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut running: Vec<_> = pids.filter_map(process).collect();
    running.sort_by_key(|process| process.pid);
    running
}

/// Whether only some of the machine's processes can be seen: the first one we see is not the machine's.
pub fn are_partly_hidden() -> bool {
    // The first process of a machine is the parent of kernel threads, of which there is always this one.
    let kernel_thread = fs::read_to_string("/proc/2/comm");
    !kernel_thread.is_ok_and(|name| name.trim() == "kthreadd")
}

fn process(pid: u32) -> Option<Process> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(Process {
        pid,
        name: printable(&String::from_utf8_lossy(&name)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs() {
        let ours = std::process::id();
        assert!(running().iter().any(|process| process.pid == ours));
    }
}
