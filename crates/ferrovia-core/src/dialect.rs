//! The kernel's languages as values: each can be printed as the text its own tool reads.

pub mod ipset;
pub mod iptables;
pub mod ipvs;
pub mod nft;
