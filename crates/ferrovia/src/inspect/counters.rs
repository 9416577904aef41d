//! What the kernel counted: connections by service and endpoint, refusals by service. Each mode reads its own counters ([`Counts`]);
//! [`Totals`] makes series of them that only grow.

mod totals;

pub use self::totals::{Counted, Counts, Destination, Totals};
