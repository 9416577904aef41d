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
//! - `filled_sets`: sets that packets fill: what gets in, what goes when a service goes or a set is full
//! - `upgrade`: tables of earlier versions, taken over and given back
//! - `inspect`: commands that only look, from objects they read; `compare`: those that compare
//! - `asking`: the same commands, which ask the daemon
//! - `command`: exit codes, messages, privileges
//! - `cluster`: in the place of a kube-proxy
//! - `owner`: two daemons on one node

mod asking;
mod cluster;
mod command;
mod compare;
mod counters;
mod drift;
mod filled_sets;
mod follow;
mod inspect;
mod iptables;
mod owner;
mod restart;
mod takeover;
mod upgrade;
mod userspace;

/// The program under test.
const FERROVIA: &str = env!("CARGO_BIN_EXE_ferrovia");
