//! A mode that is ready to work: what [`Mode::install`](super::Mode::install) returns.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ferrovia_core::family::{Family, PerFamily};
use ferrovia_host::nft::NftConnection;
use ferrovia_host::portals::Directory;

use super::remove::Removed;
use crate::kube_event::Noticeboard;
use crate::serve::metrics::ReadMode;
use crate::sync::backend::{Backend, SyncError};

/// What a mode is given when it is installed.
#[derive(Clone)]
pub struct InstallContext {
    /// Rules count connections.
    pub counters: bool,
    /// Where problems with single services are reported later.
    pub notices: Noticeboard,
}

impl Default for InstallContext {
    /// With counters, and without Events.
    fn default() -> Self {
        Self {
            counters: true,
            notices: Arc::new(|_| {}),
        }
    }
}

impl fmt::Debug for InstallContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstallContext")
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// A mode, ready to work.
pub struct Installed {
    /// What writes, for the families this machine has.
    pub backends: PerFamily<Option<Box<dyn Backend>>>,
    /// Starts to watch for changes by other processes. Best called after the first full write: the kernel makes a message of every element
    /// written for a watcher, ours too, which takes it longer than writing them.
    pub listen: Listen,
    /// Updates the metrics that only the mode knows, at every scrape.
    pub read: Option<ReadMode>,
    /// Removes what other modes and a kube-proxy left that would be in force beside the mode's rules. To be called once those are in force.
    pub take_over: TakeOver,
    /// The proxies of this process, for their metrics. Empty if the kernel does all the work.
    pub proxies: Directory,
    /// The connection to sets that packets fill, if the mode has any; see [`DynamicSets`](super::DynamicSets).
    pub dynamic_sets: Option<NftConnection>,
}

impl Installed {
    /// One that only has back ends and a takeover: no watcher, metrics, proxies or dynamic sets.
    pub(super) fn new(
        backends: PerFamily<Option<Box<dyn Backend>>>,
        take_over: impl FnMut(Duration) -> Result<Removed, SyncError> + Send + 'static,
    ) -> Self {
        Self {
            backends,
            listen: Box::new(|| Ok(Box::new(NoWatcher))),
            read: None,
            take_over: Box::new(take_over),
            proxies: Directory::default(),
            dynamic_sets: None,
        }
    }
}

/// Makes a [`Watcher`] that sees every change from then on.
pub type Listen = Box<dyn FnOnce() -> Result<Box<dyn Watcher>, SyncError> + Send>;

/// Removes leftover rules. After a failure it can be called again. The argument is how long it may wait for connections that end with what is
/// removed.
pub type TakeOver = Box<dyn FnMut(Duration) -> Result<Removed, SyncError> + Send>;

/// Waits for changes by other processes to what a mode has written.
pub trait Watcher: Send {
    /// The family that was changed; none if that is unknown.
    fn wait(&mut self) -> Result<Option<Family>, SyncError>;
}

/// The kernel sends no messages about iptables rules; the check every sync period finds changes.
struct NoWatcher;

impl Watcher for NoWatcher {
    fn wait(&mut self) -> Result<Option<Family>, SyncError> {
        loop {
            thread::park();
        }
    }
}
