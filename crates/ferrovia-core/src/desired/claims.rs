//! Who has which address and port, where several services want the same.
//!
//! The API server keeps cluster IPs and node ports unique, but external IPs are free text and files have no API server. The older claim
//! wins, so nobody can take over an address by claiming it later; the loser loses only that frontend, and gets it once the winner goes.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use super::Frontend;
use crate::family::Family;
use crate::model::{PortKey, Protocol, ServiceKey};
use crate::store::Age;

/// What only one service port can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Claim {
    /// An address with a port.
    Address(IpAddr, u16, Protocol),
    /// A port on the node's addresses of a family.
    NodePort(Family, u16, Protocol),
}

impl Claim {
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

/// Every claim and who makes it.
#[derive(Debug, Default)]
pub(super) struct Claims {
    claimants: HashMap<Claim, Claimants>,
    /// Those whose author has been told that they lose.
    told: HashSet<(Claim, PortKey)>,
}

/// How a claim stands for one of its claimants.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has what it claims.
    Wins,
    /// Another has it.
    Loses {
        /// The one who has it.
        to: PortKey,
        /// It did not lose when it was last asked.
        news: bool,
    },
}

impl Claims {
    /// Replaces the claims of one service, each list sorted. Answers with the services that won or lost something by it.
    ///
    /// Claims that stay are left alone, so that a loser is told only once.
    pub(super) fn restate(
        &mut self,
        old: &[(Claim, PortKey)],
        new: &[(Claim, PortKey)],
        age: Age,
    ) -> BTreeSet<ServiceKey> {
        let mut moved = BTreeSet::new();
        let is_new = |entry| new.binary_search(entry).is_ok();
        let withdrawn = old.iter().filter(|entry| !is_new(entry));
        for entry @ (claim, port) in withdrawn.chain(new) {
            let claimants = self.claimants.entry(*claim).or_default();
            let before = claimants.winner().cloned();
            if old.binary_search(entry).is_ok() {
                claimants.withdraw(port);
            }
            if is_new(entry) {
                claimants.stake(Claimant {
                    port: port.clone(),
                    age,
                });
            } else {
                self.told.remove(entry);
            }
            let after = claimants.winner();
            if before.as_ref() != after {
                moved.extend(before.iter().chain(after).map(|port| port.service.clone()));
            }
            if after.is_none() {
                self.claimants.remove(claim);
            }
        }
        moved
    }

    /// How a claim stands for one of those who make it.
    pub(super) fn standing(&mut self, claim: &Claim, port: &PortKey) -> Standing {
        let winner = self.claimants.get(claim).and_then(Claimants::winner);
        let key = || (*claim, port.clone());
        match winner.filter(|winner| *winner != port) {
            Some(to) => Standing::Loses {
                to: to.clone(),
                news: self.told.insert(key()),
            },
            None => {
                if !self.told.is_empty() {
                    self.told.remove(&key());
                }
                Standing::Wins
            }
        }
    }
}

/// Those who make the same claim: nearly always one, who takes no room for others.
#[derive(Debug, Default)]
enum Claimants {
    #[default]
    Nobody,
    One(Claimant),
    /// There are several, or were.
    Rivals(Box<Rivals>),
}

/// Several who make the same claim.
#[derive(Debug, Default)]
struct Rivals {
    /// In order of appearance.
    all: Vec<Claimant>,
    /// The place of the oldest. Kept because thousands may claim one address, each asking who has it.
    winner: usize,
}

/// One who makes a claim.
#[derive(Clone, Debug)]
struct Claimant {
    port: PortKey,
    age: Age,
}

impl Claimants {
    fn winner(&self) -> Option<&PortKey> {
        let winner = match self {
            Self::Nobody => None,
            Self::One(claimant) => Some(claimant),
            Self::Rivals(rivals) => rivals.all.get(rivals.winner),
        };
        winner.map(|winner| &winner.port)
    }

    fn stake(&mut self, claimant: Claimant) {
        *self = match std::mem::take(self) {
            Self::Nobody => Self::One(claimant),
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
            Self::One(claimant) if claimant.port == *port => *self = Self::Nobody,
            Self::Rivals(rivals) => rivals.withdraw(port),
            Self::Nobody | Self::One(_) => {}
        }
    }
}

#[cfg(test)]
impl Claimants {
    fn all(&self) -> &[Claimant] {
        match self {
            Self::Nobody => &[],
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

    /// Looks for the oldest, now that the list is another from this place on.
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
            if by_age(claimant, &self.all[winner]).is_lt() {
                winner = place;
            }
        }
        self.winner = winner;
    }
}

/// By creation time where both have one, else by appearance; then by key, so that the answer is always the same.
fn by_age(a: &Claimant, b: &Claimant) -> Ordering {
    match (a.age.created, b.age.created) {
        (Some(x), Some(y)) => x.cmp(&y).then_with(|| a.port.cmp(&b.port)),
        _ => by_appearance(a, b),
    }
}

fn by_appearance(a: &Claimant, b: &Claimant) -> Ordering {
    a.age
        .appeared
        .cmp(&b.age.appeared)
        .then_with(|| a.port.cmp(&b.port))
}

#[cfg(test)]
mod tests;
