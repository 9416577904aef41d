//! The kernel's numbers for connection tracking over netlink, as far as we use them.

/// Message kinds: the subsystem's number in the upper byte.
pub(super) mod msg {
    const SUBSYSTEM: u16 = 1 << 8;
    pub(in super::super) const NEW: u16 = SUBSYSTEM;
    pub(in super::super) const GET: u16 = SUBSYSTEM | 1;
    pub(in super::super) const DELETE: u16 = SUBSYSTEM | 2;
    /// `IPCTNL_MSG_CT_GET_STATS`.
    pub(in super::super) const GET_STATS: u16 = SUBSYSTEM | 5;
}

/// Attributes of the answer to [`msg::GET_STATS`].
pub(super) mod stats {
    /// `CTA_STATS_GLOBAL_ENTRIES`: how many entries the network namespace has.
    pub(in super::super) const GLOBAL_ENTRIES: u16 = 1;
}

/// The fixed header behind that of the message: family, version, a number that is not used here.
pub(super) const HEADER_LEN: usize = 4;

/// Attributes of an entry.
pub(super) mod entry {
    pub(in super::super) const ORIGINAL: u16 = 1;
    pub(in super::super) const REPLY: u16 = 2;
    pub(in super::super) const ID: u16 = 12;
    pub(in super::super) const ZONE: u16 = 18;
    /// Since Linux 5.8 for dumps; older kernels pass over it.
    pub(in super::super) const FILTER: u16 = 25;
}

/// Attributes of one direction of an entry.
pub(super) mod tuple {
    pub(in super::super) const IP: u16 = 1;
    pub(in super::super) const PROTOCOL: u16 = 2;
}

/// Addresses of a direction.
pub(super) mod ip {
    pub(in super::super) const V4_SOURCE: u16 = 1;
    pub(in super::super) const V4_DESTINATION: u16 = 2;
    pub(in super::super) const V6_SOURCE: u16 = 3;
    pub(in super::super) const V6_DESTINATION: u16 = 4;
}

/// Protocol and ports of a direction.
pub(super) mod protocol {
    pub(in super::super) const NUMBER: u16 = 1;
    pub(in super::super) const SOURCE_PORT: u16 = 2;
    pub(in super::super) const DESTINATION_PORT: u16 = 3;
}

/// Which parts of the two directions a filter compares.
pub(super) mod filter {
    pub(in super::super) const ORIGINAL_FLAGS: u16 = 1;
    pub(in super::super) const REPLY_FLAGS: u16 = 2;
    pub(in super::super) const IP_SOURCE: u32 = 1;
    pub(in super::super) const IP_DESTINATION: u32 = 1 << 1;
    pub(in super::super) const PROTOCOL_NUMBER: u32 = 1 << 3;
    pub(in super::super) const SOURCE_PORT: u32 = 1 << 4;
    pub(in super::super) const DESTINATION_PORT: u32 = 1 << 5;
}
