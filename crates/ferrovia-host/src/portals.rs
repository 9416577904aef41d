//! The userspace mode's way into the kernel: proxies of the engine, and what leads clients to them.
//!
//! [`Proxies`] keeps the engine's services as plans want them. [`PortalApplier`] writes the rules that lead to them with the iptables tools,
//! [`BindPortalsApplier`] puts the services' addresses on an [`Interface`] instead. What is to be opened and written is decided in
//! `ferrovia-core`.

mod applier;
mod bind;
pub mod interface;
mod proxies;
mod route;

pub use applier::{Error as PortalError, PortalApplier};
pub use bind::{BindPortalsApplier, Error as BindPortalsError};
pub use interface::{Interface, InterfaceChoice};
pub use proxies::{Directory, LazyEngine, Proxies, ProxySettings, Trouble, TroubleReporter};
