//! The settings that all modes have are in a section per mode of the configuration file, for some modes in that of another one.

use crate::config::duration::GoDuration;
use crate::config::file::Document;
use crate::config::flags::{Periods, Typed};

/// Where the settings of a mode are in the configuration file that all modes have, and how they are read. Data, so that a mode can take that of
/// another one and change a field.
#[derive(Clone, Copy, Debug)]
pub struct ConfigSection {
    /// The section with the periods.
    pub name: &'static str,
    /// How often rules are checked.
    pub sync_period: fn(&mut Document) -> &mut GoDuration,
    /// The least time between two writes.
    pub min_sync_period: fn(&mut Document) -> &mut GoDuration,
    /// kube-proxy's flags that set these two.
    pub period_flags: fn(&Typed) -> Periods,
    /// Masquerade everything to cluster IPs.
    pub masquerade_all: fn(&mut Document) -> &mut bool,
    /// The field with the bit of the packet mark that asks for masquerading.
    pub masquerade_bit_field: &'static str,
    /// Its value.
    pub masquerade_bit: fn(&Document) -> Option<i32>,
    /// `noEndpoints: drop` uses a bit of the packet mark.
    pub drops_by_mark: bool,
    /// Empty `nodePortAddresses` mean `primary`.
    pub defaults_to_primary_addresses: bool,
    /// `portRange` is used; in other modes it is cleared, as in kube-proxy.
    pub uses_port_range: bool,
}
