//! The kernel's numbers for IPVS over generic netlink, as far as we use them.

/// The family's name, by which its number is asked for.
pub(super) const FAMILY: &str = "IPVS";
/// The family's version.
pub(super) const VERSION: u8 = 1;
/// The fixed header behind that of the message: command, version, two bytes for nothing.
pub(super) const HEADER_LEN: usize = 4;

/// The family that knows the others.
pub(super) mod control {
    pub(in super::super) const FAMILY: u16 = 16;
    pub(in super::super) const GET_FAMILY: u8 = 3;
    pub(in super::super) const ID: u16 = 1;
    pub(in super::super) const NAME: u16 = 2;
}

/// Commands.
pub(super) mod command {
    pub(in super::super) const NEW_SERVER: u8 = 1;
    pub(in super::super) const SET_SERVER: u8 = 2;
    pub(in super::super) const DELETE_SERVER: u8 = 3;
    pub(in super::super) const GET_SERVER: u8 = 4;
    pub(in super::super) const NEW_DESTINATION: u8 = 5;
    pub(in super::super) const SET_DESTINATION: u8 = 6;
    pub(in super::super) const DELETE_DESTINATION: u8 = 7;
    pub(in super::super) const GET_DESTINATION: u8 = 8;
    pub(in super::super) const SET_CONFIG: u8 = 12;
}

/// Attributes of a command.
pub(super) mod attr {
    pub(in super::super) const SERVER: u16 = 1;
    pub(in super::super) const DESTINATION: u16 = 2;
    pub(in super::super) const TIMEOUT_TCP: u16 = 4;
    pub(in super::super) const TIMEOUT_TCP_FIN: u16 = 5;
    pub(in super::super) const TIMEOUT_UDP: u16 = 6;
}

/// Attributes of a virtual server.
pub(super) mod server {
    pub(in super::super) const FAMILY: u16 = 1;
    pub(in super::super) const PROTOCOL: u16 = 2;
    pub(in super::super) const ADDRESS: u16 = 3;
    pub(in super::super) const PORT: u16 = 4;
    pub(in super::super) const MARK: u16 = 5;
    pub(in super::super) const SCHEDULER: u16 = 6;
    pub(in super::super) const FLAGS: u16 = 7;
    pub(in super::super) const TIMEOUT: u16 = 8;
    pub(in super::super) const NETMASK: u16 = 9;
    pub(in super::super) const STATS64: u16 = 12;
}

/// Attributes of a destination.
pub(super) mod destination {
    pub(in super::super) const ADDRESS: u16 = 1;
    pub(in super::super) const PORT: u16 = 2;
    pub(in super::super) const METHOD: u16 = 3;
    pub(in super::super) const WEIGHT: u16 = 4;
    pub(in super::super) const UPPER: u16 = 5;
    pub(in super::super) const LOWER: u16 = 6;
    pub(in super::super) const ACTIVE: u16 = 7;
    pub(in super::super) const INACTIVE: u16 = 8;
    pub(in super::super) const STATS64: u16 = 12;
}

/// Attributes of statistics.
pub(super) mod stats {
    pub(in super::super) const CONNECTIONS: u16 = 1;
    pub(in super::super) const PACKETS_IN: u16 = 2;
    pub(in super::super) const PACKETS_OUT: u16 = 3;
    pub(in super::super) const BYTES_IN: u16 = 4;
    pub(in super::super) const BYTES_OUT: u16 = 5;
}

/// A server's flag: clients stick to their destinations.
pub(super) const PERSISTENT: u32 = 1;
/// The way to a destination that rewrites addresses.
pub(super) const MASQUERADE: u32 = 0;
