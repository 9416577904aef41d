//! A namespace with a route, and short names for values.

use ferrovia_core::dialect::ipset::IpsetName;
use ferrovia_lab::namespace;
pub(crate) use ferrovia_lab::namespace::{feed as run_with, run};

/// Runs a closure in a fresh network namespace.
pub(crate) fn in_namespace<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    namespace::in_namespace(|| {
        // Without any route the kernel takes no address for one that packets could be sent to.
        run("ip link set lo up");
        test()
    })
}

pub(crate) fn name(text: &str) -> IpsetName {
    IpsetName::new(text).unwrap()
}
