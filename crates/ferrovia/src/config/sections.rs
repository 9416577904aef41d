//! Modes have a section each, but there is one sync period. Which section it is read from and written to depends on the mode
//! ([`ConfigSection`]); in the other sections it has no effect and is cleared, so that a dump does not show it.

use super::duration::GoDuration;
use super::file::Document;
use crate::mode::{self, ConfigSection};

impl Document {
    /// The section of the mode. Without a mode it is that of the mode which kube-proxy uses then.
    pub(super) fn section(&self) -> &'static ConfigSection {
        mode::find(&self.mode)
            .unwrap_or(mode::KUBE_PROXY_DEFAULT)
            .config_section()
    }

    /// How often rules are checked.
    pub(super) fn sync_period_mut(&mut self) -> &mut GoDuration {
        (self.section().sync_period)(self)
    }

    /// The least time between two writes.
    pub(super) fn min_sync_period_mut(&mut self) -> &mut GoDuration {
        (self.section().min_sync_period)(self)
    }

    /// Masquerade everything to cluster IPs.
    pub(super) fn masquerade_all_mut(&mut self) -> &mut bool {
        (self.section().masquerade_all)(self)
    }

    /// The bit of the packet mark that asks for masquerading.
    pub(super) fn masquerade_bit(&self) -> Option<i32> {
        (self.section().masquerade_bit)(self)
    }

    /// Clears what has no effect in the mode there is.
    pub(super) fn clear_other_sections(&mut self) {
        let (sync_period, min_sync_period, masquerade_all) = (
            std::mem::take(self.sync_period_mut()),
            std::mem::take(self.min_sync_period_mut()),
            std::mem::take(self.masquerade_all_mut()),
        );
        for section in mode::ALL.map(|mode| mode.config_section()) {
            *(section.sync_period)(self) = GoDuration::ZERO;
            *(section.min_sync_period)(self) = GoDuration::ZERO;
            *(section.masquerade_all)(self) = false;
        }
        if !self.section().uses_port_range {
            self.port_range.clear();
        }
        *self.sync_period_mut() = sync_period;
        *self.min_sync_period_mut() = min_sync_period;
        *self.masquerade_all_mut() = masquerade_all;
    }
}
