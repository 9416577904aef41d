//! The modes: the one place that knows which there are.

mod inspect;
mod iptables;
mod ipvs;
mod localhost;
mod nftables;
mod remove;
mod troubles;
mod userspace;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ferrovia_core::desired::{Delta, Desired};
use ferrovia_core::difference::Difference;
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::trace::in_kernel::KernelObject;
use ferrovia_core::trace::{self, Trace, TraceProfile};
use ferrovia_host::nft::Connection;
use ferrovia_host::portals::Directory;
use ferrovia_host::{iptables as iptables_tools, probe};

pub use self::iptables::IptablesSettings;
pub use self::localhost::{trace_profile, with_localhost_node_ports};
pub use self::remove::{RemovedAll, TakenOver, remove_all};
pub use self::userspace::UserspaceMode;
use crate::config::{Config, IpvsSettings, ModeName};
use crate::inspect::counters::kernel::{IpvsCounts, NftCounts};
use crate::inspect::counters::totals::{Counts, Totals};
use crate::kube_event::Noticeboard;
use crate::serve::metrics::{Failures, ReadConnections, ReadMode};
use crate::sync::Inputs;
use crate::sync::backend::{Backend, SyncError};

/// A way to program the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// nftables, written over netlink.
    #[default]
    Nftables,
    /// kube-proxy's own chains, written by the iptables tools.
    Iptables(IptablesSettings),
    /// The kernel's own load balancer, with kube-proxy's device, sets and chains round it.
    Ipvs(Box<IpvsSettings>),
    /// Connections are carried by this process.
    Userspace(UserspaceMode),
}

/// A mode, ready to work.
pub struct Installed {
    /// What writes, for the families this machine has.
    pub backends: PerFamily<Option<Box<dyn Backend>>>,
    /// Begins to listen for what somebody else writes. Best called after the first full write: for a listener the kernel makes a
    /// message of every element written, ours too, which takes it longer than writing them.
    pub listen: Listen,
    /// Tells the metrics what only the mode knows, at every scrape.
    pub read: Option<ReadMode>,
    /// Removes what other modes and a kube-proxy left that would be in force beside the mode's rules. To be called once those are.
    pub take_over: TakeOver,
    /// The proxies of this process, for those who read their figures. A mode that leaves all to the kernel has none.
    pub proxies: Directory,
    /// The way to the sets that packets fill, where the mode has any.
    pub filled_sets: Option<Connection>,
}

/// Makes a [`Watcher`] that hears everything from then on.
pub type Listen = Box<dyn FnOnce() -> Result<Box<dyn Watcher>, SyncError> + Send>;

/// Removes rules of others. After a failure it can be called again. It may wait so long for connections that would end with what is removed.
pub type TakeOver = Box<dyn FnMut(Duration) -> Result<TakenOver, SyncError> + Send>;

/// Waits for other people's changes to what a mode has written.
pub trait Watcher: Send {
    /// The family concerned; none if it cannot be told.
    fn wait(&mut self) -> Result<Option<Family>, SyncError>;
}

impl Mode {
    /// The mode to use: the one asked for, or else the best this machine can do.
    pub fn choose(config: &Config) -> Self {
        let iptables = Self::Iptables(IptablesSettings::of(config));
        match config.mode {
            Some(ModeName::Nftables) => Self::Nftables,
            Some(ModeName::Iptables) => iptables,
            Some(ModeName::Ipvs) => Self::Ipvs(Box::new(config.ipvs.clone())),
            Some(ModeName::Userspace) => Self::Userspace(UserspaceMode::of(config)),
            None => match probe::nftables(&probe::supported_families()) {
                Ok(()) => {
                    tracing::info!("no mode is set, and this kernel can do nftables: using that");
                    Self::Nftables
                }
                Err(error) => {
                    tracing::warn!(%error, "no mode is set, and this kernel cannot do nftables: using iptables");
                    iptables
                }
            },
        }
    }

    /// What the mode is called.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Nftables => ModeName::Nftables.name(),
            Self::Iptables(_) => ModeName::Iptables.name(),
            Self::Ipvs(_) => ModeName::Ipvs.name(),
            Self::Userspace(_) => ModeName::Userspace.name(),
        }
    }

    /// How the mode treats packets, by itself: see [`trace_profile`] for node ports on loopback that are added to it.
    pub fn trace_profile(&self) -> TraceProfile {
        match self {
            Self::Nftables => trace::NFTABLES,
            Self::Iptables(settings) => trace::IPTABLES.with_localhost_node_ports(PerFamily {
                v4: settings.localhost_node_ports,
                v6: false,
            }),
            Self::Ipvs(_) => trace::IPVS,
            Self::Userspace(mode) => mode.trace_profile(),
        }
    }

    /// The metrics that count its failures.
    pub fn failures(&self) -> Failures {
        match self {
            Self::Nftables => Failures::Nftables,
            Self::Iptables(_) => Failures::Iptables,
            Self::Ipvs(_) => Failures::Ipvs,
            Self::Userspace(_) => Failures::None,
        }
    }

    /// It runs the iptables tools for as long as it runs, and not only to take over.
    pub fn needs_tools(&self) -> bool {
        match self {
            Self::Nftables => false,
            Self::Iptables(_) | Self::Ipvs(_) => true,
            Self::Userspace(mode) => !mode.binds(),
        }
    }

    /// Services are served only while this process runs.
    pub fn ends_with_us(&self) -> bool {
        matches!(self, Self::Userspace(_))
    }

    /// It listens on ports that only some may listen on.
    pub fn needs_low_ports(&self) -> bool {
        matches!(self, Self::Userspace(mode) if mode.binds())
    }

    /// Reads how many connections each service and endpoint got, where the mode counts them. The loop behind `inputs` is asked for names.
    pub fn connections(&self, inputs: Inputs) -> Result<Option<ReadConnections>, SyncError> {
        match self {
            Self::Nftables => Ok(Some(summed_up(NftCounts::open()?, inputs))),
            Self::Ipvs(_) => Ok(Some(summed_up(IpvsCounts::open()?, inputs))),
            // What this process carries itself is told from its proxies.
            Self::Iptables(_) | Self::Userspace(_) => Ok(None),
        }
    }

    /// What the mode would write into an empty kernel, as text.
    pub fn plan(&self, desired: &Desired) -> String {
        match self {
            Self::Nftables => nftables::plan(desired),
            Self::Iptables(settings) => iptables::plan(*settings, desired),
            Self::Ipvs(settings) => ipvs::plan(settings, desired),
            Self::Userspace(mode) => mode.plan(desired),
        }
    }

    /// What the mode would write to get from one state to another, as text.
    pub fn plan_change(&self, old: &Desired, new: &Desired, delta: &Delta) -> String {
        match self {
            Self::Nftables => inspect::change(
                nftables::planner(new.family),
                &Default::default(),
                (old, new),
                delta,
            ),
            Self::Iptables(settings) => inspect::change(
                iptables::planner(*settings, new.family),
                &Default::default(),
                (old, new),
                delta,
            ),
            Self::Ipvs(settings) => inspect::change(
                ipvs::planner(settings, new.family),
                &Default::default(),
                (old, new),
                delta,
            ),
            Self::Userspace(mode) => inspect::change(
                mode.planner(new.family),
                &Default::default(),
                (old, new),
                delta,
            ),
        }
    }

    /// Where the kernel is not as wanted. Changes nothing. `proxies` are those of this process, if it is the one that serves.
    pub fn compare(
        &self,
        desired: &Desired,
        counters: bool,
        proxies: Option<&Directory>,
    ) -> Result<Vec<Difference>, SyncError> {
        match self {
            Self::Nftables => inspect::nftables(desired, counters),
            Self::Iptables(settings) => inspect::iptables(desired, *settings),
            Self::Ipvs(settings) => inspect::ipvs(desired, settings),
            // Rules lead to ports that were free when the daemon asked for them, and only it knows the numbers.
            Self::Userspace(mode) => match proxies {
                Some(proxies) => inspect::userspace(desired, mode, proxies),
                None => Err(
                    "in userspace mode only the daemon knows where it listens; ask it, by leaving out --manifests and --config, or see what is wanted with ferrovia plan"
                        .into(),
                ),
            },
        }
    }

    /// The objects in the kernel that decide about a traced packet. Changes nothing.
    pub fn find_in_kernel(&self, trace: &Trace) -> Result<Vec<KernelObject>, SyncError> {
        match self {
            // A proxy of the daemon listens there.
            Self::Nftables if trace.packet.destination.is_loopback() => inspect::listeners(trace),
            Self::Nftables => inspect::nft_objects(trace),
            Self::Iptables(_) => inspect::iptables_objects(trace),
            Self::Ipvs(_) => inspect::ipvs_objects(trace),
            Self::Userspace(mode) if mode.binds() => inspect::listeners(trace),
            Self::Userspace(_) => inspect::iptables_objects(trace),
        }
    }

    /// Does what has to be done once with full privileges, for processes that will have less.
    pub fn prepare(&self) -> Result<(), SyncError> {
        match self {
            Self::Nftables | Self::Iptables(_) | Self::Userspace(_) => Ok(()),
            Self::Ipvs(settings) => ipvs::prepare(settings),
        }
    }

    /// Checks that this machine can do it and opens the ways into its kernel.
    pub fn install(&self, counters: bool) -> Result<Installed, SyncError> {
        let nobody: Noticeboard = Arc::new(|_| {});
        self.install_telling(counters, &nobody)
    }

    /// The same, with somewhere to tell of what goes wrong with single services later.
    pub fn install_telling(
        &self,
        counters: bool,
        notices: &Noticeboard,
    ) -> Result<Installed, SyncError> {
        match self {
            Self::Nftables => nftables::install(counters),
            Self::Iptables(settings) => iptables::install(*settings),
            Self::Ipvs(settings) => ipvs::install(settings),
            Self::Userspace(mode) => mode.install(notices),
        }
    }
}

fn summed_up(counts: impl Counts + 'static, inputs: Inputs) -> ReadConnections {
    let mut totals = Totals::new(Box::new(counts), inputs);
    Box::new(move |out| totals.read(out))
}

/// Marks the iptables chains that a mode has written as ours: their names are kube-proxy's.
fn mark(backend: iptables_tools::Backend) -> Result<Vec<String>, SyncError> {
    iptables_tools::mark(backend, &probe::supported_families())?;
    Ok(Vec::new())
}

/// Finds the iptables tools for a mode that writes rules with them, and tells people which these are.
fn detect_tools(
    families: &[Family],
    purpose: &'static str,
) -> Result<iptables_tools::Detected, SyncError> {
    let detected = iptables_tools::detect(families)?;
    tracing::info!(backend = %detected.backend, reason = detected.reason, "{purpose}");
    for warning in &detected.warnings {
        tracing::warn!("{warning}");
    }
    Ok(detected)
}

/// Nobody tells us when somebody changes iptables rules; the check every sync period finds it.
struct Deaf;

impl Watcher for Deaf {
    fn wait(&mut self) -> Result<Option<Family>, SyncError> {
        loop {
            thread::park();
        }
    }
}
