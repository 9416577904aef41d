//! The kernel's numbers for ipset over netlink, as far as we use them.

/// The protocol's version that we speak. Kernels since 2.6.39 do, and will: newer ones understand a range.
pub(super) const VERSION: u8 = 6;

/// The fixed header behind that of the message: family, version, a number that is not used here.
pub(super) const HEADER: [u8; 4] = [0; 4];

/// Message kinds: the subsystem's number in the upper byte.
pub(super) mod msg {
    const SUBSYSTEM: u16 = 6 << 8;
    pub(in super::super) const PROTOCOL: u16 = SUBSYSTEM | 1;
    pub(in super::super) const CREATE: u16 = SUBSYSTEM | 2;
    pub(in super::super) const DESTROY: u16 = SUBSYSTEM | 3;
    pub(in super::super) const SWAP: u16 = SUBSYSTEM | 6;
    pub(in super::super) const LIST: u16 = SUBSYSTEM | 7;
    pub(in super::super) const ADD: u16 = SUBSYSTEM | 9;
    pub(in super::super) const DELETE: u16 = SUBSYSTEM | 10;
    pub(in super::super) const TYPE: u16 = SUBSYSTEM | 13;
}

/// Attributes of a message.
pub(super) mod attr {
    pub(in super::super) const PROTOCOL: u16 = 1;
    pub(in super::super) const SET: u16 = 2;
    pub(in super::super) const TYPE: u16 = 3;
    /// The second name of a swap has the number of the type.
    pub(in super::super) const OTHER_SET: u16 = 3;
    pub(in super::super) const REVISION: u16 = 4;
    pub(in super::super) const FAMILY: u16 = 5;
    pub(in super::super) const FLAGS: u16 = 6;
    pub(in super::super) const DATA: u16 = 7;
    pub(in super::super) const ENTRIES: u16 = 8;
    /// The lowest version, or revision, that the kernel understands.
    pub(in super::super) const LOWEST: u16 = 10;
}

/// Attributes of an entry or of a set's header.
pub(super) mod data {
    pub(in super::super) const IP: u16 = 1;
    /// Also the first port of a bitmap.
    pub(in super::super) const PORT: u16 = 4;
    /// The last port of a bitmap.
    pub(in super::super) const PORT_TO: u16 = 5;
    pub(in super::super) const PROTOCOL: u16 = 7;
    /// Of a header.
    pub(in super::super) const HASH_SIZE: u16 = 18;
    /// Of a header.
    pub(in super::super) const MAX_ENTRIES: u16 = 19;
    /// Of an entry.
    pub(in super::super) const OTHER_IP: u16 = 20;
    /// Of an entry.
    pub(in super::super) const OTHER_PREFIX: u16 = 21;
    /// Of a header.
    pub(in super::super) const COUNT: u16 = 24;
}

/// Attributes of an address.
pub(super) mod address {
    pub(in super::super) const V4: u16 = 1;
    pub(in super::super) const V6: u16 = 2;
}

/// Marks an attribute whose value is in network byte order; the kernel insists on it.
pub(super) const NET_ORDER: u16 = 1 << 14;
/// A listing without entries.
pub(super) const HEADERS_ONLY: u32 = 1 << 2;

/// Errors of ipset's own.
pub(super) mod error {
    pub(in super::super) const VERSION: i32 = 4097;
    pub(in super::super) const NO_TYPE: i32 = 4098;
    pub(in super::super) const TOO_MANY_SETS: i32 = 4099;
    pub(in super::super) const IN_USE: i32 = 4100;
    pub(in super::super) const NAME_TAKEN: i32 = 4101;
    pub(in super::super) const OTHER_KIND: i32 = 4102;
    /// An entry that is to be added is there, or one to be deleted is not.
    pub(in super::super) const NOTHING_TO_DO: i32 = 4103;
    pub(in super::super) const REFERENCED: i32 = 4108;
    pub(in super::super) const FULL: i32 = 4352;
}
