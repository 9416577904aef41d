//! The daemon as people run it: the real program in a node's namespace, objects from a folder or from an API server, packets from all
//! sides.
//!
//! - `follow`: what happens when files, addresses and objects change while it runs
//! - `restart`: ending, being killed, starting again
//! - `drift`: other people's hands in our tables
//! - `takeover`: kube-proxy was here before
//! - `iptables`: the same and more in the iptables mode
//! - `userspace`: connections through the daemon itself, and node ports on loopback
//! - `counters`: what is counted, for whom, and for how long
//! - `inspect`: commands that only look, from objects they read; `compare`: those that compare
//! - `asking`: the same commands, which ask the daemon
//! - `command`: exit codes, messages, privileges
//! - `cluster`: in the place of a kube-proxy
//! - `random`: any chain of changes ends like one full sync

mod asking;
mod cluster;
mod command;
#[path = "../common/mod.rs"]
mod common;
mod compare;
mod counters;
mod drift;
mod follow;
mod inspect;
mod iptables;
mod random;
mod restart;
mod support;
mod takeover;
mod userspace;
