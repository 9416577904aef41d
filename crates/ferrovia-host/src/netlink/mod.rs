//! Netlink, for every family of it: messages are written with [`Writer`], read with [`messages`]
//! and [`Attrs`], and carried by [`Socket`].
//!
//! Nothing here knows nf_tables, routes or connections; those modules bring their own message kinds
//! and attribute numbers.

mod error;
mod exchange;
mod message;
mod parse;
mod pipeline;
mod socket;

pub use error::{Error, Refusal};
pub use message::{Header, TooLong, Writer};
pub use parse::{Attr, Attrs, Message, Messages, messages};
pub(crate) use pipeline::{Refused, Request, and_more};
pub use socket::{Protocol, Socket};

/// Message flags, as the kernel numbers them.
pub mod flags {
    /// Every message to the kernel has this.
    pub const REQUEST: u16 = 0x1;
    /// The kernel shall say that it is done.
    pub const ACK: u16 = 0x4;
    /// What is dumped changed meanwhile.
    pub const DUMP_INTR: u16 = 0x10;
    /// Asks for all there is.
    pub const DUMP: u16 = 0x300;
    /// On a delete: only if nothing is inside.
    pub const NONREC: u16 = 0x100;
    /// Not if it is there already.
    pub const EXCL: u16 = 0x200;
    /// Make it if it is not there.
    pub const CREATE: u16 = 0x400;
    /// Put it behind the others.
    pub const APPEND: u16 = 0x800;
    /// In an answer: the refused request is left out.
    pub(crate) const CAPPED: u16 = 0x100;
    /// In an answer: attributes follow.
    pub(crate) const ACK_TLVS: u16 = 0x200;
}

/// The kinds of messages that every family has.
pub(crate) mod control {
    /// An acknowledgement (error 0) or a refusal.
    pub(crate) const ERROR: u16 = 2;
    /// The end of a dump.
    pub(crate) const DONE: u16 = 3;
}
