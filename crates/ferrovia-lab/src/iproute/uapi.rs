//! The kernel's numbers for links, addresses, routes and neighbours.

// Kinds of messages.
pub(super) const NEW_LINK: u16 = 16;
pub(super) const GET_LINK: u16 = 18;
pub(super) const NEW_ADDRESS: u16 = 20;
pub(super) const NEW_ROUTE: u16 = 24;
pub(super) const NEW_NEIGHBOUR: u16 = 28;
// An acknowledgement, or a refusal.
pub(super) const ANSWER: u16 = 2;

// Flags of messages.
pub(super) const REQUEST: u16 = 0x1;
pub(super) const ACKNOWLEDGE: u16 = 0x4;
pub(super) const NEW_ONLY: u16 = 0x200 | 0x400;

// Attributes of links.
pub(super) const LINK_NAME: u16 = 3;
pub(super) const LINK_MASTER: u16 = 10;
pub(super) const LINK_STATE: u16 = 16;
pub(super) const LINK_INFO: u16 = 18;
pub(super) const LINK_NAMESPACE: u16 = 28;
pub(super) const INFO_KIND: u16 = 1;
pub(super) const INFO_DATA: u16 = 2;
pub(super) const INFO_PORT_KIND: u16 = 4;
pub(super) const INFO_PORT_DATA: u16 = 5;
pub(super) const VETH_PEER: u16 = 1;
pub(super) const PORT_HAIRPIN: u16 = 4;

// Attributes of addresses, routes and neighbours.
pub(super) const ADDRESS: u16 = 1;
pub(super) const ADDRESS_LOCAL: u16 = 2;
pub(super) const ADDRESS_LIFETIME: u16 = 6;
pub(super) const ROUTE_TO: u16 = 1;
pub(super) const ROUTE_LINK: u16 = 4;
pub(super) const ROUTE_GATEWAY: u16 = 5;
pub(super) const ROUTE_SOURCE: u16 = 7;
pub(super) const NEIGHBOUR: u16 = 1;
pub(super) const NEIGHBOUR_HARDWARE: u16 = 2;

// What stands in fixed headers.
pub(super) const LINK_UP: u32 = 1;
pub(super) const LINK_HEADER_LEN: usize = 16;
// The state of a link that carries.
pub(super) const STATE_UP: u8 = 6;
pub(super) const ADDRESS_WITHOUT_DETECTION: u8 = 2;
pub(super) const MAIN_TABLE: u8 = 254;
pub(super) const MADE_BY_HAND: u8 = 3;
pub(super) const SCOPE_UNIVERSE: u8 = 0;
pub(super) const SCOPE_LINK: u8 = 253;
pub(super) const UNICAST: u8 = 1;
pub(super) const ROUTE_ON_LINK: u32 = 4;
pub(super) const NEIGHBOUR_PERMANENT: u16 = 0x80;
