//! What the kernel counted: connections by service and endpoint, refusals by service. [`report`] is for people, [`totals`] for metrics.

pub mod report;
pub mod totals;
