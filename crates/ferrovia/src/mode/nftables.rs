//! The nftables mode, put together for this machine.

use ferrovia_core::desired::Desired;
use ferrovia_core::dialect::nft::{NftObserved, NftOp, Transaction};
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::plan::nft::NftPlanner;
use ferrovia_core::plan::nft::layout::{PREDECESSORS, TABLE};
use ferrovia_core::plan::{ObservedPolicy, Planner};
use ferrovia_host::nft::{Monitor, Nft, NftApplier, NftConnection, RulesetChange};
use ferrovia_host::portals::Directory;
use ferrovia_host::{iptables, probe};

use super::remove::Steps;
use super::{Installed, Watcher};
use crate::sync::backend::{Backend, Pair, SyncError};

/// A planner that knows nothing of this machine.
pub(super) fn planner(family: Family) -> NftPlanner {
    NftPlanner::new(family, true)
}

/// What the mode would write into an empty kernel, as text.
pub(super) fn plan(desired: &Desired) -> String {
    planner(desired.family)
        .full(desired, &NftObserved::default(), ObservedPolicy::Adopt)
        .to_string()
}

/// Checks that the kernel has what the rules need, and opens the ways into it.
pub(super) fn install(counters: bool) -> Result<Installed, SyncError> {
    let families = probe::supported_families();
    probe::nftables(&families)?;
    let nft = Nft::open()?;
    let writer = nft.port_id();
    let connection = NftConnection::new(nft);
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
        read: None,
        // kube-proxy's nftables tables went in our first transaction.
        take_over: Box::new(|patience| {
            let mut steps = Steps::default();
            steps.add(super::ipvs::remove(patience));
            steps.add_chains(iptables::remove_leftovers());
            steps.add(super::userspace::remove());
            steps.end()
        }),
        proxies: Directory::default(),
        filled_sets: Some(connection),
    })
}

/// Removes our tables, and with `predecessors` those of kube-proxy's nftables mode too.
pub(super) fn remove(predecessors: bool) -> Result<Vec<String>, SyncError> {
    // What cannot be there need not go, and must not keep the rest from going.
    let Some(mut nft) = Nft::open_if_there()? else {
        return Ok(Vec::new());
    };
    let mut removed = Vec::new();
    let others = PREDECESSORS.into_iter().filter(|_| predecessors);
    for table in [TABLE].into_iter().chain(others) {
        for family in Family::ALL {
            let observed = nft.observe(family, table, &[])?;
            if observed.exists {
                nft.apply(&Transaction {
                    family,
                    table: table.into(),
                    ops: vec![NftOp::DeleteTable],
                    notes: Vec::new(),
                })?;
                let chains = observed.chains.len();
                removed.push(format!("{family} table {table} with {chains} chains"));
            }
        }
    }
    Ok(removed)
}

impl Watcher for Monitor {
    fn wait(&mut self) -> Result<Option<Family>, SyncError> {
        match Self::wait(self)? {
            RulesetChange::Table { family, .. } => Ok(Some(family)),
            RulesetChange::Lost => Ok(None),
        }
    }
}
