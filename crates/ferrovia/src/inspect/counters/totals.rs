//! Counts that only grow, as metrics must.
//!
//! The kernel counts pairs of a destination and the endpoint it led to, and forgets some: in nftables mode those not used for a day,
//! in ipvs mode those whose endpoint went. What is summed here is the growth between two readings, so a sum never shrinks. Names are not
//! in the kernel's counts: the sync loop knows which service has which destination.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ferrovia_core::desired::{Desired, Frontend, RefusalAction};
use ferrovia_core::family::{Family, PerFamily};
use ferrovia_core::model::PortKey;
use flume::SendTimeoutError;

use crate::serve::metrics::{Connections, Refused};
use crate::sync::backend::SyncError;
use crate::sync::{Engine, Input, Inputs, Question};

/// A loop that is this busy has other worries than metrics.
const PATIENCE: Duration = Duration::from_secs(5);
const BUSY: &str = "the sync loop is too busy to say whose connections these are";

/// So many sums of a kind are kept, of services and endpoints that went too. With more, those go that have not grown for longest.
const REMEMBERED: usize = 100_000;
/// How many are kept then, so that this is not done at every reading.
const KEPT: usize = REMEMBERED / 10 * 9;

/// A reading that took longer than this is a burden for the kernel.
const SLOW: Duration = Duration::from_millis(200);
/// After a slow one the last sums are reported for so many times as long as it took.
const REST_FACTOR: u32 = 10;

/// Reads what the kernel has counted.
pub trait Counts: Send {
    /// Everything, with how often it was counted.
    fn read(&mut self, family: Family) -> Result<HashMap<Counted, u64>, SyncError>;
}

/// Where a client connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    /// The address; none for a node port on whichever address.
    pub address: Option<IpAddr>,
    /// The protocol's number.
    pub protocol: u8,
    /// The port.
    pub port: u16,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Counted {
    /// Where a client went.
    pub to: Destination,
    /// The endpoint; none if the packet was refused.
    pub endpoint: Option<SocketAddr>,
}

/// Sums up what the kernel counts.
pub struct Totals {
    counts: Box<dyn Counts>,
    inputs: Inputs,
    seen: PerFamily<HashMap<Counted, u64>>,
    connections: BTreeMap<(Family, PortKey, SocketAddr), Sum>,
    refused: BTreeMap<(Family, PortKey, bool), Sum>,
    /// The number of the present reading.
    reading: u64,
    /// Until then the last sums are good enough.
    rest_until: Option<Instant>,
}

/// A sum of growth.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: u64,
    /// The reading in which it last grew.
    grew: u64,
}

/// What grew since the last reading.
struct Growth {
    of: Counted,
    by: u64,
}

/// The service port of a destination, and whether its packets are dropped rather than rejected without endpoints.
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
            reading: 0,
            rest_until: None,
        }
    }

    /// Reads the kernel's counts and reports all sums. Where reading is slow, not every time: a scrape must stay fast, and the kernel has
    /// other work.
    pub fn read(&mut self, out: &mut Connections) -> Result<(), SyncError> {
        let start = Instant::now();
        if self.rest_until.is_none_or(|rest_until| start >= rest_until) {
            self.read_kernel()?;
            let took = start.elapsed();
            self.rest_until = (took > SLOW).then(|| Instant::now() + took * REST_FACTOR);
        }
        self.report(out);
        Ok(())
    }

    fn read_kernel(&mut self) -> Result<(), SyncError> {
        self.reading += 1;
        for family in Family::ALL {
            let now = self.counts.read(family)?;
            self.add(family, growth(&self.seen[family], &now))?;
            // Only now: if names were missing, the growth is counted the next time.
            self.seen[family] = now;
        }
        Ok(())
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
            sum.count = sum.count.saturating_add(by);
            sum.grew = self.reading;
        }
        forget_if_many(&mut self.connections);
        forget_if_many(&mut self.refused);
        Ok(())
    }

    /// Asks the sync loop whose these destinations are.
    fn owners(
        &self,
        family: Family,
        destinations: HashSet<Destination>,
    ) -> Result<HashMap<Destination, Owner>, SyncError> {
        let deadline = Instant::now() + PATIENCE;
        let (answer, answered) = mpsc::sync_channel(1);
        let question = Question::new(move |engine: &Engine| {
            let owners = engine
                .desired(family)
                .map(|desired| find_owners(desired, &destinations));
            let _ = answer.try_send(owners.unwrap_or_default());
        });
        self.inputs
            .send_deadline(Input::Ask(question), deadline)
            .map_err(|error| match error {
                SendTimeoutError::Timeout(_) => SyncError::from(BUSY),
                SendTimeoutError::Disconnected(_) => error.into(),
            })?;
        let left = deadline.saturating_duration_since(Instant::now());
        Ok(answered.recv_timeout(left).map_err(|_| BUSY)?)
    }

    fn report(&self, out: &mut Connections) {
        let mut services: BTreeMap<(Family, &PortKey), u64> = BTreeMap::new();
        for ((family, key, _), count) in &self.connections {
            *services.entry((*family, key)).or_default() += count.count;
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
            out.refused(*family, key, why, count.count);
        }
        for ((family, key, endpoint), count) in &self.connections {
            out.endpoint(*family, key, *endpoint, count.count);
        }
    }
}

/// What has been counted since.
fn growth(before: &HashMap<Counted, u64>, now: &HashMap<Counted, u64>) -> Vec<Growth> {
    let growth = now.iter().map(|(of, count)| {
        let before = before.get(of).copied().unwrap_or_default();
        // A count that was removed and came back starts from zero.
        let by = count.checked_sub(before).unwrap_or(*count);
        Growth { of: *of, by }
    });
    growth.filter(|growth| growth.by > 0).collect()
}

/// Makes room by forgetting the sums that have not grown for longest. All others stay: a series must not vanish because of others.
fn forget_if_many<K: Ord + Clone>(sums: &mut BTreeMap<K, Sum>) {
    if sums.len() <= REMEMBERED {
        return;
    }
    let mut by_age: Vec<(u64, K)> = sums
        .iter()
        .map(|(key, sum)| (sum.grew, key.clone()))
        .collect();
    by_age.sort_unstable();
    for (_, key) in by_age.drain(..sums.len() - KEPT) {
        sums.remove(&key);
    }
}

fn find_owners(
    desired: &Desired,
    destinations: &HashSet<Destination>,
) -> HashMap<Destination, Owner> {
    let mut node_ports: HashMap<(u8, u16), Owner> = HashMap::new();
    let mut owners = HashMap::new();
    for (key, port) in &desired.ports {
        let protocol = port.protocol().number();
        for frontend in &port.frontends {
            let owner = || Owner {
                key: key.clone(),
                drops: port.refusal(*frontend) == Some(RefusalAction::Drop),
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
                    if let Some(to) = to.filter(|to| destinations.contains(to)) {
                        owners.insert(to, owner());
                    }
                }
            }
        }
    }
    for to in destinations {
        if let Some(owner) = node_ports.get(&(to.protocol, to.port)) {
            owners.entry(*to).or_insert_with(|| owner.clone());
        }
    }
    owners
}

#[cfg(test)]
mod tests;
