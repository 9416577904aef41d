//! `ferrovia doctor` and `ferrovia migrate` as people run them, on nodes that have something.
//!
//! - `rules`: rules of Docker, of firewalld, of both iptables rulesets, of a kube-proxy
//! - `node`: ports, settings, the self-test, and what can be seen without rights
//! - `migrate`: what would change
//! - `cluster`: both with the objects of an API server
//!
//! Needs root, nft, iptables and setpriv.

mod cluster;
mod migrate;
mod node;
mod rules;
mod support;
