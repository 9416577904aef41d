//! Cleaning up flows in the real kernel's table, each test in a network namespace of its own.
//!
//! Needs root (or the right to make network namespaces) and the `ip` and `nft` tools; without them the tests fail and say so.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

/// Flows go and stay as they should.
mod cleaning;
/// Large tables: bulk deletes, time and memory.
mod large;
/// Kernel settings, where they can and cannot be written.
mod settings;
/// Namespaces, tables, memory.
mod support;
/// Reading and deleting, below any judgement.
mod table;
