//! Removing what a kube-proxy left behind in iptables, with the iptables tools of the node.
//!
//! A kernel holds two sets of iptables rules side by side, of the nft and of the legacy tools, for each address family. A node may have rules in
//! any of the four, so each is looked at with the tool that belongs to it. What is kube-proxy's and in which order it goes is decided in
//! `ferrovia-core`; [`remove_leftovers`] blocks while the tools run, so the daemon calls it from a thread that may wait.

use std::env;
use std::fmt;
use std::time::Duration;

use ferrovia_core::dialect::iptables::{self, Removal};

use super::lock::Lock;
use super::tool::{Backend, Tool, tools_on};
use crate::exec;

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
    look_with(&tools_here(), |_| nobodys, remove)
}

/// What [`remove_leftovers`] would remove. Changes nothing.
///
/// # Errors
/// If some tool fails; says what the others found.
pub fn find_leftovers() -> Result<Removed, Error> {
    let nothing = |_: &Tool, _: &Removal<'_>| Ok(());
    look_with(&tools_here(), |_| nobodys, nothing)
}

/// The same for a mode that itself writes to the rulesets of one backend: there the chains that `is_ours` claims, by table and name, stay.
///
/// # Errors
/// If some tool fails; says what the others did.
pub fn remove_leftovers_beside(backend: Backend, is_ours: IsOurs) -> Result<Removed, Error> {
    // A tool that does not say which it is may be the one that is in use.
    let is_in_use = |tool: &Tool| [backend, Backend::Chosen].contains(&tool.backend);
    let stays = |tool: &Tool| if is_in_use(tool) { is_ours } else { nobodys };
    look_with(&tools_here(), stays, remove)
}

/// Whether a chain is the mode's own, by table and name.
pub type IsOurs = fn(&str, &str) -> bool;

fn tools_here() -> Vec<Tool> {
    tools_on(&env::var_os("PATH").unwrap_or_default())
}

fn nobodys(_: &str, _: &str) -> bool {
    false
}

/// Looks for leftovers with each tool, and does something about those found. What stays is told for each tool.
fn look_with(
    tools: &[Tool],
    stays: impl Fn(&Tool) -> IsOurs,
    act: impl Fn(&Tool, &Removal<'_>) -> Result<(), exec::Error>,
) -> Result<Removed, Error> {
    let mut removed = Removed::default();
    let mut failures = Vec::new();
    for tool in tools {
        match look_by(tool, stays(tool), &act) {
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

fn look_by(
    tool: &Tool,
    is_ours: IsOurs,
    act: impl Fn(&Tool, &Removal<'_>) -> Result<(), exec::Error>,
) -> Result<RemovedWith, exec::Error> {
    let mut done = RemovedWith {
        tool: tool.name(),
        chains: 0,
        rules: 0,
        kept: Vec::new(),
    };
    if !tool.has_tables() {
        return Ok(done);
    }
    let save = tool.save(&[])?;
    if let Some(removal) = iptables::leftovers_besides(&save, is_ours) {
        act(tool, &removal)?;
        done.chains = removal.chains();
        done.rules = removal.rules();
        done.kept = removal
            .kept()
            .map(|(table, chain)| format!("{table} {chain}"))
            .collect();
    }
    Ok(done)
}

fn remove(tool: &Tool, removal: &Removal<'_>) -> Result<(), exec::Error> {
    if tool.backend == Backend::Legacy {
        Lock::new(Duration::ZERO).tell_if_held();
    }
    tool.restore(removal.restore_input(tool.backend.commits()))
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
    use std::path::PathBuf;

    use ferrovia_lab::Folder;

    use super::*;

    /// A folder with links to programs, under names of tools.
    fn linked(links: &[(&str, &str)]) -> Folder {
        let folder = Folder::new();
        for (link, program) in links {
            symlink(program, folder.join(link)).unwrap();
        }
        folder
    }

    fn tools_in(folder: &Folder) -> Vec<Tool> {
        tools_on(folder.path().as_os_str())
    }

    fn names_in(folder: &Folder) -> Vec<String> {
        tools_in(folder).iter().map(Tool::name).collect()
    }

    #[test]
    fn specific_tools_are_preferred_family_by_family() {
        let links = ["iptables-save", "iptables-nft-save", "ip6tables-save"]
            .map(|link| (link, "/bin/true"));
        assert_eq!(names_in(&linked(&links)), ["iptables-nft", "ip6tables"]);
    }

    #[test]
    fn without_tools_nothing_is_looked_at() {
        let folder = linked(&[("iptables-nft-save", "/nonexistent")]);
        assert_eq!(names_in(&folder), [""; 0]);
        assert_eq!(
            look_with(&[], |_| nobodys, remove).unwrap(),
            Removed::default()
        );
    }

    #[test]
    fn no_tool_is_taken_from_where_we_happen_to_be() {
        let folder = linked(&[("iptables-nft-save", "/bin/true")]);
        let here = env::current_dir().unwrap();
        let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
        let relative = up.join(folder.path().strip_prefix("/").unwrap());
        assert!(relative.join("iptables-nft-save").exists());
        assert_eq!(tools_on(relative.as_os_str()), []);
        assert_eq!(names_in(&folder), ["iptables-nft"]);
    }

    #[test]
    fn one_tools_failure_does_not_stop_the_others() {
        let folder = linked(&[
            ("iptables-nft-save", "/bin/false"),
            ("ip6tables-nft-save", "/bin/true"),
        ]);
        let error = look_with(&tools_in(&folder), |_| nobodys, remove).unwrap_err();
        assert_eq!(error.failures.len(), 1);
        assert!(
            error.to_string().contains("iptables-nft-save failed"),
            "{error}"
        );
        assert_eq!(error.removed.tools[0].tool, "ip6tables-nft");
    }
}
