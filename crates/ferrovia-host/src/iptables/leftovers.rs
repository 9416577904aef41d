//! Removing what a kube-proxy left behind in iptables.
//!
//! A kernel holds two sets of iptables rules side by side, of the nft and of the legacy tools, for each address family. A node may have rules in
//! any of the four. Those of the nft tools are read and removed over netlink, which needs no tools; those of the legacy tools with their
//! tool, and where there is none they are only found. What is kube-proxy's and in which order it goes is decided in `ferrovia-core`;
//! [`remove_leftovers`] blocks while the tools run, so the daemon calls it from a thread that may wait.

use std::env;
use std::fmt;
use std::io;
use std::time::Duration;

use ferrovia_core::dialect::iptables::{
    self, KERNEL_TABLES, KernelRemoval, LeftoverRemoval, is_kube_proxys, leftovers_in_kernel,
};
use ferrovia_core::family::Family;

use super::legacy::legacy_tables;
use super::lock::Lock;
use super::mark::is_marked;
use super::tool::{Backend, Tool, name, tools_on};
use crate::exec;
use crate::nft::{self, Nft};

/// What was looked at, and what was removed there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemovedRules {
    /// One entry for each ruleset that was looked at, by the name of its tool.
    pub tools: Vec<RemovedWith>,
    /// What is there and cannot be removed, because the tool for it is missing.
    pub left: Vec<RemovedWith>,
    /// What is there and was not removed, because we did not write it. Only [`remove_marked`] makes a difference.
    pub foreign: Vec<RemovedWith>,
}

/// What was found in one ruleset, and removed.
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
    fn nothing(tool: String) -> Self {
        Self {
            tool,
            chains: 0,
            rules: 0,
            kept: Vec::new(),
        }
    }

    /// There was nothing to remove.
    pub fn is_empty(&self) -> bool {
        self.chains == 0 && self.rules == 0 && self.kept.is_empty()
    }
}

/// Some tool failed. The others were run anyway.
#[derive(Debug, thiserror::Error)]
#[error("cannot remove kube-proxy's iptables rules: {}", FailureList(failures))]
pub struct Error {
    /// What was done by the tools that did not fail.
    pub removed: RemovedRules,
    /// What failed; not empty.
    pub failures: Vec<RemovalFailure>,
}

/// Why the leftovers of one ruleset could not be removed.
#[derive(Debug, thiserror::Error)]
pub enum RemovalFailure {
    #[error("{0}")]
    Tool(#[from] exec::Error),
    #[error("{0}")]
    Kernel(#[from] nft::Error),
    /// The legacy rules cannot be read.
    #[error("cannot read the rules of {}: {cause}", name(*family, Backend::Legacy))]
    Legacy { family: Family, cause: io::Error },
}

/// Removes kube-proxy's chains and the jumps to them from all iptables rulesets of this network namespace.
///
/// Each ruleset changes by whole transactions, jumps first, so a failure in between leaves chains that no packet enters, and the next call
/// removes those. A kube-proxy that is still running would write its rules again.
///
/// # Errors
/// If some tool fails; says what the others did.
pub fn remove_leftovers() -> Result<RemovedRules, Error> {
    look(&tools_here(), RemovalAction::Remove, None)
}

/// What [`remove_leftovers`] would remove. Changes nothing.
///
/// # Errors
/// If some tool fails; says what the others found.
pub fn find_leftovers() -> Result<RemovedRules, Error> {
    look(&tools_here(), RemovalAction::Find, None)
}

/// Removes the chains with kube-proxy's names that we wrote ourselves, by the mark beside them, and finds the others.
///
/// # Errors
/// If some tool fails; says what the others did.
pub fn remove_marked() -> Result<RemovedRules, Error> {
    look(&tools_here(), RemovalAction::RemoveMarked, None)
}

/// The same as [`remove_leftovers`] for a mode that itself writes to the rulesets of one backend: there the chains that `is_ours` claims, by table and name, stay.
///
/// # Errors
/// If some tool fails; says what the others did.
pub fn remove_leftovers_beside(backend: Backend, is_ours: IsOurs) -> Result<RemovedRules, Error> {
    look(
        &tools_here(),
        RemovalAction::Remove,
        Some((backend, is_ours)),
    )
}

/// Whether a chain is the mode's own, by table and name.
pub type IsOurs = fn(&str, &str) -> bool;

fn tools_here() -> Vec<Tool> {
    tools_on(&env::var_os("PATH").unwrap_or_default())
}

fn owns_none(_: &str, _: &str) -> bool {
    false
}

/// What to do about leftovers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RemovalAction {
    Find,
    Remove,
    RemoveMarked,
}

impl RemovalAction {
    /// Whether it removes what is in one ruleset.
    fn removes(self, family: Family, backend: Backend) -> Result<bool, RemovalFailure> {
        match self {
            Self::Find => Ok(false),
            Self::Remove => Ok(true),
            Self::RemoveMarked => is_marked(family, backend),
        }
    }
}

/// Looks at all rulesets, and does something about what is found. The chains in use are those of one backend.
fn look(
    tools: &[Tool],
    action: RemovalAction,
    in_use: Option<(Backend, IsOurs)>,
) -> Result<RemovedRules, Error> {
    let in_kernel = match in_use {
        Some((Backend::Nft | Backend::Chosen, is_ours)) => is_ours,
        _ => owns_none,
    };
    let by = |tool: &Tool| match in_use {
        // A tool that does not say which it is may be the one that is in use.
        Some((used, is_ours)) if [used, Backend::Chosen].contains(&tool.backend) => is_ours,
        _ => owns_none,
    };
    let mut looked = Looked::default();
    for family in Family::ALL {
        looked.take(action, look_in_kernel(family, in_kernel, action));
        let mut others = tools
            .iter()
            .filter(|tool| tool.family == family && tool.backend != Backend::Nft)
            .peekable();
        if others.peek().is_none() {
            looked.take_left(find_legacy(family));
        }
        for tool in others {
            looked.take(action, look_by(tool, by(tool), action));
        }
    }
    looked.end()
}

/// What was found so far.
#[derive(Default)]
struct Looked {
    removed: RemovedRules,
    failures: Vec<RemovalFailure>,
}

impl Looked {
    fn take(&mut self, action: RemovalAction, found: Result<FoundLeftovers, RemovalFailure>) {
        match found {
            Ok(FoundLeftovers { was_removed, what }) => {
                let is_foreign = action == RemovalAction::RemoveMarked && !was_removed;
                let (foreign, tools) = (&mut self.removed.foreign, &mut self.removed.tools);
                if is_foreign { foreign } else { tools }
                    .extend(what.filter(|what| !is_foreign || !what.is_empty()));
            }
            Err(failure) => self.failures.push(failure),
        }
    }

    fn take_left(&mut self, found: Result<Option<RemovedWith>, RemovalFailure>) {
        match found {
            Ok(left) => self.removed.left.extend(left),
            Err(failure) => self.failures.push(failure),
        }
    }

    fn end(self) -> Result<RemovedRules, Error> {
        let Self { removed, failures } = self;
        if failures.is_empty() {
            Ok(removed)
        } else {
            Err(Error { removed, failures })
        }
    }
}

/// What was found in one ruleset; nothing if the kernel does not have it.
struct FoundLeftovers {
    was_removed: bool,
    what: Option<RemovedWith>,
}

/// The rules of the nft tools, which are the kernel's own; none on a kernel without nf_tables.
fn look_in_kernel(
    family: Family,
    is_ours: IsOurs,
    action: RemovalAction,
) -> Result<FoundLeftovers, RemovalFailure> {
    let Some(mut nft) = Nft::open_if_there()? else {
        return Ok(FoundLeftovers {
            was_removed: false,
            what: None,
        });
    };
    let tables = nft.compat_tables(family, &KERNEL_TABLES)?;
    let removals: Vec<KernelRemoval> = tables
        .iter()
        .filter_map(|table| leftovers_in_kernel(table, is_ours))
        .collect();
    let was_removed = action.removes(family, Backend::Nft)?;
    if was_removed {
        nft.remove_compat(family, &removals)?;
    }
    let mut done = RemovedWith::nothing(name(family, Backend::Nft));
    for removal in &removals {
        let kept = removal.kept.iter();
        done.kept
            .extend(kept.map(|chain| format!("{} {chain}", removal.table)));
        done.chains += removal.deleted.len();
        done.rules += removal.jumps.len() + removal.rules_inside;
    }
    Ok(FoundLeftovers {
        was_removed,
        what: Some(done),
    })
}

/// kube-proxy's chains among the legacy rules, which cannot be removed without the tool. Jumps to them are not counted.
fn find_legacy(family: Family) -> Result<Option<RemovedWith>, RemovalFailure> {
    let tables = match legacy_tables(family) {
        Ok(tables) => tables,
        // Only root sees which tables there are. To try again would not help.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            tracing::warn!(tool = %name(family, Backend::Legacy), err = %error, "Failed to look for leftover rules of a previous proxy; any that exist remain active");
            return Ok(None);
        }
        Err(cause) => return Err(RemovalFailure::Legacy { family, cause }),
    };
    let mut left = RemovedWith::nothing(name(family, Backend::Legacy));
    for table in &tables {
        let chains = table.chains.iter();
        for (_, rules) in chains.filter(|(chain, _)| is_kube_proxys(&table.name, chain)) {
            left.chains += 1;
            left.rules += rules;
        }
    }
    Ok((!left.is_empty()).then_some(left))
}

fn look_by(
    tool: &Tool,
    is_ours: IsOurs,
    action: RemovalAction,
) -> Result<FoundLeftovers, RemovalFailure> {
    let mut done = RemovedWith::nothing(tool.name());
    if !tool.has_tables() {
        return Ok(FoundLeftovers {
            was_removed: false,
            what: Some(done),
        });
    }
    let was_removed = action.removes(tool.family, tool.backend)?;
    let save = tool.save(&[])?;
    if let Some(removal) = iptables::leftovers_besides(&save, is_ours) {
        if was_removed {
            remove(tool, &removal)?;
        }
        done.chains = removal.chains();
        done.rules = removal.rules();
        done.kept = removal
            .kept()
            .map(|(table, chain)| format!("{table} {chain}"))
            .collect();
    }
    Ok(FoundLeftovers {
        was_removed,
        what: Some(done),
    })
}

fn remove(tool: &Tool, removal: &LeftoverRemoval<'_>) -> Result<(), exec::Error> {
    if tool.backend == Backend::Legacy {
        Lock::new(Duration::ZERO).tell_if_held();
    }
    tool.restore(removal.restore_input(tool.backend.commits()))
}

/// Failures, one after the other.
struct FailureList<'a>(&'a [RemovalFailure]);

impl fmt::Display for FailureList<'_> {
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
    fn a_link_to_nothing_is_no_tool() {
        let folder = linked(&[("iptables-nft-save", "/nonexistent")]);
        assert_eq!(names_in(&folder), [""; 0]);
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
            ("iptables-save", "/bin/false"),
            ("ip6tables-save", "/bin/true"),
        ]);
        let tools = tools_in(&folder);
        let error = ferrovia_lab::namespace::in_namespace(move || {
            look(&tools, RemovalAction::Remove, None).unwrap_err()
        });
        assert_eq!(error.failures.len(), 1);
        assert!(
            error.to_string().contains("iptables-save failed"),
            "{error}"
        );
        let looked_at: Vec<_> = error.removed.tools.iter().map(|done| &done.tool).collect();
        assert_eq!(looked_at, ["iptables-nft", "ip6tables-nft", "ip6tables"]);
    }
}
