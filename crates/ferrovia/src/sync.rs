//! The sync loop, once for all modes.
//!
//! [`Engine`] holds the state and does the work when told to; `pacer.rs` decides when; [`run()`] joins the two to the outside.
//! Nothing is written before all first lists are complete. A change is written alone; whatever fails is tried again in full.

pub mod backend;
mod brief;
mod engine;
mod family;
mod node_wait;
mod observer;
mod pacer;
mod run;
mod warned;

pub use brief::Brief;
pub use engine::{Engine, Received};
pub use family::{Outcome, SyncKind};
pub use node_wait::{NodeNeed, Wait};
pub use observer::Observer;
pub use pacer::{Pace, Pacer};
pub use run::{Input, InputReceiver, Inputs, Question, Stop, queue, run};
pub use warned::Warned;
