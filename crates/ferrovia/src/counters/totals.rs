//! Counts that only grow, as metrics must.
//!
//! The kernel counts pairs of a destination and the endpoint it led to, and forgets some: in nftables mode those that nobody used for a day,
//! in ipvs mode those whose endpoint went. What is summed here is the growth between two readings, so a sum never shrinks. Names are not
//! in the kernel's counts: the sync loop knows which service has which destination.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;

use ferrovia_core::desired::{Desired, Frontend, Refusal};
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::model::PortKey;
use ferrovia_core::plan::nft::count::Destination;

use crate::metrics::{Connections, Refused};
use crate::sync::backend::SyncError;
use crate::sync::{Engine, Input, Inputs, Question};

/// A loop that is this busy has other worries than metrics.
const PATIENCE: Duration = Duration::from_secs(5);

/// So many sums are kept of endpoints that the kernel has no counts of any more.
const REMEMBERED: usize = 100_000;

/// Reads what the kernel has counted.
pub trait Counts: Send {
    /// Everything, with how often it was counted.
    fn read(&mut self, family: Family) -> Result<HashMap<Counted, u64>, SyncError>;
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Counted {
    /// Where a client went.
    pub to: Destination,
    /// Who took it; none if nobody did.
    pub endpoint: Option<SocketAddr>,
}

/// Sums up what the kernel counts.
pub struct Totals {
    counts: Box<dyn Counts>,
    inputs: Inputs,
    seen: PerFamily<HashMap<Counted, u64>>,
    connections: BTreeMap<(Family, PortKey, SocketAddr), u64>,
    refused: BTreeMap<(Family, PortKey, bool), u64>,
}

/// What grew since the last reading.
struct Growth {
    of: Counted,
    by: u64,
}

/// Whose a destination is, and whether its packets are dropped rather than rejected while nobody takes them.
#[derive(Clone, Debug)]
struct Owner {
    key: PortKey,
    drops: bool,
}

impl Totals {
    /// Nothing read yet. The loop behind `inputs` is asked for names.
    pub fn new(counts: Box<dyn Counts>, inputs: Inputs) -> Self {
        Self {
            counts,
            inputs,
            seen: PerFamily::default(),
            connections: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    /// Reads the kernel's counts and tells all sums.
    pub fn read(&mut self, out: &mut Connections) -> Result<(), SyncError> {
        for family in Family::ALL {
            let growth = self.growth(family)?;
            self.add(family, growth)?;
        }
        self.tell(out);
        Ok(())
    }

    fn growth(&mut self, family: Family) -> Result<Vec<Growth>, SyncError> {
        let now = self.counts.read(family)?;
        let seen = &self.seen[family];
        let growth = now.iter().map(|(of, count)| {
            let before = seen.get(of).copied().unwrap_or_default();
            // What was forgotten and came back starts anew.
            let by = count.checked_sub(before).unwrap_or(*count);
            Growth { of: *of, by }
        });
        let growth = growth.filter(|growth| growth.by > 0).collect();
        self.seen[family] = now;
        Ok(growth)
    }

    fn add(&mut self, family: Family, growth: Vec<Growth>) -> Result<(), SyncError> {
        if growth.is_empty() {
            return Ok(());
        }
        let owners = self.owners(family, growth.iter().map(|growth| growth.of.to).collect())?;
        for Growth { of, by } in growth {
            // Whatever has no owner any more was counted for a service that went.
            let Some(owner) = owners.get(&of.to) else {
                continue;
            };
            let sum = match of.endpoint {
                Some(endpoint) => self
                    .connections
                    .entry((family, owner.key.clone(), endpoint))
                    .or_default(),
                None => self
                    .refused
                    .entry((family, owner.key.clone(), owner.drops))
                    .or_default(),
            };
            *sum = sum.saturating_add(by);
        }
        if self.connections.len() > REMEMBERED {
            self.connections.clear();
        }
        Ok(())
    }

    /// Asks the sync loop whose these destinations are.
    fn owners(
        &self,
        family: Family,
        wanted: HashSet<Destination>,
    ) -> Result<HashMap<Destination, Owner>, SyncError> {
        let (answer, answered) = mpsc::sync_channel(1);
        let question = Question::new(move |engine: &Engine| {
            let owners = engine
                .desired(family)
                .map(|desired| find_owners(desired, &wanted));
            let _ = answer.try_send(owners.unwrap_or_default());
        });
        self.inputs.send(Input::Ask(question))?;
        Ok(answered.recv_timeout(PATIENCE)?)
    }

    fn tell(&self, out: &mut Connections) {
        let mut services: BTreeMap<(Family, &PortKey), u64> = BTreeMap::new();
        for ((family, key, _), count) in &self.connections {
            *services.entry((*family, key)).or_default() += count;
        }
        for ((family, key), count) in services {
            out.service(family, key, count);
        }
        for ((family, key, drops), count) in &self.refused {
            let why = if *drops {
                Refused::NoLocalEndpoints
            } else {
                Refused::NoEndpoints
            };
            out.refused(*family, key, why, *count);
        }
        for ((family, key, endpoint), count) in &self.connections {
            out.endpoint(*family, key, *endpoint, *count);
        }
    }
}

fn find_owners(desired: &Desired, wanted: &HashSet<Destination>) -> HashMap<Destination, Owner> {
    let mut node_ports: HashMap<(u8, u16), Owner> = HashMap::new();
    let mut owners = HashMap::new();
    for (key, port) in &desired.ports {
        let protocol = port.protocol().number();
        for frontend in &port.frontends {
            let owner = || Owner {
                key: key.clone(),
                drops: port.refusal(*frontend) == Some(Refusal::Drop),
            };
            match frontend {
                Frontend::NodePort(number) => {
                    node_ports.insert((protocol, *number), owner());
                }
                other => {
                    let to = other.address().map(|at| Destination {
                        address: Some(at.ip()),
                        protocol,
                        port: at.port(),
                    });
                    if let Some(to) = to.filter(|to| wanted.contains(to)) {
                        owners.insert(to, owner());
                    }
                }
            }
        }
    }
    for to in wanted {
        if let Some(owner) = node_ports.get(&(to.protocol, to.port)) {
            owners.entry(*to).or_insert_with(|| owner.clone());
        }
    }
    owners
}
