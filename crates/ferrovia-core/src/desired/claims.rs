//! Which service port has an address and port that several services claim.
//!
//! The API server keeps cluster IPs and node ports unique, but external IPs are free text and files have no API server. A claim ranks by who
//! assigned it ([`Rank`]), so an author cannot list an address before the API server assigns it to another Service and keep it. Among equals the older
//! claim wins, so an address cannot be taken over by claiming it later. The loser loses only that frontend, and gets it once the winner goes.
//!
//! A node port is an address and port too, on each address of the node where node ports answer. Which addresses these are changes at any
//! time, so such a conflict is looked up when it matters ([`FrontendClaims::outcome`]) instead of being kept as a claim for each address.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use super::Frontend;
use crate::family::Family;
use crate::model::{CreationTime, PortKey, Protocol, ServiceKey};
use crate::store::Age;

/// A frontend that only one service port can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum FrontendClaim {
    /// An address with a port.
    Address(IpAddr, u16, Protocol),
    /// A port on the node's addresses of a family.
    NodePort(Family, u16, Protocol),
}

impl FrontendClaim {
    /// What a frontend needs to itself.
    pub(super) fn of(frontend: Frontend, family: Family, protocol: Protocol) -> Self {
        match frontend {
            Frontend::ClusterIp(address)
            | Frontend::ExternalIp(address)
            | Frontend::LoadBalancer(address) => {
                Self::Address(address.ip(), address.port(), protocol)
            }
            Frontend::NodePort(port) => Self::NodePort(family, port, protocol),
        }
    }
}

/// Who assigned what a service port claims. Sorts by precedence, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Rank {
    /// The API server: cluster IPs and node ports.
    ApiServer,
    /// A controller, in the Service's status: addresses of load balancers.
    Controller,
    /// The author of the Service, in free text: external IPs.
    Author,
}

impl Rank {
    /// Who assigns frontends of this type.
    pub(super) fn of(frontend: Frontend) -> Self {
        match frontend {
            Frontend::ClusterIp(_) | Frontend::NodePort(_) => Self::ApiServer,
            Frontend::LoadBalancer(_) => Self::Controller,
            Frontend::ExternalIp(_) => Self::Author,
        }
    }
}

/// A claim as one service port makes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stake {
    pub(super) claim: FrontendClaim,
    pub(super) port: PortKey,
    pub(super) rank: Rank,
}

/// Every claim and who makes it.
#[derive(Debug, Default)]
pub(super) struct FrontendClaims {
    claimants: HashMap<FrontendClaim, Claimants>,
    /// Losses that were already reported.
    reported: HashSet<(FrontendClaim, PortKey)>,
}

/// The winners that a change of claims affects.
#[derive(Debug, Default)]
pub(super) struct ClaimChanges {
    /// The services that won or lost something.
    pub(super) services: BTreeSet<ServiceKey>,
    /// The node ports that changed hands, which may matter to services that list the node's addresses.
    pub(super) node_ports: BTreeSet<(Family, u16, Protocol)>,
}

/// Whether a claimant wins its claim.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClaimOutcome {
    /// It gets the frontend.
    Wins,
    /// Another service port has it.
    Loses {
        to: PortKey,
        by: WinReason,
        /// It did not lose at the last check.
        is_new_loss: bool,
    },
}

/// Why a claimant wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WinReason {
    /// The API server assigned it the address.
    ClusterIp,
    /// The API server assigned it the port.
    NodePort,
    /// A controller assigned it the address.
    LoadBalancer,
    /// It is the older of equals.
    Age,
}

impl FrontendClaims {
    /// Replaces the claims of one service, each list sorted, and records affected winners.
    ///
    /// Claims that stay are left alone, so that a loss is reported only once.
    pub(super) fn restate(
        &mut self,
        old: &[Stake],
        new: &[Stake],
        age: Age,
        moved: &mut ClaimChanges,
    ) {
        let is_new = |stake| new.binary_search(stake).is_ok();
        let withdrawn = old.iter().filter(|stake| !is_new(stake));
        for stake in withdrawn.chain(new) {
            let claimants = self.claimants.entry(stake.claim).or_default();
            let before = claimants.winner().cloned();
            if old.binary_search(stake).is_ok() {
                claimants.withdraw(&stake.port);
            }
            if is_new(stake) {
                claimants.stake(Claimant::new(stake.port.clone(), stake.rank, age));
            } else {
                self.reported.remove(&(stake.claim, stake.port.clone()));
            }
            let after = claimants.winner();
            if before.as_ref() != after {
                let winners = before.iter().chain(after);
                let services = winners.map(|port| port.service.clone());
                moved.services.extend(services);
                if let FrontendClaim::NodePort(family, number, protocol) = stake.claim {
                    moved.node_ports.insert((family, number, protocol));
                }
            }
            if after.is_none() {
                self.claimants.remove(&stake.claim);
            }
        }
    }

    /// The winner of a claim.
    pub(super) fn winner(&self, claim: &FrontendClaim) -> Option<&PortKey> {
        self.claimants.get(claim)?.winner()
    }

    /// The other service port that wins this claim, and why.
    fn rival(&self, stake: &Stake) -> Option<(&PortKey, WinReason)> {
        let winner = self.claimants.get(&stake.claim)?.first()?;
        let basis = match winner.rank() {
            Rank::ApiServer if stake.rank > Rank::ApiServer => WinReason::ClusterIp,
            Rank::Controller if stake.rank > Rank::Controller => WinReason::LoadBalancer,
            _ => WinReason::Age,
        };
        (winner.port != stake.port).then_some((&winner.port, basis))
    }

    /// Another service port whose node port answers where this one claims an address.
    fn rival_node_port(
        &self,
        stake: &Stake,
        node_port: Option<&FrontendClaim>,
    ) -> Option<&PortKey> {
        let node_port = node_port.filter(|_| stake.rank > Rank::ApiServer)?;
        let winner = self.winner(node_port)?;
        (*winner != stake.port).then_some(winner)
    }

    /// Whether a claimant wins its claim. A node port that answers at the same address goes before claims of a lower rank, unless
    /// it is the same service port's.
    pub(super) fn outcome(
        &mut self,
        stake: &Stake,
        node_port: Option<&FrontendClaim>,
    ) -> ClaimOutcome {
        let by_node_port = || Some((self.rival_node_port(stake, node_port)?, WinReason::NodePort));
        let winner = self.rival(stake).or_else(by_node_port);
        let winner = winner.map(|(port, by)| (port.clone(), by));
        let key = || (stake.claim, stake.port.clone());
        match winner {
            Some((to, by)) => ClaimOutcome::Loses {
                to,
                by,
                is_new_loss: self.reported.insert(key()),
            },
            None => {
                if !self.reported.is_empty() {
                    self.reported.remove(&key());
                }
                ClaimOutcome::Wins
            }
        }
    }
}

/// The claimants of one claim: nearly always one, stored inline.
#[derive(Debug, Default)]
enum Claimants {
    #[default]
    None,
    One(Claimant),
    /// There are several, or were.
    Rivals(Box<Rivals>),
}

/// Several claimants of one claim.
#[derive(Debug, Default)]
struct Rivals {
    /// In order of rank and appearance.
    all: Vec<Claimant>,
    /// The place of the winner. Kept because thousands may claim one address, each asking who has it.
    winner: usize,
}

#[derive(Clone, Debug)]
struct Claimant {
    port: PortKey,
    created: Option<CreationTime>,
    /// The rank in the highest bits and the appearance in the others, which sorts by both: there may be a hundred thousand claims.
    order: u64,
}

impl Claimant {
    /// How many bits are the appearance's.
    const RANK_SHIFT: u32 = 62;

    fn new(port: PortKey, rank: Rank, age: Age) -> Self {
        let appeared = age.appeared.min((1 << Self::RANK_SHIFT) - 1);
        Self {
            port,
            created: age.created,
            order: (rank as u64) << Self::RANK_SHIFT | appeared,
        }
    }

    fn rank(&self) -> Rank {
        match self.order >> Self::RANK_SHIFT {
            0 => Rank::ApiServer,
            1 => Rank::Controller,
            _ => Rank::Author,
        }
    }
}

impl Claimants {
    fn winner(&self) -> Option<&PortKey> {
        self.first().map(|winner| &winner.port)
    }

    /// The one that wins.
    fn first(&self) -> Option<&Claimant> {
        match self {
            Self::None => None,
            Self::One(claimant) => Some(claimant),
            Self::Rivals(rivals) => rivals.all.get(rivals.winner),
        }
    }

    fn stake(&mut self, claimant: Claimant) {
        *self = match std::mem::take(self) {
            Self::None => Self::One(claimant),
            Self::One(first) => {
                let mut rivals = Box::<Rivals>::default();
                rivals.stake(first);
                rivals.stake(claimant);
                Self::Rivals(rivals)
            }
            Self::Rivals(mut rivals) => {
                rivals.stake(claimant);
                Self::Rivals(rivals)
            }
        };
    }

    fn withdraw(&mut self, port: &PortKey) {
        match self {
            Self::One(claimant) if claimant.port == *port => *self = Self::None,
            Self::Rivals(rivals) => rivals.withdraw(port),
            Self::None | Self::One(_) => {}
        }
    }
}

#[cfg(test)]
impl Claimants {
    fn all(&self) -> &[Claimant] {
        match self {
            Self::None => &[],
            Self::One(claimant) => std::slice::from_ref(claimant),
            Self::Rivals(rivals) => &rivals.all,
        }
    }
}

impl Rivals {
    fn stake(&mut self, claimant: Claimant) {
        let at = self
            .all
            .partition_point(|other| by_appearance(other, &claimant).is_lt());
        self.all.insert(at, claimant);
        self.find_winner(at);
    }

    fn withdraw(&mut self, port: &PortKey) {
        let place = self.all.iter().position(|claimant| claimant.port == *port);
        if let Some(place) = place {
            self.all.remove(place);
            self.find_winner(0);
        }
    }

    /// Updates the winner after the list changed from this index on.
    ///
    /// "Older" is not transitive where some have a creation time and some have none. The search goes through the list from the front, so
    /// the answer depends on who claims and not on who came to be looked at first. Who is last, as most newcomers are, has only to be
    /// compared with the winner so far.
    fn find_winner(&mut self, changed: usize) {
        let is_last = changed > 0 && changed + 1 == self.all.len();
        let (mut winner, first) = if is_last {
            (self.winner, changed)
        } else {
            (0, 0)
        };
        for (place, claimant) in self.all.iter().enumerate().skip(first) {
            if by_precedence(claimant, &self.all[winner]).is_lt() {
                winner = place;
            }
        }
        self.winner = winner;
    }
}

/// By rank, then by creation time where both have one, else by appearance; then by key, so that the answer is always the same.
fn by_precedence(a: &Claimant, b: &Claimant) -> Ordering {
    match (a.created, b.created) {
        (Some(x), Some(y)) => {
            let by_age = x.cmp(&y).then_with(|| a.port.cmp(&b.port));
            a.rank().cmp(&b.rank()).then(by_age)
        }
        _ => by_appearance(a, b),
    }
}

fn by_appearance(a: &Claimant, b: &Claimant) -> Ordering {
    a.order.cmp(&b.order).then_with(|| a.port.cmp(&b.port))
}

#[cfg(test)]
mod tests;
