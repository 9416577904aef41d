//! The configuration as used: parsed, checked, complete. What people type is in [`cli`](crate::cli).

use std::path::PathBuf;

use ferrovia_core::desired::Settings;

use crate::sync::Pace;

/// Everything a running proxy needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the objects come from.
    pub manifests: PathBuf,
    /// What shapes traffic.
    pub settings: Settings,
    /// How often things happen.
    pub pace: Pace,
    /// Elements in the kernel count connections.
    pub counters: bool,
    /// End after the first sync, whether it succeeded or not.
    pub once: bool,
}
