//! A laboratory of network namespaces: a node, its pods, a second node and the world outside,
//! built in a blink and removed without a trace.
//!
//! The lab knows networks, packets and case files. It knows nothing of Ferrovia: whoever runs a
//! case programs the node's kernel in between, so the same flows judge every mode, and another
//! proxy too.
//!
//! - [`layout`]: who lives in the lab, and at which addresses.
//! - [`world`]: builds the namespaces, runs things inside them, removes them.
//! - `servers`: what answers on the pods' addresses.
//! - [`client`]: one call from one place, and what became of it.
//! - [`flood`]: packets from spoofed addresses.
//! - [`flow`]: the lines of a `flows` section, as values.
//! - [`run`]: flows sent through a world; `judge`: whether what came back is right.
//! - [`interrupt`]: Ctrl-C as a value, for programs that must tidy up first.
//! - `document`: a text of named sections that prints back byte for byte.
//! - [`case`]: a document read as a test case of several steps.
//! - [`cgroup`]: a limit of memory as containers have one.
//! - [`folder`], [`waiting`], [`namespace`], [`plain_http`]: what a test needs that needs no world.
//! - [`fuzz`]: inputs for parsers, changed a little again and again.
//! - [`uml`]: a kernel of our own, for what the machine's kernel lacks.
//! - [`apiserver`]: a stand-in for the Kubernetes API server, and all that can go wrong with one.
//! - [`control_plane`]: a real API server with its etcd, for tests that compare with the real thing.
//!
//! Building a world needs root, or the right to create a user namespace, which every program with this crate enters before `main`
//! ([`rootless`]). Without either [`world::World::new`] fails with the reason; nothing here passes by skipping.

pub mod apiserver;
pub mod case;
pub mod cgroup;
pub mod client;
pub mod control_plane;
mod document;
pub mod flood;
pub mod flow;
pub mod folder;
pub mod fuzz;
pub mod interrupt;
mod iproute;
mod judge;
pub mod layout;
pub mod namespace;
mod neighbours;
mod netns;
pub mod plain_http;
pub mod rootless;
pub mod run;
mod sctp;
mod servers;
mod sys;
pub mod uml;
pub mod waiting;
mod wiring;
pub mod world;

pub use case::Case;
pub use client::{Answer, Outcome};
pub use flow::Line;
pub use folder::Folder;
pub use layout::{Place, Pod, Protocol, Role};
pub use run::{Patience, Session};
pub use world::{Spec, World};
