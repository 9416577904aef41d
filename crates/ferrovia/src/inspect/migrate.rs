//! What would change if this node ran in the nftables mode; `ferrovia migrate`.
//!
//! A pure comparison: the configuration read as the old mode reads it and as the new one does, the Services there are, and what the kernel
//! shows of their use ([`Evidence`], which `evidence.rs` gathers). Nothing is changed: the switch itself is a start in another mode, and
//! [`steps`] says how.

mod evidence;
mod hooks;
mod services;
mod settings;
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

/// The mode a node comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// kube-proxy's iptables mode, or ours.
    Iptables,
    /// kube-proxy's ipvs mode, or ours.
    Ipvs,
}

impl From {
    /// As the configuration spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::Ipvs => "ipvs",
        }
    }
}

/// All that is known.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    /// The mode it comes from.
    pub from: From,
    /// The configuration as the old mode reads it.
    pub old: &'a Config,
    /// The same as the nftables mode does.
    pub new: &'a Config,
    /// Every Service.
    pub services: &'a [Arc<Service>],
    /// What they amount to on this node, one for each family.
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

/// What would change for whom.
pub fn changes(node: &Node<'_>) -> Vec<Change> {
    let mut changes = services::changes(node);
    changes.extend(settings::changes(node));
    changes.extend(hooks::changes(node));
    changes
}

/// The answer for programs.
pub fn to_json(from: From, changes: &[Change]) -> serde_json::Value {
    serde_json::json!({
        "from": from.name(),
        "to": "nftables",
        "changes": changes,
    })
}
