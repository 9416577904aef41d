//! What a plan would change, for people who compare the kernel with the desired state.
//!
//! A full plan against the observed state *is* the comparison; this module only restates it as what is missing, what is
//! foreign, what is wrong. [`nft`], [`iptables`], [`ipvs`] and [`userspace`] do so for the plans of their modes, [`services`] for two
//! states of what is desired.

pub mod iptables;
pub mod ipvs;
pub mod nft;
pub mod services;
#[cfg(test)]
mod tests;
pub mod userspace;

use serde::{Deserialize, Serialize};

/// One kernel object that differs from the desired state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// What kind of difference it is.
    pub kind: DifferenceKind,
    /// Where: a table, set, map or chain.
    pub place: String,
    /// What is there and should not be, as text.
    pub found: Vec<String>,
    /// What should be there and is not, as text.
    pub wanted: Vec<String>,
}

/// How the kernel differs from the desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DifferenceKind {
    /// Something is not there.
    Missing,
    /// Something is there that should not be.
    Foreign,
    /// Something is there, but different.
    Wrong,
}

impl DifferenceKind {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Foreign => "foreign",
            Self::Wrong => "wrong",
        }
    }
}

impl Difference {
    /// The kind follows from which side is empty.
    fn new(place: String, found: Vec<String>, wanted: Vec<String>) -> Self {
        let kind = match (found.is_empty(), wanted.is_empty()) {
            (true, _) => DifferenceKind::Missing,
            (false, true) => DifferenceKind::Foreign,
            (false, false) => DifferenceKind::Wrong,
        };
        Self {
            kind,
            place,
            found,
            wanted,
        }
    }
}
