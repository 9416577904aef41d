//! The API server's stand-in, asked by the plainest of clients.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod access;
mod client;
mod faults;
mod lists;
mod watches;
