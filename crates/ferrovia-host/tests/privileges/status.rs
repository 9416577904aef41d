//! Capabilities as `/proc` shows them, without the code under test.

use std::fs;
use std::process::Command;

/// Numbers as in the kernel's header.
pub(crate) const NET_ADMIN: u64 = 1 << 12;
pub(crate) const NET_RAW: u64 = 1 << 13;

/// A thread's sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) inheritable: u64,
    pub(crate) permitted: u64,
    pub(crate) effective: u64,
    pub(crate) bounding: u64,
    pub(crate) ambient: u64,
    pub(crate) no_new_privs: bool,
}

impl Status {
    /// The same capabilities in every set, and no way to more.
    pub(crate) fn only(capabilities: u64) -> Self {
        Self {
            inheritable: capabilities,
            permitted: capabilities,
            effective: capabilities,
            bounding: capabilities,
            ambient: capabilities,
            no_new_privs: true,
        }
    }

    /// Of the calling thread.
    pub(crate) fn of_this_thread() -> Self {
        Self::parse(&fs::read_to_string("/proc/thread-self/status").unwrap())
    }

    /// Of all threads of this process.
    pub(crate) fn of_all_threads() -> Vec<Self> {
        fs::read_dir("/proc/self/task")
            .unwrap()
            .map(|task| task.unwrap().path().join("status"))
            .map(|path| Self::parse(&fs::read_to_string(path).unwrap()))
            .collect()
    }

    /// Of a program that the calling thread starts.
    pub(crate) fn of_a_program() -> Self {
        let output = Command::new("cat").arg("/proc/self/status").output();
        Self::parse(std::str::from_utf8(&output.unwrap().stdout).unwrap())
    }

    fn parse(status: &str) -> Self {
        let field = |name: &str| {
            let mut values = status.lines().filter_map(|line| line.strip_prefix(name));
            values
                .next()
                .unwrap_or_else(|| panic!("no {name} in {status}"))
                .trim()
        };
        let set = |name| u64::from_str_radix(field(name), 16).unwrap();
        Self {
            inheritable: set("CapInh:"),
            permitted: set("CapPrm:"),
            effective: set("CapEff:"),
            bounding: set("CapBnd:"),
            ambient: set("CapAmb:"),
            no_new_privs: field("NoNewPrivs:") == "1",
        }
    }
}
