//! A stand-in for the kernel, and a strict one: what is there cannot be added, what is not cannot be deleted, and a set that a rule looks
//! into cannot go.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::{AddressOp, IpvsObserved, IpvsPlan, IpvsStep};
use crate::dialect::ipset::{self, IpsetName, IpsetType, ObservedIpset};
use crate::dialect::iptables::sim::IptablesSim as Rules;
use crate::dialect::ipvs::{DestinationRemoval, IpvsOp};
use crate::plan::iptables;

#[derive(Clone, Debug, Default)]
pub(super) struct IpvsSim {
    /// But for the rules.
    pub(super) state: IpvsObserved,
    pub(super) rules: Rules,
}

impl IpvsSim {
    pub(super) fn observed(&self) -> IpvsObserved {
        IpvsObserved {
            rules: iptables::IptablesObserved {
                save: self.rules.save(),
            },
            ..self.state.clone()
        }
    }

    /// Does what a plan says.
    pub(super) fn apply(&mut self, plan: &IpvsPlan) -> Result<(), String> {
        plan.steps.iter().try_for_each(|step| self.step(step))
    }

    /// Does one step. Between any two of them [`check`](Self::check) must hold.
    pub(super) fn step(&mut self, step: &IpvsStep) -> Result<(), String> {
        match step {
            IpvsStep::Device => {
                ok(!self.state.device, "device exists")?;
                self.state.device = true;
            }
            IpvsStep::NoDevice => {
                ok(self.state.device, "no device")?;
                ok(self.state.addresses.is_empty(), "it has addresses")?;
                self.state.device = false;
            }
            IpvsStep::Sets(ops) => {
                ok(!ops.is_empty(), "empty step")?;
                for op in ops {
                    self.set(op).map_err(|why| format!("{op}: {why}"))?;
                }
            }
            IpvsStep::Rules(restore) => {
                ok(!restore.is_empty(), "empty step")?;
                self.rules.restore(&restore.to_string())?;
                self.check_sets()?;
            }
            IpvsStep::Servers(ops) => {
                ok(!ops.is_empty(), "empty step")?;
                for op in ops {
                    self.server(op).map_err(|why| format!("{op}: {why}"))?;
                }
            }
            IpvsStep::Addresses(ops) => {
                ok(
                    !ops.is_empty() && self.state.device,
                    "empty step or no device",
                )?;
                for op in ops {
                    let done = match op {
                        AddressOp::Bind(ip) => self.state.addresses.insert(*ip),
                        AddressOp::Unbind(ip) => self.state.addresses.remove(ip),
                    };
                    ok(done, &format!("{op}: already so"))?;
                }
            }
        }
        Ok(())
    }

    /// The sets that rules look into.
    fn used(&self) -> BTreeSet<String> {
        let mut used = BTreeSet::new();
        for table in ["filter", "nat", "raw"] {
            for (_, rules) in self.rules.chains(table) {
                for rule in rules {
                    let mut words = rule.split(' ');
                    while words.any(|word| word == "--match-set") {
                        used.extend(words.next().map(str::to_owned));
                    }
                }
            }
        }
        used
    }

    fn check_sets(&self) -> Result<(), String> {
        let missing: Vec<String> = self
            .used()
            .into_iter()
            .filter(|name| {
                !IpsetName::new(name).is_some_and(|name| self.state.sets.contains_key(&name))
            })
            .collect();
        ok(missing.is_empty(), &format!("no sets {missing:?}"))
    }

    fn set(&mut self, op: &ipset::IpsetOp) -> Result<(), String> {
        let used = self.used();
        let sets = &mut self.state.sets;
        match op {
            ipset::IpsetOp::Create { set, kind, max } => {
                let max = if *kind == IpsetType::Port {
                    u32::MAX
                } else {
                    *max
                };
                let made = ObservedIpset {
                    kind: Some(*kind),
                    max,
                    entries: BTreeSet::new(),
                    has_others: false,
                };
                ok(sets.insert(set.clone(), made).is_none(), "exists")
            }
            ipset::IpsetOp::Add(name, entry) => {
                let set = sets.get_mut(name).ok_or("no such set")?;
                ok(set.kind.is_some_and(|kind| entry.is_of(kind)), "wrong kind")?;
                ok((set.entries.len() as u64) < u64::from(set.max), "full")?;
                ok(set.entries.insert(*entry), "exists")
            }
            ipset::IpsetOp::Delete(name, entry) => {
                let set = sets.get_mut(name).ok_or("no such set")?;
                ok(set.entries.remove(entry), "no such entry")
            }
            ipset::IpsetOp::Swap(one, other) => {
                let first = sets.remove(one).ok_or("no such set")?;
                let second = sets.remove(other).ok_or("no such set")?;
                ok(first.kind == second.kind, "kinds differ")?;
                sets.insert(other.clone(), first);
                sets.insert(one.clone(), second);
                Ok(())
            }
            ipset::IpsetOp::Destroy(name) => {
                ok(!used.contains(name.as_str()), "in use")?;
                ok(sets.remove(name).is_some(), "no such set")
            }
        }
    }

    /// A destination that drains is gone at once here: there are no connections.
    fn server(&mut self, op: &IpvsOp) -> Result<(), String> {
        let servers = &mut self.state.servers;
        match op {
            IpvsOp::PutServer(server) => {
                let there = servers
                    .entry(server.key)
                    .or_insert_with(|| (*server, BTreeMap::new()));
                there.0 = *server;
                Ok(())
            }
            IpvsOp::DeleteServer(key) => ok(servers.remove(key).is_some(), "no such server"),
            IpvsOp::PutDestination(key, destination) => {
                let (_, there) = servers.get_mut(key).ok_or("no such server")?;
                there.insert(destination.address, destination.weight);
                Ok(())
            }
            IpvsOp::RemoveDestination {
                server,
                destination,
                removal,
            } => {
                ok(
                    *removal == DestinationRemoval::of(server.protocol),
                    "wrong removal",
                )?;
                let (_, there) = servers.get_mut(server).ok_or("no such server")?;
                ok(there.remove(destination).is_some(), "no such destination")
            }
        }
    }
}

fn ok(is_so: bool, why: &str) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(why.to_owned()) }
}
