//! The iptables programs of this node.
//!
//! A kernel holds two sets of iptables rules side by side, and each has programs of its own: `iptables-nft` and `iptables-legacy`. Plain
//! `iptables` is one of them by another name.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ferrovia_core::dialect::iptables::{Commits, TableName};
use ferrovia_core::family::Family;

use crate::exec;
use crate::nft::Nft;

/// How long one program may run. The slowest case measured, 10,000 services with the nft tool, takes a few seconds.
const TIME_LIMIT: Duration = Duration::from_secs(120);
/// How long the legacy tool itself waits for its lock, in seconds.
const LOCK_WAIT: &str = "5";
/// The status of a program that was asked for a chain or rule which is not there.
const NOT_THERE: i32 = 1;
/// The status of a program that could not get its lock or the kernel's attention.
const BUSY: i32 = 4;

/// Which of the kernel's two rulesets a tool works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The tables of nf_tables that go by iptables' names.
    Nft,
    /// The tables of x_tables.
    Legacy,
    /// The one the distribution or the administrator chose; which, the tool does not say by its name.
    Chosen,
}

impl Backend {
    /// How a big change is best cut.
    pub fn commits(self) -> Commits {
        match self {
            Self::Nft => Commits::Many,
            // Right for both, if slow where the chosen one is nft's.
            Self::Legacy | Self::Chosen => Commits::One,
        }
    }

    /// As the tools name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nft => "iptables-nft",
            Self::Legacy => "iptables-legacy",
            Self::Chosen => "iptables",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The programs for one family's rules of one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    pub family: Family,
    pub backend: Backend,
    /// The program that takes single commands. Its siblings' names only have an ending more.
    program: PathBuf,
}

/// Whether a chain is there, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChainPresence {
    There,
    Missing,
    /// Another process holds the lock.
    Unknown,
}

/// The tools in the directories of a search path. The unspecific name is taken only if a family has neither of the specific ones: it is one
/// of them by another name.
pub(super) fn tools_on(path: &OsStr) -> Vec<Tool> {
    let mut tools = Vec::new();
    for family in Family::ALL {
        let found = |backend| Tool::find(path, family, backend);
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
    /// The tool of a kind in the directories of a search path, if it is there. Only in those whose place does not depend on where we happen
    /// to be: an empty path would otherwise mean the working directory, which another user may own.
    pub fn find(path: &OsStr, family: Family, backend: Backend) -> Option<Self> {
        let name = name(family, backend);
        let folders = env::split_paths(path).filter(|folder| folder.is_absolute());
        let mut candidates = folders.map(|folder| folder.join(&name));
        let program =
            candidates.find(|candidate| is_executable(&with_ending(candidate, "-save")))?;
        Some(Self {
            family,
            backend,
            program,
        })
    }

    /// What its programs are called, without `-save` and `-restore`.
    pub fn name(&self) -> String {
        let name = self.program.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// What it says about its version, such as `iptables v1.8.9 (nf_tables)`.
    pub(super) fn version(&self) -> Result<String, exec::Error> {
        let said = exec::run(&self.program, &["--version"], String::new(), TIME_LIMIT)?;
        Ok(String::from_utf8_lossy(&said).trim().to_owned())
    }

    /// The ruleset, or one table of it.
    pub(super) fn save(&self, args: &[&str]) -> Result<String, exec::Error> {
        let mut said = exec::run(
            &with_ending(&self.program, "-save"),
            args,
            String::new(),
            TIME_LIMIT,
        )?;
        // It was read without knowing how much would come.
        said.shrink_to_fit();
        // A ruleset can be large; only a text that is not UTF-8 is copied.
        Ok(String::from_utf8(said)
            .unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned()))
    }

    /// Writes changes, leaving alone what they do not name.
    pub(super) fn restore(&self, input: String) -> Result<(), exec::Error> {
        let args: &[&str] = match self.backend {
            // The nft tool's transactions are the kernel's: there is no lock to wait for.
            Backend::Nft => &["--noflush"],
            // One that is the nft tool after all takes the option and ignores it.
            Backend::Legacy | Backend::Chosen => &["--noflush", "-w", LOCK_WAIT],
        };
        exec::run(
            &with_ending(&self.program, "-restore"),
            args,
            input,
            TIME_LIMIT,
        )
        .map(drop)
    }

    /// Looks for a chain.
    pub(super) fn has_chain(
        &self,
        table: TableName,
        chain: &str,
    ) -> Result<ChainPresence, exec::Error> {
        match self.list(table, chain) {
            Ok(_) => Ok(ChainPresence::There),
            Err(exec::Error::Failed { status, .. }) if status.code() == Some(NOT_THERE) => {
                Ok(ChainPresence::Missing)
            }
            Err(exec::Error::Failed { status, .. }) if status.code() == Some(BUSY) => {
                Ok(ChainPresence::Unknown)
            }
            Err(error) => Err(error),
        }
    }

    /// The rules of one chain, as commands that would make it.
    pub(super) fn list(&self, table: TableName, chain: &str) -> Result<String, exec::Error> {
        let args = ["-w", LOCK_WAIT, "-t", table.as_str(), "-S", chain];
        let said = exec::run(&self.program, &args, String::new(), TIME_LIMIT)?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }

    /// There may be rules for this tool.
    ///
    /// Asked before the legacy tool is run, because that could load kernel modules for unused tables. A list that is there but cannot be
    /// read counts as tables: the tool shall say what is wrong.
    pub(super) fn has_tables(&self) -> bool {
        if self.backend != Backend::Legacy {
            // The tool fails on a kernel without nf_tables, even if it is only to read.
            return !matches!(Nft::open_if_there(), Ok(None));
        }
        // Not /proc/net, which is the view of the process's first thread: we may be in another namespace than that.
        let list = match self.family {
            Family::V4 => "/proc/thread-self/net/ip_tables_names",
            Family::V6 => "/proc/thread-self/net/ip6_tables_names",
        };
        match fs::read(list) {
            Ok(names) => !names.is_empty(),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }
}

/// Another program of the same set. It lives in the same folder: another folder's may be of another version.
fn with_ending(program: &Path, ending: &str) -> PathBuf {
    let mut name = program.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// What a tool's programs are called, without `-save` and `-restore`.
pub(super) fn name(family: Family, backend: Backend) -> String {
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
