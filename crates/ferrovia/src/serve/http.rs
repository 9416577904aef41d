//! The HTTP servers: health, metrics, and one health check for each Service that asks for it.
//!
//! All of them run on one single-threaded runtime and answer from shared state ([`Health`](crate::serve::health::Health),
//! [`Metrics`](crate::serve::metrics::Metrics)) without waiting for the sync loop. Anybody may reach their ports, so `server.rs` bounds what a
//! client can make us hold: header size, time, and the number of connections, of which the oldest goes first.

pub(crate) mod answer;
mod checks;
mod health;
pub(crate) mod host;
mod listen;
mod metrics;
pub(crate) mod pool;
pub(crate) mod server;
pub(crate) mod start;

pub use checks::{ServiceChecks, WantedChecks};
pub use health::serve_health;
pub use metrics::{Pages, SetVerbosity, serve_metrics};
pub use start::{Bind, BindError, Server};
