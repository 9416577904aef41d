//! What the daemon serves: health checks, metrics, the admin API and the status page.
//!
//! [`health`] and [`metrics`] hold state and do no I/O; [`http`] serves them; [`admin`] answers queries on a unix socket, and [`web`] the page.

pub mod admin;
pub mod health;
pub mod http;
pub mod metrics;
pub mod web;
