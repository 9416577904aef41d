//! Removing rules: those of a previous proxy once ours are in force, and all of them on a cleanup.

use std::time::Duration;

use ferrovia_host::iptables::{self, LeftoversError, RemovedRules, RemovedWith};
use ferrovia_host::survey::processes;
use ferrovia_host::survey::sockets::{self, owners};

use super::{ipvs, nftables, userspace};
use crate::sync::backend::SyncError;

/// The ports on which every kube-proxy serves health and metrics.
const KUBE_PROXY_PORTS: [u16; 2] = [10256, 10249];

/// What became of a previous proxy's rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakenOver {
    /// What was removed, in words.
    pub removed: Vec<String>,
    /// What stays in force, because the tool to remove it is missing.
    pub left: Vec<String>,
}

impl TakenOver {
    /// Logs what was removed, as one line; nothing if nothing was.
    pub fn log(&self) {
        if !self.removed.is_empty() {
            tracing::info!(removed = %self.removed.join("; "), "Took over from a previous proxy");
        }
    }
}

/// Steps of a removal, each of which is done whatever became of the others.
#[derive(Default)]
pub(super) struct Steps {
    done: TakenOver,
    failures: Vec<String>,
}

impl Steps {
    /// Takes the outcome of a step.
    pub(super) fn add(&mut self, outcome: Result<Vec<String>, SyncError>) {
        match outcome {
            Ok(removed) => self.done.removed.extend(removed),
            Err(error) => self.failures.push(error.to_string()),
        }
    }

    /// The same for iptables chains.
    pub(super) fn add_chains(&mut self, outcome: Result<RemovedRules, LeftoversError>) {
        let removed = outcome.unwrap_or_else(|error| {
            self.failures.push(error.to_string());
            error.removed
        });
        self.done.removed.extend(in_words(&removed.tools));
        self.done.left.extend(in_words(&removed.left));
    }

    /// What was done, or what failed. What was done is logged then: the next attempt does not find it any more.
    pub(super) fn end(self) -> Result<TakenOver, SyncError> {
        if self.failures.is_empty() {
            return Ok(self.done);
        }
        self.done.log();
        Err(self.failures.join("; ").into())
    }
}

/// What [`remove_all`] did.
#[derive(Debug, Default)]
pub struct RemovedAll {
    /// What was removed, in words.
    pub removed: Vec<String>,
    /// What was left, because only the iptables-legacy tools can remove it.
    pub needs_tools: Vec<String>,
    /// What was left, because we did not write it.
    pub foreign: Vec<String>,
    /// What was left, because a kube-proxy that runs here may need it, and which one that is.
    pub in_use: Option<(Vec<String>, String)>,
}

/// Removes what the modes have written, and with `predecessors` what a kube-proxy has.
///
/// In the modes iptables, ipvs and userspace what we write has kube-proxy's names. It goes if our mark is beside it, unless a kube-proxy
/// runs: that one has taken it over.
pub fn remove_all(predecessors: bool) -> Result<RemovedAll, SyncError> {
    let mut done = RemovedAll {
        removed: nftables::remove(predecessors)?,
        ..RemovedAll::default()
    };
    done.removed.extend(userspace::remove()?);
    let chains = if predecessors {
        done.removed.extend(ipvs::remove(Duration::ZERO)?);
        iptables::remove_leftovers()?
    } else if let Some(proxy) = running_kube_proxy() {
        let found = iptables::find_leftovers()?;
        let chains = in_words(&found.tools);
        done.in_use = (!chains.is_empty()).then_some((chains, proxy));
        RemovedRules {
            left: found.left,
            ..RemovedRules::default()
        }
    } else {
        if iptables::is_any_marked()? {
            done.removed.extend(ipvs::remove(Duration::ZERO)?);
        }
        iptables::remove_marked()?
    };
    done.removed.extend(in_words(&chains.tools));
    done.needs_tools = in_words(&chains.left);
    done.foreign = in_words(&chains.foreign);
    Ok(done)
}

/// A kube-proxy of this network namespace, by its process or, where that cannot be seen, by the ports it listens on.
fn running_kube_proxy() -> Option<String> {
    let me = std::process::id();
    let mut processes = processes::of_this_network().into_iter();
    let process = processes.find(|process| process.name == "kube-proxy" && process.pid != me);
    if let Some(process) = process {
        return Some(process.to_string());
    }
    let listeners = sockets::listeners().unwrap_or_default();
    let listener = listeners
        .iter()
        .find(|listener| KUBE_PROXY_PORTS.contains(&listener.port))?;
    let who = owners(&[listener.inode]).into_iter().next();
    let who = who.map_or_else(|| "a process".to_owned(), |(_, name)| name);
    Some(format!("{who}, which listens on port {}", listener.port))
}

/// What was removed or found, ruleset by ruleset.
fn in_words(rulesets: &[RemovedWith]) -> Vec<String> {
    let rulesets = rulesets.iter().filter(|ruleset| !ruleset.is_empty());
    rulesets.map(ToString::to_string).collect()
}
