//! The settings that only one mode has, all modes' together.

use crate::config::file::Document;
use crate::config::validate::Checks;

use super::{IpvsSettings, UserspaceSettings};

/// The settings that only one mode has. A mode with settings of its own adds a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeSettings {
    /// Of the ipvs mode.
    pub ipvs: IpvsSettings,
    /// Of the userspace mode.
    pub userspace: UserspaceSettings,
}

impl ModeSettings {
    /// What the file and the flags say. Settings of modes that are not used are not checked, as in kube-proxy.
    pub(crate) fn of(checks: &mut Checks, document: &Document) -> Self {
        Self {
            ipvs: IpvsSettings::of(checks, document),
            userspace: UserspaceSettings::of(checks, document),
        }
    }
}
