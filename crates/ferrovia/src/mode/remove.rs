//! Removing rules: those of other modes and a kube-proxy once ours are in force, and all of them on a cleanup.

use std::time::Duration;

use ferrovia_host::iptables::{self, Backend, IsOurs, LeftoversError, RemovedWith};
use ferrovia_host::probe;
use ferrovia_host::survey::processes;
use ferrovia_host::survey::sockets::{self, owners};

use super::{ALL, Mode};
use crate::sync::backend::SyncError;

/// The ports on which every kube-proxy serves health and metrics.
const KUBE_PROXY_PORTS: [u16; 2] = [10256, 10249];

/// What is to be removed.
#[derive(Clone, Debug)]
pub struct Removal {
    /// How long to wait for connections that end with what is removed.
    pub patience: Duration,
    /// Which objects with kube-proxy's names go.
    pub kube_proxy_names: KubeProxyNames,
}

/// Which objects with kube-proxy's names go. Some modes use these names too.
#[derive(Clone, Debug)]
pub enum KubeProxyNames {
    /// All, but for the chains of the mode that takes over.
    All {
        /// The chains that stay.
        except: Option<OwnChains>,
    },
    /// Those with our mark beside them.
    Marked,
    /// None: this kube-proxy runs here and may have taken them over.
    InUseBy(String),
}

impl KubeProxyNames {
    /// What only a kube-proxy can have written goes too.
    pub(super) fn includes_kube_proxy(&self) -> bool {
        matches!(self, Self::All { .. })
    }
}

/// The iptables chains of the mode that takes over.
#[derive(Clone, Copy, Debug)]
pub struct OwnChains {
    /// The ruleset they were written to. It must not be detected again: a kubelet that has started since may have named the other one, and our
    /// chains would be removed as leftovers.
    pub backend: Backend,
    /// Which chains, by table and name.
    pub is_ours: IsOurs,
}

/// What became of rules that were to be removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// What was removed, in words.
    pub removed: Vec<String>,
    /// What stays in force, because only the iptables-legacy tools can remove it, and they are missing.
    pub needs_tools: Vec<String>,
    /// What was left, because we did not write it.
    pub foreign: Vec<String>,
    /// What was left, because a kube-proxy that runs here may need it.
    pub in_use: Vec<String>,
    /// Which kube-proxy that is.
    pub in_use_by: Option<String>,
}

impl Removed {
    /// Logs what was removed, as one line; nothing if nothing was.
    pub fn log(&self) {
        if !self.removed.is_empty() {
            tracing::info!(removed = %self.removed.join("; "), "Took over from a previous proxy");
        }
    }
}

/// The steps of a removal. Each is done even if others fail.
#[derive(Debug, Default)]
pub struct RemovalSteps {
    done: Removed,
    failures: Vec<String>,
}

impl RemovalSteps {
    /// Adds the outcome of a step.
    pub(super) fn add(&mut self, outcome: Result<Vec<String>, SyncError>) {
        match outcome {
            Ok(removed) => self.done.removed.extend(removed),
            Err(error) => self.failures.push(error.to_string()),
        }
    }

    /// The same for iptables chains.
    pub(super) fn add_chains(&mut self, outcome: Result<iptables::RemovedRules, LeftoversError>) {
        let removed = outcome.unwrap_or_else(|error| {
            self.failures.push(error.to_string());
            error.removed
        });
        self.done.removed.extend(in_words(&removed.tools));
        self.done.needs_tools.extend(in_words(&removed.left));
        self.done.foreign.extend(in_words(&removed.foreign));
    }

    /// The same for iptables chains that were only looked for.
    pub(super) fn add_in_use(&mut self, outcome: Result<iptables::RemovedRules, LeftoversError>) {
        match outcome {
            Ok(found) => {
                self.done.in_use.extend(in_words(&found.tools));
                self.done.needs_tools.extend(in_words(&found.left));
            }
            Err(error) => self.failures.push(error.to_string()),
        }
    }

    /// What was done, or what failed. What was done is logged then: the next attempt does not find it any more.
    fn end(self) -> Result<Removed, SyncError> {
        if self.failures.is_empty() {
            return Ok(self.done);
        }
        self.done.log();
        Err(self.failures.join("; ").into())
    }
}

/// Removes what every other mode and a kube-proxy left, once the rules of `mode` are in force. `chains` are its iptables chains, if it has any.
pub(super) fn take_over(
    mode: &dyn Mode,
    chains: Option<OwnChains>,
    patience: Duration,
) -> Result<Removed, SyncError> {
    let mut steps = RemovalSteps::default();
    if let Some(chains) = chains {
        steps.add(mark(chains.backend));
    }
    let removal = Removal {
        patience,
        kube_proxy_names: KubeProxyNames::All { except: chains },
    };
    for other in ALL {
        if other.name() == mode.name() {
            mode.remove_own_leftovers(&removal, &mut steps);
        } else if mode
            .builds_on()
            .is_none_or(|base| base.name() != other.name())
        {
            other.remove(&removal, &mut steps);
        }
    }
    steps.end()
}

/// Marks the iptables chains that a mode has written as ours: their names are kube-proxy's.
fn mark(backend: Backend) -> Result<Vec<String>, SyncError> {
    iptables::mark(backend, &probe::supported_families())?;
    Ok(Vec::new())
}

/// Removes what the modes have written, and with `kube_proxy` what a kube-proxy has.
///
/// Some of what we write has kube-proxy's names. It goes if our mark is beside it, unless a kube-proxy runs: that one has taken it over.
pub fn remove_all(kube_proxy: bool) -> Result<Removed, SyncError> {
    let kube_proxy_names = if kube_proxy {
        KubeProxyNames::All { except: None }
    } else {
        running_kube_proxy().map_or(KubeProxyNames::Marked, KubeProxyNames::InUseBy)
    };
    let removal = Removal {
        patience: Duration::ZERO,
        kube_proxy_names,
    };
    let mut steps = RemovalSteps::default();
    for mode in ALL {
        mode.remove(&removal, &mut steps);
    }
    if let KubeProxyNames::InUseBy(proxy) = removal.kube_proxy_names {
        steps.done.in_use_by = Some(proxy);
    }
    steps.end()
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
    let process = owners(&[listener.inode]).into_iter().next();
    let process = process.map_or_else(|| "a process".to_owned(), |(_, name)| name);
    Some(format!(
        "{process}, which listens on port {}",
        listener.port
    ))
}

/// What was removed or found, ruleset by ruleset.
fn in_words(rulesets: &[RemovedWith]) -> Vec<String> {
    let rulesets = rulesets.iter().filter(|ruleset| !ruleset.is_empty());
    rulesets.map(ToString::to_string).collect()
}
