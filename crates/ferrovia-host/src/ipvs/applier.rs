//! The ipvs mode's way into the kernel: a device, sets, rules and virtual servers, in the order the planner says.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ferrovia_core::dialect::ipset::IpsetName;
use ferrovia_core::dialect::iptables::TableName;
use ferrovia_core::dialect::ipvs::{DestinationRemoval, IpvsOp, VirtualServerKey};
use ferrovia_core::family::Family;
use ferrovia_core::plan::ipvs::{AddressOp, DEVICE, IpvsObserved, IpvsPlan, IpvsStep};

use super::drain::Drain;
use super::tally::Tally;
use super::{Error, Ipvs};
use crate::Applier;
use crate::ipset::{self, Ipset};
use crate::iptables::{self, IptablesApplier, Tool};
use crate::link::{self, AddressChange, DummyDevice};

/// The chain whose absence means that the rules were removed. No other mode has it.
const CANARY: (TableName, &str) = (TableName::Filter, "KUBE-IPVS-FILTER");
/// What the names of our sets begin with, and of those the ones for IPv6.
const SETS: &str = "KUBE-";
const SETS_V6: &str = "KUBE-6-";

/// Why something could not be read or written. What was written before it stays: the next full sync compares everything.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error(transparent)]
    Device(#[from] link::Error),
    #[error(transparent)]
    Sets(#[from] ipset::Error),
    #[error(transparent)]
    Rules(#[from] iptables::ApplyError),
    #[error(transparent)]
    Servers(#[from] Error),
}

/// Writes one family's services.
#[derive(Debug)]
pub struct IpvsApplier {
    family: Family,
    device: DummyDevice,
    sets: Ipset,
    rules: IptablesApplier,
    ipvs: Ipvs,
    drain: Drain,
    /// Destinations of weight 0 that were found, for the plan that is made of what was found. We give none that weight but those that
    /// drain, so these do already.
    begun: BTreeSet<(VirtualServerKey, SocketAddr)>,
    /// What there should be; unknown before the first reading and after a failure.
    tally: Option<Tally>,
}

impl IpvsApplier {
    /// An applier whose rules this tool writes.
    ///
    /// # Errors
    /// If the kernel has no IPVS or no ipset.
    pub fn new(tool: Tool) -> Result<Self, ApplyError> {
        Ok(Self {
            family: tool.family,
            device: DummyDevice::open(DEVICE)?,
            sets: Ipset::open()?,
            ipvs: Ipvs::open()?,
            rules: IptablesApplier::new(tool).with_canary(CANARY.0, CANARY.1),
            drain: Drain::default(),
            begun: BTreeSet::new(),
            tally: None,
        })
    }

    /// Does a step; returns whether anything was written.
    fn step(&mut self, step: &IpvsStep) -> Result<bool, ApplyError> {
        match step {
            IpvsStep::Device => {
                self.device.ensure()?;
                self.count(|tally| {
                    tally.addresses.get_or_insert(0);
                });
            }
            IpvsStep::NoDevice => {
                if self.device.addresses()?.is_empty() {
                    self.device.remove()?;
                    self.count(|tally| tally.addresses = None);
                }
            }
            IpvsStep::Sets(ops) => {
                let idle = self.sets.apply(ops)?;
                self.count(|tally| tally.sets_changed(ops, &idle));
            }
            IpvsStep::Rules(restore) => {
                self.rules.apply(restore)?;
            }
            IpvsStep::Servers(ops) => return self.servers(ops),
            IpvsStep::Addresses(ops) => {
                let changes: Vec<_> = ops.iter().map(change).collect();
                let changed = self.device.change(&changes)?;
                self.count(|tally| tally.addresses_changed(changed));
            }
        }
        Ok(true)
    }

    /// Changes servers. Destinations that drain already are only taken note of.
    fn servers(&mut self, ops: &[IpvsOp]) -> Result<bool, ApplyError> {
        let new = ops.iter().filter(|op| !self.is_begun(op));
        let new: Vec<IpvsOp> = new.copied().collect();
        let applied = self.ipvs.apply(&new);
        self.drain.note(ops);
        let applied = applied?;
        self.count(|tally| tally.servers_changed(applied));
        Ok(!new.is_empty())
    }

    fn is_begun(&self, op: &IpvsOp) -> bool {
        match *op {
            IpvsOp::RemoveDestination {
                server,
                destination,
                removal: DestinationRemoval::Drain,
            } => self.begun.contains(&(server, destination)),
            _ => false,
        }
    }

    fn count(&mut self, change: impl FnOnce(&mut Tally)) {
        if let Some(tally) = &mut self.tally {
            change(tally);
        }
    }

    /// What there is now, in numbers.
    fn look(&mut self) -> Result<Tally, ApplyError> {
        Ok(Tally {
            addresses: self.addresses()?.map(|all| all.len()),
            servers: self.ipvs.servers(self.family)?.len(),
            sets: self.set_sizes()?,
        })
    }

    /// The addresses on the device, if it is there.
    fn addresses(&mut self) -> Result<Option<Vec<IpAddr>>, ApplyError> {
        if self.device.find()?.is_none() {
            return Ok(None);
        }
        let mut addresses = self.device.addresses()?;
        addresses.retain(|address| Family::of(*address) == self.family);
        Ok(Some(addresses))
    }

    fn set_sizes(&mut self) -> Result<BTreeMap<IpsetName, usize>, ApplyError> {
        let mut sizes = self.sets.sizes()?;
        sizes.retain(|name, _| is_ours(name, self.family));
        Ok(sizes)
    }
}

impl Applier for IpvsApplier {
    type Observed = IpvsObserved;
    type Plan = IpvsPlan;
    type Error = ApplyError;

    fn observe(&mut self) -> Result<IpvsObserved, ApplyError> {
        self.tally = None;
        self.begun.clear();
        let addresses = self.addresses()?;
        let mut servers = BTreeMap::new();
        for found in self.ipvs.servers(self.family)? {
            let key = found.server.key;
            let to = self.ipvs.destinations(&key)?;
            let idle = to.iter().filter(|to| to.weight == 0);
            self.begun.extend(idle.map(|to| (key, to.address)));
            let to = to.into_iter().map(|to| (to.address, to.weight)).collect();
            servers.insert(key, (found.server, to));
        }
        let mut sets = self.sets.list()?;
        sets.retain(|name, _| name.as_str().starts_with(SETS));
        let rules = self.rules.observe()?;
        self.tally = Some(Tally {
            addresses: addresses.as_ref().map(Vec::len),
            servers: servers.len(),
            sets: self.set_sizes()?,
        });
        Ok(IpvsObserved {
            device: addresses.is_some(),
            addresses: addresses.into_iter().flatten().collect(),
            servers,
            sets,
            rules,
        })
    }

    /// Does the steps in their order, up to the first that fails.
    fn apply(&mut self, plan: &IpvsPlan) -> Result<bool, ApplyError> {
        let mut is_written = false;
        for step in &plan.steps {
            match self.step(step) {
                Ok(written) => is_written |= written,
                Err(error) => {
                    self.tally = None;
                    return Err(error);
                }
            }
        }
        self.begun.clear();
        Ok(is_written)
    }

    /// Compares numbers. Another process who changes something without making more or less of it is noticed when the rules are compared, now and
    /// then.
    fn is_untouched(&mut self) -> Result<bool, ApplyError> {
        if self.tally.is_none() || !self.rules.is_untouched()? {
            return Ok(false);
        }
        let now = self.look()?;
        Ok(self.tally.as_ref() == Some(&now))
    }

    fn leftovers_after(&self) -> Option<Duration> {
        self.drain.pause()
    }

    fn tidy(&mut self) -> Result<bool, ApplyError> {
        Ok(self.drain.reap(&mut self.ipvs)? > 0)
    }
}

fn is_ours(name: &IpsetName, family: Family) -> bool {
    let name = name.as_str();
    name.starts_with(SETS) && name.starts_with(SETS_V6) == (family == Family::V6)
}

fn change(op: &AddressOp) -> AddressChange {
    match *op {
        AddressOp::Bind(address) => AddressChange::Bind(address),
        AddressOp::Unbind(address) => AddressChange::Unbind(address),
    }
}
