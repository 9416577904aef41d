//! The iptables language: what `iptables-save` prints, and what `iptables-restore` reads.
//!
//! [`parse`] turns a saved ruleset into tables, chains and rules; [`leftovers`] finds in one what a kube-proxy left behind and how to
//! remove it, [`leftovers_in_kernel`] the same in the kernel's own tables. [`IptablesRule`] is a rule to write and [`Restore`] the input that writes it. [`sim`] stands in for the kernel in tests. Running the
//! tools is left to the host crate. But for the few options that differ by family, the same text serves IPv4 and IPv6.

mod kernel_leftovers;
mod leftovers;
mod placeholder;
mod restore;
mod rule;
mod save;
pub mod sim;

pub use kernel_leftovers::{
    KernelChain, KernelRemoval, KernelRule, KernelTable, TABLES as KERNEL_TABLES,
    leftovers_in_kernel,
};
pub(crate) use leftovers::is_hashed_name;
pub use leftovers::{
    Commits, LeftoverRemoval, MARK_CHAIN, MARK_TABLE, is_kube_proxys, is_mark, leftovers,
    leftovers_besides,
};
pub use placeholder::PortName;
pub(crate) use placeholder::fill_in;
pub use restore::{Restore, RestoreSection, RuleCount, TableName};
pub use rule::{IptablesMatch, IptablesRule, IptablesTarget, Probability};
pub use save::{SavedChain, SavedRule, SavedTable, canonical, parse};
