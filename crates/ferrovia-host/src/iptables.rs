//! Removing what a kube-proxy left behind in iptables, with the iptables tools of the node.
//!
//! A kernel holds two sets of iptables rules side by side, of the nft and of the legacy tools, for each address family. A node may have rules in
//! any of the four, so each is looked at with the tool that belongs to it. What is kube-proxy's and in which order it goes is decided in
//! `ferrovia-core`; [`remove_leftovers`] blocks while the tools run, so the daemon calls it from a thread that may wait.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ferrovia_core::dialect::iptables::{self, Commits};
use ferrovia_core::family::Family;

use crate::exec;

/// How long one tool may run. The slowest case measured, 10,000 services with the nft tool, takes a few seconds.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// What was looked at, and what was removed there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// One entry for each tool found. If there is none, nobody knows whether there are leftovers.
    pub tools: Vec<RemovedWith>,
}

/// What one tool found and removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedWith {
    /// The tool's name, such as `iptables-nft`.
    pub tool: String,
    /// How many chains were deleted.
    pub chains: usize,
    /// How many rules were deleted, in the chains and as jumps to them.
    pub rules: usize,
    /// Chains that were only emptied because rules of others jump to them, as `table chain`.
    pub kept: Vec<String>,
}

impl fmt::Display for RemovedWith {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            tool,
            chains,
            rules,
            kept,
        } = self;
        write!(f, "{chains} chains and {rules} rules of {tool}")?;
        if kept.is_empty() {
            Ok(())
        } else {
            write!(
                f,
                "; emptied only, because others jump to them: {}",
                kept.join(", ")
            )
        }
    }
}

impl RemovedWith {
    /// There was nothing to remove.
    pub fn is_empty(&self) -> bool {
        self.chains == 0 && self.rules == 0 && self.kept.is_empty()
    }
}

/// Some tool failed. The others were run all the same.
#[derive(Debug, thiserror::Error)]
#[error("cannot remove kube-proxy's iptables rules: {}", Listed(failures))]
pub struct Error {
    /// What was done by the tools that did not fail.
    pub removed: Removed,
    /// What failed; not empty.
    pub failures: Vec<exec::Error>,
}

/// Removes kube-proxy's chains and the jumps to them from all iptables rulesets of this network namespace.
///
/// Each ruleset changes by whole transactions, jumps first, so a failure in between leaves chains that no packet enters, and the next call
/// removes those. A kube-proxy that is still running would write its rules again.
///
/// # Errors
/// If some tool fails; says what the others did.
pub fn remove_leftovers() -> Result<Removed, Error> {
    remove_with(&tools_on(&env::var_os("PATH").unwrap_or_default()))
}

fn remove_with(tools: &[Tool]) -> Result<Removed, Error> {
    let mut removed = Removed::default();
    let mut failures = Vec::new();
    for tool in tools {
        match tool.remove_leftovers() {
            Ok(done) => removed.tools.push(done),
            Err(failure) => failures.push(failure),
        }
    }
    if failures.is_empty() {
        Ok(removed)
    } else {
        Err(Error { removed, failures })
    }
}

/// Which of the kernel's two rulesets a tool works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backend {
    /// The tables of nf_tables that go by iptables' names.
    Nft,
    /// The tables of x_tables.
    Legacy,
    /// The one the distribution or the administrator chose; which, the tool does not say by its name.
    Chosen,
}

/// A pair of programs that save and restore one family's rules of one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tool {
    family: Family,
    backend: Backend,
    save: PathBuf,
}

/// The tools in the directories of a search path. The unspecific name is taken only if a family has neither of the specific ones: it is one
/// of them by another name.
fn tools_on(path: &OsStr) -> Vec<Tool> {
    let mut tools = Vec::new();
    for family in Family::ALL {
        let found = |backend| Tool::on(path, family, backend);
        let specific: Vec<_> = [Backend::Nft, Backend::Legacy]
            .into_iter()
            .filter_map(found)
            .collect();
        if specific.is_empty() {
            tools.extend(found(Backend::Chosen));
        } else {
            tools.extend(specific);
        }
    }
    tools
}

impl Tool {
    fn on(path: &OsStr, family: Family, backend: Backend) -> Option<Self> {
        let program = format!("{}-save", name(family, backend));
        let mut candidates = env::split_paths(path).map(|folder| folder.join(&program));
        let save = candidates.find(|candidate| is_executable(candidate))?;
        Some(Self {
            family,
            backend,
            save,
        })
    }

    fn remove_leftovers(&self) -> Result<RemovedWith, exec::Error> {
        let mut done = RemovedWith {
            tool: name(self.family, self.backend),
            chains: 0,
            rules: 0,
            kept: Vec::new(),
        };
        if self.backend == Backend::Legacy && !has_legacy_tables(self.family) {
            return Ok(done);
        }
        let save = exec::run::<&str>(&self.save, &[], String::new(), TIME_LIMIT)?;
        let save = String::from_utf8_lossy(&save);
        if let Some(removal) = iptables::leftovers(&save) {
            self.restore(removal.restore_input(self.commits()))?;
            done.chains = removal.chains();
            done.rules = removal.rules();
            done.kept = removal
                .kept()
                .map(|(table, chain)| format!("{table} {chain}"))
                .collect();
        }
        Ok(done)
    }

    fn restore(&self, input: String) -> Result<(), exec::Error> {
        // The twin lives in the same folder; another folder's may be of another version.
        let restore = self
            .save
            .with_file_name(format!("{}-restore", name(self.family, self.backend)));
        let args: &[&str] = match self.backend {
            // The nft tool's transactions are the kernel's: there is no lock to wait for.
            Backend::Nft => &["--noflush"],
            // One that is the nft tool after all takes the option and ignores it.
            Backend::Legacy | Backend::Chosen => &["--noflush", "-w", "5"],
        };
        exec::run(&restore, args, input, TIME_LIMIT).map(drop)
    }

    fn commits(&self) -> Commits {
        match self.backend {
            Backend::Nft => Commits::Many,
            // Right for both, if slow where the chosen one is nft's.
            Backend::Legacy | Backend::Chosen => Commits::One,
        }
    }
}

/// What a tool's programs are called, without `-save` and `-restore`.
fn name(family: Family, backend: Backend) -> String {
    let tool = match family {
        Family::V4 => "iptables",
        Family::V6 => "ip6tables",
    };
    match backend {
        Backend::Nft => format!("{tool}-nft"),
        Backend::Legacy => format!("{tool}-legacy"),
        Backend::Chosen => tool.to_owned(),
    }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Whether this network namespace has any table of x_tables.
///
/// Asked before the legacy tool is run, because that could load kernel modules for tables nobody uses. A list that is there but cannot be
/// read counts as tables: the tool shall say what is wrong.
fn has_legacy_tables(family: Family) -> bool {
    // Not /proc/net, which is the view of the process's first thread: we may be in another namespace than that.
    let list = match family {
        Family::V4 => "/proc/thread-self/net/ip_tables_names",
        Family::V6 => "/proc/thread-self/net/ip6_tables_names",
    };
    match fs::read(list) {
        Ok(names) => !names.is_empty(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Failures, one after the other.
struct Listed<'a>(&'a [exec::Error]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, failure) in self.0.iter().enumerate() {
            write!(f, "{}{failure}", if n == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder with links to a program under other names; removed at the end of the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(test: &str, links: &[(&str, &str)]) -> Self {
            let folder = env::temp_dir().join(format!("ferrovia-{test}-{}", std::process::id()));
            fs::create_dir(&folder).unwrap();
            for (link, program) in links {
                symlink(program, folder.join(link)).unwrap();
            }
            Self(folder)
        }

        fn tools(&self) -> Vec<String> {
            tools_on(self.0.as_os_str())
                .iter()
                .map(|tool| name(tool.family, tool.backend))
                .collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn specific_tools_are_preferred_family_by_family() {
        let links = ["iptables-save", "iptables-nft-save", "ip6tables-save"]
            .map(|link| (link, "/bin/true"));
        assert_eq!(
            Folder::new("preferred", &links).tools(),
            ["iptables-nft", "ip6tables"]
        );
    }

    #[test]
    fn without_tools_nothing_is_looked_at() {
        let folder = Folder::new("none", &[("iptables-nft-save", "/nonexistent")]);
        assert_eq!(folder.tools(), [""; 0]);
        assert_eq!(remove_with(&[]).unwrap(), Removed::default());
    }

    #[test]
    fn one_tools_failure_does_not_stop_the_others() {
        let folder = Folder::new(
            "fails",
            &[
                ("iptables-nft-save", "/bin/false"),
                ("ip6tables-nft-save", "/bin/true"),
            ],
        );
        let error = remove_with(&tools_on(folder.0.as_os_str())).unwrap_err();
        assert_eq!(error.failures.len(), 1);
        assert!(
            error.to_string().contains("iptables-nft-save failed"),
            "{error}"
        );
        assert_eq!(error.removed.tools[0].tool, "ip6tables-nft");
    }
}
