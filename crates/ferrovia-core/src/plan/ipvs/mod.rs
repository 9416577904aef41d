//! The ipvs mode: virtual servers of the kernel's own load balancer, with sets and rules round them.

mod plan;

pub use self::plan::{AddressOp, DEVICE, IpvsPlan, Observed, Step};
