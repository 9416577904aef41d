//! The iptables language: what `iptables-save` prints, and what `iptables-restore` reads.
//!
//! [`parse`] turns a saved ruleset into tables, chains and rules; [`leftovers`] finds in one what a kube-proxy left behind and how to
//! remove it. Running the tools is left to the host crate. The same text serves IPv4 and IPv6: nothing here looks at addresses.

mod leftovers;
mod save;

pub use leftovers::{Commits, Removal, leftovers};
pub use save::{Chain, Rule, Table, parse};
