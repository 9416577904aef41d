//! What the kernel counted: connections by service and endpoint, refusals by service. [`report`] is for people, [`totals`] for metrics,
//! [`kernel`] is where the modes find it.

pub mod kernel;
pub mod report;
pub mod totals;
