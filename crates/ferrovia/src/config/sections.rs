//! Three modes have a section each, but there is one sync period. Which section it is read from and written to depends on the mode; in the other
//! sections it means nothing and is cleared, so that nobody reads it in a dump and believes it.

use super::duration::GoDuration;
use super::file::Document;

/// Which section counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Iptables,
    Ipvs,
    Nftables,
}

impl Document {
    /// An empty mode reads the section of the mode that kube-proxy takes it for.
    fn section(&self) -> Section {
        match self.mode.as_str() {
            "ipvs" => Section::Ipvs,
            "nftables" => Section::Nftables,
            _ => Section::Iptables,
        }
    }

    /// The name of the section the periods are in.
    pub(super) fn section_name(&self) -> &'static str {
        match self.section() {
            Section::Iptables => "iptables",
            Section::Ipvs => "ipvs",
            Section::Nftables => "nftables",
        }
    }

    /// How often rules are checked.
    pub(super) fn sync_period_mut(&mut self) -> &mut GoDuration {
        match self.section() {
            Section::Iptables => &mut self.iptables.sync_period,
            Section::Ipvs => &mut self.ipvs.sync_period,
            Section::Nftables => &mut self.nftables.sync_period,
        }
    }

    /// The least time between two writes.
    pub(super) fn min_sync_period_mut(&mut self) -> &mut GoDuration {
        match self.section() {
            Section::Iptables => &mut self.iptables.min_sync_period,
            Section::Ipvs => &mut self.ipvs.min_sync_period,
            Section::Nftables => &mut self.nftables.min_sync_period,
        }
    }

    /// Masquerade everything to cluster IPs. The ipvs mode has no such field of its own.
    pub(super) fn masquerade_all_mut(&mut self) -> &mut bool {
        match self.section() {
            Section::Iptables | Section::Ipvs => &mut self.iptables.masquerade_all,
            Section::Nftables => &mut self.nftables.masquerade_all,
        }
    }

    /// The same, to be read.
    pub(super) fn masquerade_all(&self) -> bool {
        match self.section() {
            Section::Iptables | Section::Ipvs => self.iptables.masquerade_all,
            Section::Nftables => self.nftables.masquerade_all,
        }
    }

    /// The masquerade bit. The ipvs mode has no such field of its own.
    pub(super) fn masquerade_bit(&self) -> Option<i32> {
        match self.section() {
            Section::Iptables | Section::Ipvs => self.iptables.masquerade_bit,
            Section::Nftables => self.nftables.masquerade_bit,
        }
    }

    /// Clears what does not count in the mode there is.
    pub(super) fn clear_other_sections(&mut self) {
        let (sync_period, min_sync_period, masquerade_all) = (
            std::mem::take(self.sync_period_mut()),
            std::mem::take(self.min_sync_period_mut()),
            std::mem::take(self.masquerade_all_mut()),
        );
        for period in [
            &mut self.iptables.sync_period,
            &mut self.iptables.min_sync_period,
            &mut self.ipvs.sync_period,
            &mut self.ipvs.min_sync_period,
            &mut self.nftables.sync_period,
            &mut self.nftables.min_sync_period,
        ] {
            *period = GoDuration::ZERO;
        }
        self.iptables.masquerade_all = false;
        self.nftables.masquerade_all = false;
        if self.mode != "userspace" {
            self.port_range.clear();
        }
        *self.sync_period_mut() = sync_period;
        *self.min_sync_period_mut() = min_sync_period;
        *self.masquerade_all_mut() = masquerade_all;
    }
}
