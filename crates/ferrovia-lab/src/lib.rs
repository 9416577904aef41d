//! Test support: a cluster of network namespaces (a node, its pods, a second node and an outside client), and everything that tests of
//! several crates share.
//!
//! Networks and packets:
//! - [`layout`]: the hosts of the lab and their addresses
//! - [`world`]: creates the namespaces, runs code and programs inside, removes them
//! - `servers`: the servers on the pods' addresses
//! - [`client`]: one call from one host, and its outcome
//! - [`flood`]: packets from spoofed addresses
//!
//! Case files. They do not depend on how the node's kernel is programmed, so that every mode, and kube-proxy, runs the same flows:
//! - `document`: a text of named sections that is written back byte for byte
//! - [`case`]: a document parsed as a test case of several steps
//! - [`flow`]: the lines of a `flows` section, as values
//! - [`run`]: runs flows in a world; `judge`: compares outcomes with expectations
//!
//! Clusters and their objects:
//! - [`apiserver`]: a simulated Kubernetes API server, with faults to inject
//! - [`control_plane`]: a real kube-apiserver with etcd
//! - [`random_cluster`]: random but valid clusters
//! - [`kube_proxy_rules`]: Services and the iptables rules that kube-proxy writes for them
//!
//! The daemon and its kernel:
//! - [`daemon`]: a node that runs `ferrovia`, and assertions about it
//! - [`conntrack`]: creates conntrack entries
//! - [`uml`]: boots user-mode Linux, for features that the machine's kernel lacks
//!
//! Tools for any test:
//! - [`folder`], [`waiting`], [`namespace`], [`plain_http`]: temporary folders, waiting for conditions, a network namespace, HTTP requests
//! - [`cgroup`]: a memory limit, as containers have one
//! - [`fuzz`]: mutated inputs for parsers; [`random`]: pseudo-random numbers
//! - [`interrupt`]: Ctrl-C as a value, for programs that clean up before they exit
//!
//! Creating a world requires root, or the right to create a user namespace, which every program with this crate enters before `main`
//! ([`rootless`]). Without either [`world::World::new`] returns an error; no test is skipped.
#![allow(
    missing_docs,
    reason = "test support of this workspace: names that need no explanation have none"
)]

pub mod apiserver;
pub mod case;
pub mod cgroup;
pub mod client;
pub mod conntrack;
pub mod control_plane;
pub mod daemon;
mod document;
pub mod flood;
pub mod flow;
pub mod folder;
pub mod fuzz;
pub mod interrupt;
mod iproute;
mod judge;
pub mod kube_proxy_rules;
pub mod layout;
pub mod namespace;
mod neighbours;
mod netns;
pub mod plain_http;
pub mod random;
pub mod random_cluster;
pub mod rootless;
pub mod run;
mod sctp;
mod servers;
mod sys;
pub mod uml;
pub mod waiting;
mod wiring;
pub mod world;

pub use case::Case;
pub use client::{Answer, Outcome};
pub use flow::Line;
pub use folder::Folder;
pub use layout::{ClientHost, Pod, Protocol, Role};
pub use run::{Patience, Session};
pub use world::{Spec, World};
