//! Connection tracking: its limits are set at start by [`limits`], and stale UDP flows are cleaned up by a [`worker`] of their own.

pub mod limits;
pub mod worker;
