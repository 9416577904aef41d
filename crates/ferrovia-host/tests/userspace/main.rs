//! The userspace engine with real sockets, each test in a network namespace of its own.
//!
//! Needs root (or the right to make network namespaces) and the `ip` tool; without them the tests fail and say so.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

/// Changes of endpoints and listeners, and whom they do not concern.
mod changes;
/// Who gets which endpoint.
mod choice;
/// Endpoints that refuse, hang, reset; clients that do.
mod faults;
/// Clients that are distinguished by their address.
mod gates;
/// Addresses that pass from one proxy to another.
mod handover;
/// Where service addresses are put.
mod interface;
/// Very many connections, and too many.
mod limits;
/// Namespaces, servers, waiting.
mod support;
/// Bytes both ways, and their ends.
mod tcp;
/// Datagrams.
mod udp;
