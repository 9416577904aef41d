//! A TCP and UDP proxy in this process, which knows nothing of Kubernetes: addresses to listen on, endpoints to carry to.
//!
//! [`Engine`] runs a few threads, each with an event loop of its own (`worker.rs`). A [`Service`] is one service port: its listeners share
//! the endpoints, the turn, and the memory of who got which endpoint (`balance.rs`), and each may have a gate (`gate.rs`). Changes reach the
//! threads as messages (`shared.rs`); what is counted (`figures.rs`) is read without asking them.
//!
//! - TCP (`tcp/`): a listener is shared by all threads, and the kernel wakes one of them. Dialling never waits; an endpoint that fails is
//!   replaced by another one. Small flows are copied through one buffer a thread has, big ones go through a pipe without being copied. Both
//!   are held only while bytes are under way, so an idle connection is two descriptors and a few hundred bytes.
//! - UDP (`udp/`): each thread has a socket of its own for each listener and the kernel spreads clients over them, so the flows of a client
//!   are one thread's business. Datagrams are read and answered many at a time.
//!
//! Unsafe code is in `sys.rs` and `datagrams.rs` only.

mod datagrams;
mod engine;
mod error;
mod figures;
mod gate;
mod service;
mod shared;
mod slab;
mod socket;
mod sys;
mod tcp;
mod timer;
mod udp;
mod worker;

pub use engine::{Engine, Options};
pub use error::Error;
pub use figures::{ConnectFailure, DIAL_BOUNDS, Figures};
pub use gate::{Gate, Sources};
pub use service::{Endpoint, EndpointFigures, Service};
pub use socket::{Address, AddressPresence, Listen};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    Tcp,
    Udp,
}
