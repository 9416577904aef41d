//! Who has which address and port, where several services want the same.
//!
//! The API server keeps cluster IPs and node ports unique, but external IPs are free text and files have no API server. The older claim
//! wins, so nobody can take over an address by claiming it later; the loser loses only that frontend, and gets it once the winner goes.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use smallvec::SmallVec;

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
    claimants: HashMap<Claim, SmallVec<[Claimant; 1]>>,
}

/// One who makes a claim.
#[derive(Clone, Debug)]
struct Claimant {
    port: PortKey,
    age: Age,
    /// Its author has been told that it loses.
    told: bool,
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
    /// Replaces the claims of one service. Answers with the services that won or lost something by it.
    ///
    /// Claims that stay are left alone, so that a loser is told only once.
    pub(super) fn restate(
        &mut self,
        old: &BTreeSet<(Claim, PortKey)>,
        new: &BTreeSet<(Claim, PortKey)>,
        age: Age,
    ) -> BTreeSet<ServiceKey> {
        let mut moved = BTreeSet::new();
        for (claim, port) in old.union(new) {
            let before = self.winner(claim).cloned();
            let told = self
                .withdraw(claim, port)
                .is_some_and(|claimant| claimant.told);
            if new.contains(&(*claim, port.clone())) {
                self.stake(
                    *claim,
                    Claimant {
                        port: port.clone(),
                        age,
                        told,
                    },
                );
            }
            let after = self.winner(claim);
            if before.as_ref() != after {
                moved.extend(before.iter().chain(after).map(|port| port.service.clone()));
            }
        }
        moved
    }

    /// How a claim stands for one of those who make it.
    pub(super) fn standing(&mut self, claim: &Claim, port: &PortKey) -> Standing {
        let winner = self.winner(claim).filter(|winner| *winner != port).cloned();
        let own = self
            .claimants
            .get_mut(claim)
            .and_then(|all| all.iter_mut().find(|one| one.port == *port));
        let told = own.map(|own| std::mem::replace(&mut own.told, winner.is_some()));
        match winner {
            Some(to) => Standing::Loses {
                to,
                news: told != Some(true),
            },
            None => Standing::Wins,
        }
    }

    /// The oldest claimant.
    fn winner(&self, claim: &Claim) -> Option<&PortKey> {
        let claimants = self.claimants.get(claim)?;
        // "Older" is not transitive where some have a creation time and some have none. The list is kept in order of appearance and
        // the search goes through it from the front, so the answer depends on who claims and not on who came to be looked at first.
        claimants
            .iter()
            .min_by(|a, b| by_age(a, b))
            .map(|winner| &winner.port)
    }

    fn stake(&mut self, claim: Claim, claimant: Claimant) {
        let claimants = self.claimants.entry(claim).or_default();
        let at = claimants.partition_point(|other| by_appearance(other, &claimant).is_lt());
        claimants.insert(at, claimant);
    }

    fn withdraw(&mut self, claim: &Claim, port: &PortKey) -> Option<Claimant> {
        let claimants = self.claimants.get_mut(claim)?;
        let at = claimants
            .iter()
            .position(|claimant| claimant.port == *port)?;
        let claimant = claimants.remove(at);
        if claimants.is_empty() {
            self.claimants.remove(claim);
        }
        Some(claimant)
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
