//! Under which circumstances the daemon is started.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use ferrovia_lab::cgroup::Cgroup;
use ferrovia_lab::{Role, World};

/// The program.
pub(crate) const FERROVIA: &str = env!("CARGO_BIN_EXE_ferrovia");
/// In front of the iptables tools.
const STAND_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/soak/tool.sh");

/// Beyond which memory and descriptors are refused, and what else is not as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limits {
    None,
    /// Bytes of memory with what the kernel holds for it, as a container's limit counts them.
    Memory(u64),
    Descriptors(u32),
    /// The folders for its log and for temporary files are full.
    FullDisk,
    /// The machine seems to be up for this many seconds more.
    Uptime(u64),
    /// None, but it looks after its rules every second, and says soon that changes wait for too long.
    Hasty,
    /// The same, and it finds tools of ours in front of the system's.
    StandIns,
    /// Its time of day is what a file says.
    OwnClock,
}

/// Files of the daemon's, and of what it is lied to with.
#[derive(Debug)]
pub(crate) struct Files {
    folder: PathBuf,
    /// The control groups of daemons with little memory, by their limit. They are removed with the files, when all daemons have ended.
    groups: Mutex<BTreeMap<u64, Cgroup>>,
}

impl Files {
    /// A folder of its own, with all that is needed but for the configurations.
    pub(crate) fn make(name: &str) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(name);
        let bin = folder.join("bin");
        fs::create_dir_all(folder.join("full")).context("cannot make a temporary folder")?;
        fs::create_dir_all(&bin).context("cannot make a temporary folder")?;
        for tool in ["iptables", "ip6tables"] {
            for ending in ["", "-save", "-restore"] {
                let place = bin.join(format!("{tool}-nft{ending}"));
                symlink(STAND_IN, place).context("cannot put a stand-in into its place")?;
            }
        }
        let files = Self {
            folder,
            groups: Mutex::default(),
        };
        files.set_clock("+0")?;
        Ok(files)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// The configuration of a daemon that is started with these limits.
    pub(crate) fn configuration(&self, limits: Limits) -> PathBuf {
        self.folder.join(match limits {
            Limits::Hasty | Limits::StandIns => "hasty.yaml",
            _ => "config.yaml",
        })
    }

    /// Moves the time of day of a daemon with a clock of its own, against everybody's.
    pub(crate) fn set_clock(&self, offset: &str) -> anyhow::Result<()> {
        // Put into place whole: it is read all the time.
        let new = self.folder.join("clock.new");
        fs::write(&new, format!("{offset}\n"))
            .and_then(|()| fs::rename(&new, self.folder.join("clock")))
            .context("cannot set the clock")
    }

    /// What the stand-ins of the tools do from now on, as `tool.sh` calls it; nothing for what they should.
    pub(crate) fn set_tools(&self, fault: &str) -> anyhow::Result<()> {
        let new = self.folder.join("fault.new");
        fs::write(&new, fault)
            .and_then(|()| fs::rename(&new, self.folder.join("fault")))
            .context("cannot tell the stand-ins what to do")
    }

    /// The daemon's command, without its arguments.
    pub(crate) fn command(&self, world: &World, limits: Limits) -> anyhow::Result<Command> {
        let wrapped = |program: &str, arguments: &[&str]| {
            let mut command = world.exec(Role::Node, program);
            command.args(arguments).arg(FERROVIA);
            command
        };
        Ok(match limits {
            Limits::None | Limits::Hasty => world.exec(Role::Node, FERROVIA),
            Limits::Memory(bytes) => {
                let [shell, words @ ..] = self.group(bytes)?;
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                wrapped(&shell, &words)
            }
            Limits::Descriptors(most) => wrapped("prlimit", &[&format!("--nofile={most}")]),
            Limits::Uptime(more) => {
                let seconds = more.to_string();
                wrapped(
                    "unshare",
                    &["--time", "--monotonic", &seconds, "--boottime", &seconds],
                )
            }
            Limits::FullDisk => {
                // The mount is seen by the daemon alone, and goes with it.
                let script = "mount -t tmpfs -o size=8k none \"$0\"; head -c 1M /dev/zero >\"$0/all\" 2>/dev/null || true; \
                              export TMPDIR=\"$0\"; exec \"$@\" 2>>\"$0/log\"";
                let full = self.folder.join("full");
                wrapped(
                    "unshare",
                    &["--mount", "sh", "-ec", script, &full.display().to_string()],
                )
            }
            Limits::StandIns => {
                let path = std::env::var("PATH").context("there is no search path")?;
                let mut command = world.exec(Role::Node, FERROVIA);
                command
                    .env(
                        "PATH",
                        format!("{}:{path}", self.folder.join("bin").display()),
                    )
                    .env("FAULT", self.folder.join("fault"));
                command
            }
            Limits::OwnClock => {
                let mut command = world.exec(Role::Node, FERROVIA);
                command
                    .env("LD_PRELOAD", fake_clock()?)
                    .env("FAKETIME_TIMESTAMP_FILE", self.folder.join("clock"))
                    .env("FAKETIME_NO_CACHE", "1")
                    // Nobody can set this clock on a real machine either.
                    .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
                    .env("NO_FAKE_STAT", "1");
                command
            }
        })
    }
}

impl Files {
    /// How to run a program in the control group with this limit.
    fn group(&self, bytes: u64) -> anyhow::Result<[String; 4]> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let group = match groups.entry(bytes) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let name = self.folder.file_name().unwrap_or_default();
                place.insert(Cgroup::with_memory(&name.to_string_lossy(), bytes)?)
            }
        };
        Ok(group.enter())
    }

    /// Daemons with little memory that were killed for want of more.
    pub(crate) fn memory_kills(&self) -> anyhow::Result<u64> {
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let kills = groups.values().map(Cgroup::kills);
        Ok(kills.sum::<std::io::Result<u64>>()?)
    }

    /// The most memory that daemons with little of it had at once, with what the kernel held for them.
    pub(crate) fn memory_peak(&self) -> anyhow::Result<u64> {
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let peaks: std::io::Result<Vec<u64>> = groups.values().map(Cgroup::peak).collect();
        Ok(peaks?.into_iter().max().unwrap_or_default())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// libfaketime, in the folder of this machine's architecture.
fn fake_clock() -> anyhow::Result<PathBuf> {
    let folders = fs::read_dir("/usr/lib").context("cannot look for libfaketime")?;
    let found = folders
        .filter_map(Result::ok)
        .map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"))
        .find(|library| library.exists());
    found.context("there is no libfaketime in /usr/lib: install the package faketime")
}
