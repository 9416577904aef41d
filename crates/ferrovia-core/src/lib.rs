//! The pure part of Ferrovia: API objects go in, the desired state of this node and plans for the kernel come out.
//!
//! ```text
//! Event ──▶ Store ──▶ Desired (per family) ──▶ Plan
//! ```
//!
//! Nothing in this crate does I/O, blocks, reads a clock or fails on input: an invalid object yields a [`Warning`](model::Warning). Our terms are in `docs/glossary.md`.
#![forbid(unsafe_code)]

pub mod desired;
pub mod dialect;
pub mod difference;
pub mod family;
pub mod model;
pub mod plan;
pub mod pod_name_hash;
pub mod store;
#[cfg(test)]
mod testing;
pub mod trace;
pub mod wire;
