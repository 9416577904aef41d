//! The HTTP servers, over real sockets.
//!
//! - `health`: `/healthz` and `/livez`, and what happens when the port is taken.
//! - `checks`: the health checks of single Services.
//! - `pages`: everything the metrics server has besides metrics.
//! - `metrics`: what is measured. `table`: every series by name; docs and dashboard name what exists.
//! - `abuse`: clients that are slow, many or large.
//! - `exposition`, `support`: a reader of Prometheus' text, and a runtime as the daemon has it.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should fail there"
)]

mod abuse;
mod checks;
mod exposition;
mod health;
mod metrics;
mod pages;
mod support;
mod table;

use ferrovia_lab::plain_http as client;
