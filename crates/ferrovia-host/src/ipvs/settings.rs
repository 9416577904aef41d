//! The kernel settings that the ipvs mode depends on.

use crate::probe::KernelVersion;
use crate::sysctl::{self, Setting, Settings};

/// A setting that the mode cannot do without could not be made.
#[derive(Debug, thiserror::Error)]
#[error("{cause}; set it on the host instead: {}", .setting.command(*.value))]
pub struct Error {
    pub setting: Setting,
    pub value: u64,
    /// Why it is not.
    pub cause: sysctl::Error,
}

/// Makes the settings, those that are not right already. Returns those that were changed.
///
/// # Errors
/// If one is wrong and cannot be changed.
pub fn make(
    settings: &impl Settings,
    kernel: Option<KernelVersion>,
    strict_arp: bool,
) -> Result<Vec<Setting>, Error> {
    let mut changed = Vec::new();
    for (setting, value) in wanted(kernel, strict_arp) {
        let before = settings.set(setting, value).map_err(|cause| Error {
            setting,
            value,
            cause,
        })?;
        changed.extend((before != value).then_some(setting));
    }
    Ok(changed)
}

fn wanted(kernel: Option<KernelVersion>, strict_arp: bool) -> Vec<(Setting, u64)> {
    let mut wanted = vec![
        // Masquerading of what goes through IPVS is done by conntrack.
        (Setting::IPVS_CONNTRACK, 1),
        // A connection whose destination is gone ends at its next packet, not by its timeout.
        (Setting::IPVS_EXPIRE_NODEST_CONN, 1),
        // A client whose destination drains is sent to another by its next connection.
        (Setting::IPVS_EXPIRE_QUIESCENT_TEMPLATE, 1),
        (Setting::IP_FORWARD, 1),
    ];
    // A port that a client uses again must not cost a second (before 5.9), nor lead to a destination that drains (0 before that).
    let reuse = KernelVersion(4, 1)..KernelVersion(5, 9);
    if kernel.is_some_and(|kernel| reuse.contains(&kernel)) {
        wanted.push((Setting::IPVS_CONN_REUSE_MODE, 0));
    }
    if strict_arp {
        // The device has the services' addresses, but this node must not answer ARP requests for them.
        wanted.push((Setting::ARP_IGNORE, 1));
        wanted.push((Setting::ARP_ANNOUNCE, 2));
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reuse_is_only_set_where_it_does_good() {
        let has_reuse = |version| {
            let wanted = wanted(version, false);
            wanted.contains(&(Setting::IPVS_CONN_REUSE_MODE, 0))
        };
        assert!(has_reuse(KernelVersion::parse("4.1.0")));
        assert!(has_reuse(KernelVersion::parse("5.8.18")));
        for version in ["4.0.9", "5.9.0", "6.18.44", "nonsense"] {
            assert!(!has_reuse(KernelVersion::parse(version)), "{version}");
        }
    }

    #[test]
    fn arp_is_only_touched_when_asked_for() {
        let names = |strict| wanted(None, strict).into_iter().map(|(setting, _)| setting);
        assert!(names(false).all(|setting| setting != Setting::ARP_IGNORE));
        assert!(names(true).any(|setting| setting == Setting::ARP_ANNOUNCE));
    }
}
