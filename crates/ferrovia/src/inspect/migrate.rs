//! What would change if this node ran in the nftables mode, our default; `ferrovia migrate`.
//!
//! A pure comparison: the configuration read as the old mode reads it and as the new one does, the Services there are, and what the kernel
//! shows of their use ([`Evidence`], which `evidence.rs` gathers). Nothing is changed: the switch itself is a start in another mode, and
//! [`steps`] says how.

mod evidence;
mod hooks;
pub(crate) mod services;
pub(crate) mod settings;
pub mod steps;
pub mod text;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use ferrovia_core::desired::Desired;
use ferrovia_core::model::Service;
use serde::Serialize;

pub use evidence::{Evidence, gather};

use crate::config::Config;
use crate::mode::{self, ModeRef};

/// What changes for a node that leaves a mode; see [`Mode::migration`](crate::mode::Mode::migration).
#[derive(Debug)]
pub struct Migration {
    /// Services that behave differently.
    pub services: &'static [fn(&Node<'_>) -> Option<Change>],
    /// Settings that mean something else, or nothing.
    pub settings: &'static [fn(&Node<'_>) -> Option<Change>],
    /// What the new mode removes, as a sentence.
    pub removed: &'static str,
}

/// A mode that can be left.
#[derive(Clone, Copy, Debug)]
pub struct OldMode {
    /// The mode.
    pub mode: ModeRef,
    migration: &'static Migration,
}

impl OldMode {
    /// All of them, in the order of their names.
    pub fn all() -> impl Iterator<Item = Self> {
        mode::by_name().iter().filter_map(|mode| Self::of(*mode))
    }

    /// This mode, if `ferrovia migrate` supports it.
    pub fn of(mode: ModeRef) -> Option<Self> {
        let migration = mode.migration()?;
        Some(Self { mode, migration })
    }

    /// As the configuration spells it.
    pub fn name(self) -> &'static str {
        self.mode.name()
    }
}

/// A node, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    /// The mode it comes from.
    pub from: OldMode,
    /// The configuration as the old mode reads it.
    pub old: &'a Config,
    /// The same as the new mode reads it.
    pub new: &'a Config,
    /// Every Service.
    pub services: &'a [Arc<Service>],
    /// The desired state of this node, one for each family.
    pub desired: &'a [&'a Desired],
    /// What the kernel shows.
    pub evidence: &'a Evidence,
}

/// Something that would be different.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// A name for programs, which does not change.
    pub change: &'static str,
    /// The setting it comes from, if it comes from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setting: Option<&'static str>,
    /// The Services it concerns, as `namespace/name`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
    /// What is different.
    pub what: String,
    /// What to do to keep things as they are, or to be ready.
    #[serde(rename = "do")]
    pub remedy: String,
}

/// What would change for which Services.
pub fn changes(node: &Node<'_>) -> Vec<Change> {
    let mut changes = services::changes(node);
    changes.extend(settings::changes(node));
    changes.extend(hooks::changes(node));
    changes
}

/// The answer for programs.
pub fn to_json(from: OldMode, changes: &[Change]) -> serde_json::Value {
    serde_json::json!({
        "from": from.name(),
        "to": mode::DEFAULT.name(),
        "changes": changes,
    })
}
