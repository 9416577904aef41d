//! What messages of all netfilter subsystems have in common: the message type with the subsystem in it, and the fixed header `nfgenmsg`.

/// Length of `struct nfgenmsg`.
pub const HEADER_LEN: usize = 4;

/// The message type of a subsystem's message: `NFNL_SUBSYS_*` in the upper byte.
pub const fn message_type(subsystem: u8, message: u8) -> u16 {
    u16::from_be_bytes([subsystem, message])
}

/// The subsystem (`NFNL_SUBSYS_*`) that a message type belongs to.
pub const fn subsystem(message_type: u16) -> u8 {
    message_type.to_be_bytes()[0]
}

/// A `struct nfgenmsg` for an address family (`AF_*` or `NFPROTO_*`).
pub const fn header(family: u8) -> [u8; HEADER_LEN] {
    [family, 0, 0, 0]
}

/// A `struct nfgenmsg` whose resource id names the subsystem, as the messages that begin and end a batch have it.
pub const fn batch_header(subsystem: u8) -> [u8; HEADER_LEN] {
    [libc::AF_UNSPEC as u8, 0, 0, subsystem]
}
