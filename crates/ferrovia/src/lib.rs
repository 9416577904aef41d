//! The daemon and the command line of Ferrovia: everything around the pure core and the kernel I/O.
//!
//! Data flows one way: a [`source`] produces events, the [`sync`] engine keeps the desired state and writes it with the selected [`mode`];
//! [`conntrack`] then removes state that the change made stale. [`app`] is the wiring, [`cli`] the command line, [`serve`] what
//! other programs can ask a running daemon, [`inspect`] what people can ask about a node.
#![forbid(unsafe_code)]

pub mod app;
pub mod cli;
pub mod config;
pub mod conntrack;
pub mod inspect;
pub mod kube_event;
pub mod logging;
pub mod mode;
pub mod serve;
pub mod source;
pub mod sync;
pub mod version;
mod yaml_positions;
