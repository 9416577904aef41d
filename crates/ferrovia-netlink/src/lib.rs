//! Netlink for every family that Ferrovia uses: [`Writer`] writes messages, [`messages`] and [`Attrs`] read them, [`Socket`] exchanges them
//! with the kernel.
//!
//! - [`uapi`] has the constants of the kernel's headers, under the headers' names.
//! - [`nfnetlink`], [`genetlink`] and [`rtnetlink`] have the fixed headers of the three protocols.
//! - What a family's attributes mean is left to the crates that use it.
//!
//! Bytes from the kernel are not trusted: reading never panics and never leaves the buffer. Unsafe code is in `socket.rs` only.
#![cfg(target_os = "linux")]
#![deny(unsafe_code)]

mod error;
mod exchange;
pub mod genetlink;
mod message;
pub mod nfnetlink;
mod parse;
mod pipeline;
pub mod rtnetlink;
mod socket;
pub mod uapi;

pub use error::{Error, Refusal};
pub use message::{AttributeTooLong, Header, Writer};
pub use parse::{Attr, Attrs, Message, Messages, messages};
pub use pipeline::{RefusedRequest, Request, and_more};
pub use socket::{Protocol, Socket};
