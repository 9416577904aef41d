//! iptables rules in the real kernel, by the node's own tools, both nft and legacy; each test in a network namespace of its own.
//!
//! Needs root (or the right to make network namespaces) and the iptables tools; without them the tests fail and say so.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

/// What others do to our rules, and what must not happen to theirs.
mod damage;
/// Which tools are used.
mod detect;
/// Failures half-way, and the lock.
mod faults;
/// The rules of the ipvs mode.
mod ipvs;
/// What a kube-proxy left behind goes, and nothing else.
mod leftovers;
/// Every shape of a service has kube-proxy's rules, written at once or step by step.
mod rules;
/// Namespaces, the tools, and a node under test.
mod support;
