//! The modes: the one place that knows which there are.

mod iptables;

use ferrovia_core::desired::Desired;
use ferrovia_core::dialect::nft::{Observed, Op, Transaction};
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::plan::nft::NftPlanner;
use ferrovia_core::plan::nft::layout::{PREDECESSORS, TABLE};
use ferrovia_core::plan::{Found, Planner};
use ferrovia_core::trace::TraceMode;
use ferrovia_host::iptables::Removed;
use ferrovia_host::nft::{Change, Connection, Monitor, Nft, NftApplier};
use ferrovia_host::{iptables as iptables_tools, probe};

pub use self::iptables::IptablesSettings;
use crate::config::{Config, ModeName};
use crate::counters::totals::Totals;
use crate::metrics::{Failures, ReadConnections};
use crate::sync::Inputs;
use crate::sync::backend::{Backend, Pair, SyncError};

/// A way to program the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// nftables, written over netlink.
    #[default]
    Nftables,
    /// kube-proxy's own chains, written by the iptables tools.
    Iptables(IptablesSettings),
}

/// A mode, ready to work.
pub struct Installed {
    /// What writes, for the families this machine has.
    pub backends: PerFamily<Option<Box<dyn Backend>>>,
    /// Begins to listen for what somebody else writes. Best called after the first full write: for a listener the kernel makes a
    /// message of every element written, ours too, which takes it longer than writing them.
    pub listen: Listen,
    /// Removes what other modes and a kube-proxy left that would be in force beside the mode's rules. To be called once those are.
    pub take_over: TakeOver,
}

/// Makes a [`Watcher`] that hears everything from then on.
pub type Listen = Box<dyn FnOnce() -> Result<Box<dyn Watcher>, SyncError> + Send>;

/// Removes rules of others and answers with what was removed, in words.
pub type TakeOver = Box<dyn FnOnce() -> Result<Vec<String>, SyncError> + Send>;

/// Waits for other people's changes to what a mode has written.
pub trait Watcher: Send {
    /// The family concerned; none if it cannot be told.
    fn wait(&mut self) -> Result<Option<Family>, SyncError>;
}

impl Mode {
    /// Every mode, as it is by default.
    pub const ALL: [Self; 2] = [
        Self::Nftables,
        Self::Iptables(IptablesSettings {
            localhost_node_ports: true,
        }),
    ];

    /// The mode to use: the one asked for, or else the best this machine can do.
    pub fn choose(config: &Config) -> Result<Self, SyncError> {
        let iptables = Self::Iptables(IptablesSettings::of(config));
        match config.mode {
            Some(ModeName::Nftables) => Ok(Self::Nftables),
            Some(ModeName::Iptables) => Ok(iptables),
            Some(other) => Err(format!(
                "mode {}: there are only nftables and iptables so far; choose one of them, or none",
                other.name()
            )
            .into()),
            None => match probe::nftables(&probe::supported_families()) {
                Ok(()) => {
                    tracing::info!("no mode is set, and this kernel can do nftables: using that");
                    Ok(Self::Nftables)
                }
                Err(error) => {
                    tracing::warn!(%error, "no mode is set, and this kernel cannot do nftables: using iptables");
                    Ok(iptables)
                }
            },
        }
    }

    /// What the mode is called.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Nftables => ModeName::Nftables.name(),
            Self::Iptables(_) => ModeName::Iptables.name(),
        }
    }

    /// The mode as far as it matters to where packets go.
    pub fn to_trace(&self) -> TraceMode {
        match self {
            Self::Nftables => TraceMode::Nftables,
            Self::Iptables(settings) => TraceMode::Iptables {
                localhost_node_ports: settings.localhost_node_ports,
            },
        }
    }

    /// The metrics that count its failures.
    pub fn failures(&self) -> Failures {
        match self {
            Self::Nftables => Failures::Nftables,
            Self::Iptables(_) => Failures::Iptables,
        }
    }

    /// It runs the iptables tools for as long as it runs, and not only to take over.
    pub fn needs_tools(&self) -> bool {
        match self {
            Self::Nftables => false,
            Self::Iptables(_) => true,
        }
    }

    /// Reads how many connections each service and endpoint got, where the mode counts them. The loop behind `inputs` is asked for names.
    pub fn connections(&self, inputs: Inputs) -> Result<Option<ReadConnections>, SyncError> {
        match self {
            Self::Nftables => {
                let mut totals = Totals::new(inputs)?;
                Ok(Some(Box::new(move |out| totals.read(out))))
            }
            Self::Iptables(_) => Ok(None),
        }
    }

    /// What the mode would write into an empty kernel, as text.
    pub fn plan(&self, desired: &Desired) -> String {
        match self {
            Self::Nftables => NftPlanner::new(desired.family, true)
                .full(desired, &Observed::default(), Found::Adopt)
                .to_string(),
            Self::Iptables(settings) => iptables::plan(*settings, desired),
        }
    }

    /// Removes what the mode has written, and with `predecessors` what kube-proxy's mode of that name has. Answers with what was removed,
    /// in words.
    pub fn remove(&self, predecessors: bool) -> Result<Vec<String>, SyncError> {
        match self {
            Self::Nftables => remove_tables(predecessors),
            // Our chains cannot be told from kube-proxy's; they go with those.
            Self::Iptables(_) => Ok(Vec::new()),
        }
    }

    /// Checks that this machine can do it and opens the ways into its kernel.
    pub fn install(&self, counters: bool) -> Result<Installed, SyncError> {
        match self {
            Self::Nftables => nftables(counters),
            Self::Iptables(settings) => iptables::install(*settings),
        }
    }
}

fn nftables(counters: bool) -> Result<Installed, SyncError> {
    let families = probe::supported_families();
    probe::nftables(&families)?;
    let nft = Nft::open()?;
    let writer = nft.port_id();
    let connection = Connection::new(nft);
    let mut backends = PerFamily { v4: None, v6: None };
    for family in families {
        let pair = Pair::new(
            NftPlanner::new(family, counters),
            NftApplier::new(family, connection.clone()),
        );
        backends[family] = Some(Box::new(pair) as Box<dyn Backend>);
    }
    let listen = move || Ok(Box::new(Monitor::open(writer, &[TABLE])?) as Box<dyn Watcher>);
    Ok(Installed {
        backends,
        listen: Box::new(listen),
        // kube-proxy's nftables tables went in our first transaction.
        take_over: Box::new(|| Ok(in_words(&iptables_tools::remove_leftovers()?))),
    })
}

fn in_words(removed: &Removed) -> Vec<String> {
    let tools = removed.tools.iter().filter(|tool| !tool.is_empty());
    tools.map(ToString::to_string).collect()
}

fn remove_tables(predecessors: bool) -> Result<Vec<String>, SyncError> {
    let mut nft = Nft::open()?;
    let mut removed = Vec::new();
    let others = PREDECESSORS.into_iter().filter(|_| predecessors);
    for table in [TABLE].into_iter().chain(others) {
        for family in Family::ALL {
            if nft.observe(family, table, &[])?.exists {
                nft.apply(&Transaction {
                    family,
                    table: table.into(),
                    ops: vec![Op::DeleteTable],
                    notes: Vec::new(),
                })?;
                removed.push(format!("{family} table {table}"));
            }
        }
    }
    Ok(removed)
}

impl Watcher for Monitor {
    fn wait(&mut self) -> Result<Option<Family>, SyncError> {
        match Self::wait(self)? {
            Change::Table { family, .. } => Ok(Some(family)),
            Change::Lost => Ok(None),
        }
    }
}
