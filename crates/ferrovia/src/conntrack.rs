//! Connection tracking: its limits are set at start by [`limits`], stale UDP flows are cleaned up by a [`worker`] of their own, and [`fill`]
//! tells when there is no room for new ones.

pub mod fill;
pub mod limits;
pub mod worker;
