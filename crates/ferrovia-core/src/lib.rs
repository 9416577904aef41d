//! The pure part of Ferrovia: API objects go in, the desired state of this node and plans for the kernel come out.
//!
//! ```text
//! Event ──▶ Store ──▶ Desired (per family) ──▶ Plan
//! ```
//!
//! Nothing in this crate does I/O, blocks, asks a clock or fails on input: a bad object is a [`Warning`](model::Warning) and the rest goes on.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod desired;
pub mod dialect;
pub mod difference;
pub mod family;
pub mod model;
pub mod plan;
pub mod pod;
pub mod store;
#[cfg(test)]
mod testing;
pub mod trace;
pub mod wire;
