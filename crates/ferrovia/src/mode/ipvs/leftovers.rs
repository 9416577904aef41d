//! Removing what the ipvs mode left, ours or kube-proxy's.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use ferrovia_core::dialect::ipvs::{IpvsOp, VirtualServerKey};
use ferrovia_core::family::Family;
use ferrovia_core::plan::Plan;
use ferrovia_core::plan::ipvs::{DEVICE, IpvsPlan, IpvsStep, cleanup};
use ferrovia_host::ipvs::{Ipvs, IpvsApplier};
use ferrovia_host::link::{self, DummyDevice};
use ferrovia_host::{Applier, addr, iptables, probe};

use crate::sync::backend::{SyncError, tell};

/// How often the connections that a removal waits for are read.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Removes virtual servers, the device, sets and chains, and returns what that was, in words. Chains that other modes have too stay.
///
/// Connections that go through a virtual server end with it, so this waits for them, but not longer than `patience`. There are no new
/// ones: packets that another mode translates never reach IPVS.
pub(super) fn remove(patience: Duration) -> Result<Vec<String>, SyncError> {
    // Without the device there is nothing of ours, and no module needs to be loaded to find that out.
    if !has_device()? {
        return Ok(Vec::new());
    }
    let mut leftovers = Leftovers::read()?;
    let connections = leftovers.wait_for_connections(patience)?;
    if connections > 0 {
        tracing::warn!(
            connections,
            "Removing virtual servers with open connections, which are cut off"
        );
    }
    leftovers.remove()
}

/// Whether the mode's device is there. With one of another kind by its name the mode cannot have run.
fn has_device() -> Result<bool, SyncError> {
    match DummyDevice::open(DEVICE)?.find() {
        Ok(number) => Ok(number.is_some()),
        Err(link::Error::Foreign { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What the mode left, of both families. All is read before anything is removed, because the device lists which servers are ours.
struct Leftovers {
    ipvs: Ipvs,
    families: Vec<(IpvsApplier, IpvsPlan)>,
}

impl Leftovers {
    fn read() -> Result<Self, SyncError> {
        let ipvs = Ipvs::open()?;
        let node: BTreeSet<IpAddr> = addr::local_addresses()?.into_iter().collect();
        let mut detected = iptables::detect(&probe::supported_families())?;
        let mut families = Vec::new();
        for family in Family::ALL {
            let Some(tool) = detected.tools[family].take() else {
                continue;
            };
            let mut applier = IpvsApplier::new(tool)?;
            let plan = cleanup(family, &applier.observe()?, &node);
            families.push((applier, plan));
        }
        Ok(Self { ipvs, families })
    }

    /// Waits until no connection is left, or for `patience`. Returns how many are left.
    fn wait_for_connections(&mut self, patience: Duration) -> Result<u64, SyncError> {
        let begin = Instant::now();
        let mut is_logged = false;
        loop {
            let left = patience.saturating_sub(begin.elapsed());
            let connections = self.connections()?;
            if connections == 0 || left.is_zero() {
                return Ok(connections);
            }
            if !std::mem::replace(&mut is_logged, true) {
                tracing::info!(
                    connections,
                    at_most = ?patience,
                    "Keeping the virtual servers of the ipvs mode until their connections end; new connections do not use them"
                );
            }
            thread::sleep(POLL_INTERVAL.min(left));
        }
    }

    fn connections(&mut self) -> Result<u64, SyncError> {
        let mut connections = 0;
        let servers: Vec<VirtualServerKey> = self.servers().collect();
        for server in servers {
            for to in self.ipvs.destinations(&server)? {
                connections += u64::from(to.active);
            }
        }
        Ok(connections)
    }

    /// The servers that go.
    fn servers(&self) -> impl Iterator<Item = VirtualServerKey> {
        let steps = self.families.iter().flat_map(|(_, plan)| &plan.steps);
        let ops = steps.filter_map(|step| match step {
            IpvsStep::Servers(ops) => Some(ops),
            _ => None,
        });
        ops.flatten().filter_map(|op| match op {
            IpvsOp::DeleteServer(key) => Some(*key),
            _ => None,
        })
    }

    fn remove(mut self) -> Result<Vec<String>, SyncError> {
        let servers = self.servers().count();
        for (applier, plan) in &mut self.families {
            tell(plan.notes());
            applier.apply(plan)?;
        }
        Ok(vec![format!(
            "{servers} virtual servers, the device {DEVICE}, and the chains and sets of the ipvs mode"
        )])
    }
}
