//! Who else runs on this machine, as far as this process can see.

use std::fmt;
use std::fs;
use std::io::Read as _;

use super::printable;

/// More of a command line is not read.
const LONGEST_LINE: u64 = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
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

/// Those of them that have the network of this thread. Seeing this of other users' processes requires privileges.
pub fn of_this_network() -> Vec<Process> {
    let Ok(ours) = fs::read_link("/proc/thread-self/ns/net") else {
        return Vec::new();
    };
    let mut running = running();
    running.retain(|process| {
        let theirs = fs::read_link(format!("/proc/{}/ns/net", process.pid));
        theirs.is_ok_and(|theirs| theirs == ours)
    });
    running
}

/// The first words a process was started with after its own name; nothing if that cannot be seen.
pub fn arguments(process: &Process) -> Vec<String> {
    let path = format!("/proc/{}/cmdline", process.pid);
    let mut line = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(LONGEST_LINE).read_to_end(&mut line));
    if read.is_err() {
        return Vec::new();
    }
    let words = line.split(|byte| *byte == 0).skip(1);
    words
        .filter(|word| !word.is_empty())
        .map(|word| printable(&String::from_utf8_lossy(word)))
        .collect()
}

/// Whether only some of the machine's processes can be seen: in a container with numbers of its own, or without rights.
pub fn are_partly_hidden() -> bool {
    // The machine's second process is the parent of all kernel threads. It has the network that every other process was born with.
    let kernel_thread = fs::read_to_string("/proc/2/comm");
    let is_there = kernel_thread.is_ok_and(|name| name.trim() == "kthreadd");
    !is_there || fs::read_link("/proc/2/ns/net").is_err()
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
        let here = of_this_network();
        let this = here.iter().find(|process| process.pid == ours).unwrap();
        assert_eq!(arguments(this).len(), std::env::args().count() - 1);
    }
}
