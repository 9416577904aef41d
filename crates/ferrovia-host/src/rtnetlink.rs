//! The kernel's numbers of route netlink, for all who speak it: links, addresses, routes.

/// Message kinds.
pub(crate) mod msg {
    pub(crate) const NEW_LINK: u16 = 16;
    pub(crate) const DEL_LINK: u16 = 17;
    pub(crate) const GET_LINK: u16 = 18;
    pub(crate) const NEW_ADDRESS: u16 = 20;
    pub(crate) const DEL_ADDRESS: u16 = 21;
    pub(crate) const GET_ADDRESS: u16 = 22;
    pub(crate) const NEW_ROUTE: u16 = 24;
    pub(crate) const GET_ROUTE: u16 = 26;
}

/// Links.
pub(crate) mod link {
    /// The fixed header of their messages: family, type, interface, flags, which flags count.
    pub(crate) const HEADER_LEN: usize = 16;
    pub(crate) const NAME: u16 = 3;
    pub(crate) const MTU: u16 = 4;
    pub(crate) const MASTER: u16 = 10;
    pub(crate) const QUEUE_LENGTH: u16 = 13;
    /// What it is, and what only links of that kind have.
    pub(crate) const INFO: u16 = 18;
    /// Inside the former.
    pub(crate) const INFO_KIND: u16 = 1;
    /// Inside the same.
    pub(crate) const INFO_DATA: u16 = 2;
    pub(crate) const NAMESPACE: u16 = 28;
    /// The kind of devices that exist to have addresses.
    pub(crate) const DUMMY: &str = "dummy";
}

/// Addresses of interfaces.
pub(crate) mod address {
    /// The fixed header of their messages: family, prefix length, flags, scope, interface.
    pub(crate) const HEADER_LEN: usize = 8;
    /// The address, or on a point-to-point link the peer's.
    pub(crate) const ADDRESS: u16 = 1;
    /// Our own end of a link.
    pub(crate) const LOCAL: u16 = 2;
    /// How long it may be used.
    pub(crate) const LIFETIME: u16 = 6;
    /// Who put it there; kernels before 5.18 do not keep that.
    pub(crate) const ORIGIN: u16 = 11;
    /// Who put it there, if that was our userspace mode without rules. The kernel itself uses 1 to 3.
    pub(crate) const OF_SERVICES: u8 = 0x66;
    /// In the header's flags: nobody need be asked whether it is taken, which for IPv6 takes a second.
    pub(crate) const NO_DETECTION: u8 = 2;
}
