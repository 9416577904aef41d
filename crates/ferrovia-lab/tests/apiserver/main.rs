//! The simulated API server, with a minimal client.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod access;
mod client;
mod faults;
mod lists;
mod watches;
