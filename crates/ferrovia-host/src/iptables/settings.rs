//! The two kernel settings that the iptables mode depends on. Both are of the network namespace.

use crate::sysctl::{Error, Files, Setting, Settings as _};

/// Conntrack is set to be liberal, so dropping what it cannot place would break what the administrator wants to work.
pub fn is_liberal() -> bool {
    Files::of_this_machine()
        .read(Setting::TCP_BE_LIBERAL)
        .is_ok_and(|value| value != 0)
}

/// Lets node ports answer on loopback. Only to be called when the rule is in force that keeps others from getting in that way.
pub(super) fn allow_localnet_routing() -> Result<(), Error> {
    Files::of_this_machine()
        .set(Setting::ROUTE_LOCALNET, 1)
        .map(drop)
}
