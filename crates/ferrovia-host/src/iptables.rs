//! iptables, by the programs of the node.
//!
//! [`remove_leftovers`] removes what a kube-proxy left behind. For the iptables mode [`detect`] finds the tools and which of the kernel's
//! two rulesets this node uses, and [`IptablesApplier`] writes and reads with them. The legacy tools share a lock with all processes on the
//! machine (`lock.rs`). [`saved()`] reads all rulesets for people. `counters.rs` makes the kernel's named counters, `settings.rs` is about
//! the two kernel settings the mode depends on. What is to be written is decided in `ferrovia-core`.

mod applier;
mod counters;
mod detect;
mod leftovers;
mod legacy;
mod lock;
mod mark;
mod rules;
mod saved;
mod settings;
mod tool;

pub use applier::{Error as ApplyError, IptablesApplier};
pub use counters::{AcctCounter, AcctCounters};
pub use detect::{Detected, Error as DetectError, detect};
pub use leftovers::{
    Error as LeftoversError, IsOurs, RemovalFailure as LeftoversFailure, RemovedRules, RemovedWith,
    find_leftovers, remove_leftovers, remove_leftovers_beside, remove_marked,
};
pub use legacy::{LegacyTable, legacy_tables};
pub use lock::{LockError, LockUsage, Usage};
pub use mark::{is_any_marked, mark};
pub use rules::{Rules, RulesWritten};
pub use saved::{Saved, saved};
pub use settings::is_liberal;
pub use tool::{Backend, Tool};
