//! Reading without writing: the answers behind `trace`, `plan`, `diff`, `verify`, `doctor`, `migrate` and `counters`.
//!
//! Commands and the admin API share these modules, so that both give the same answer.

pub mod counters;
pub mod doctor;
pub mod migrate;
pub mod query;
pub(crate) mod wrap;
