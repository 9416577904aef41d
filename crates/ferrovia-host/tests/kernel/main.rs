//! Against the real kernel, each test in a network namespace of its own.
//!
//! Needs root (or the right to make network namespaces) and the `nft` and `ip` tools; without them
//! the tests fail and say so.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

/// Whether anyone but us has written since we last looked.
mod applier;
/// Written by us, written by the tool, read back: anyway.
mod exchange;
/// Sets that packets fill.
mod filled;
/// Single elements, asked for by their keys.
mod look_up;
/// The monitor reports changes of other processes and not our own.
mod monitor;
/// Addresses, and what the kernel can do.
mod node;
/// What we would never write is noticed.
mod oddities;
/// The ruleset the tests write.
mod sample;
/// Namespaces and the tools.
mod support;
/// All or nothing, and what is said when it is nothing.
mod transactions;
