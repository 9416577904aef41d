//! A cgroup with a memory limit, as containers have one. Kernel memory of its processes counts, too, such as the elements of nftables
//! sets.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A cgroup that is removed when this is dropped. Its processes must have exited by then.
#[derive(Debug)]
pub struct Cgroup {
    folder: PathBuf,
    is_v2: bool,
}

impl Cgroup {
    /// Creates a cgroup whose processes may use this many bytes in total.
    ///
    /// # Errors
    /// If this machine has no usable memory controller.
    pub fn with_memory(name: &str, bytes: u64) -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let (root, is_v2) = memory_root(&mounts).ok_or_else(|| {
            io::Error::other("cannot limit memory: the cgroup memory controller is not mounted")
        })?;
        let folder = root.join(format!("{name}-{}", std::process::id()));
        if is_v2 {
            // It may be enabled already.
            let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
        }
        let shown = folder.clone();
        let failed = |what: &str, error: &io::Error| {
            io::Error::new(
                error.kind(),
                format!("cannot {what} {}: {error}", shown.display()),
            )
        };
        fs::create_dir(&folder).map_err(|error| failed("create the cgroup", &error))?;
        let group = Self { folder, is_v2 };
        let limit = if is_v2 {
            "memory.max"
        } else {
            "memory.limit_in_bytes"
        };
        let set = fs::write(group.folder.join(limit), bytes.to_string());
        set.map_err(|error| failed("limit the memory of", &error))?;
        Ok(group)
    }

    /// The arguments of a shell that joins the cgroup and then executes the arguments that follow.
    pub fn enter(&self) -> [String; 4] {
        let procs = self.folder.join("cgroup.procs");
        let script = "echo $$ >\"$0\" && exec \"$@\"";
        ["sh", "-c", script, &procs.display().to_string()].map(String::from)
    }

    /// The peak memory usage in bytes.
    ///
    /// # Errors
    /// If the kernel does not report it.
    pub fn peak(&self) -> io::Result<u64> {
        let file = if self.is_v2 {
            "memory.peak"
        } else {
            "memory.max_usage_in_bytes"
        };
        let text = fs::read_to_string(self.folder.join(file))?;
        text.trim().parse().map_err(io::Error::other)
    }

    /// How many processes the OOM killer killed.
    ///
    /// # Errors
    /// If the kernel does not report it.
    pub fn kills(&self) -> io::Result<u64> {
        let file = if self.is_v2 {
            "memory.events"
        } else {
            "memory.oom_control"
        };
        let text = fs::read_to_string(self.folder.join(file))?;
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        let kills = kills.ok_or_else(|| io::Error::other("memory.events has no oom_kill"))?;
        kills.trim().parse().map_err(io::Error::other)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

/// The root of cgroups with memory limits, and whether it is cgroup v2.
fn memory_root(mounts: &str) -> Option<(PathBuf, bool)> {
    let fields = |line: &str| {
        let mut fields = line.split(' ').skip(1).map(str::to_owned);
        Some((fields.next()?, fields.next()?, fields.next()?))
    };
    mounts
        .lines()
        .filter_map(fields)
        .find_map(|(at, kind, options)| {
            let root = Path::new(&at).to_path_buf();
            let has_memory = || {
                let controllers = fs::read_to_string(root.join("cgroup.controllers"));
                controllers.is_ok_and(|all| all.split_whitespace().any(|it| it == "memory"))
            };
            match &*kind {
                "cgroup" if options.split(',').any(|option| option == "memory") => {
                    Some((root, false))
                }
                "cgroup2" if has_memory() => Some((root, true)),
                _ => None,
            }
        })
}
