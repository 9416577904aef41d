//! The admin API: what the daemon knows, as JSON, for commands and for the page. Read-only.
//!
//! The same routes (`routes.rs`) are served on a socket that only the daemon's user may open (`socket.rs`) and on the page's address
//! ([`web`](crate::serve::web)). What only the sync loop knows it is asked for (`ask.rs`), and it copies out no more than is needed; filtering,
//! sorting and writing happen here, beside the thread that speaks to the network; what takes a look into the kernel has a thread of its own
//! (`look.rs`). When nobody looks, the only cost is that of [`History::record`]: the kernel's counters are read by those who want rates
//! (`rates.rs`), at most once a second for all of them.
//!
//! `docs/admin-api.md` describes the answers.

mod ask;
pub mod client;
mod events;
mod history;
mod look;
mod overview;
mod problem;
mod query;
mod rates;
mod routes;
mod service;
mod services;
mod snapshot;
mod socket;
mod trace;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use ferrovia_core::family::Family;
use jiff::Timestamp;

pub use self::history::{Change, History};
pub use self::look::{Looker, Looking};
pub(crate) use self::routes::{Door, answer};
pub(crate) use self::socket::{AdminSocket, serve_socket};

use self::overview::CountsCache;
use self::rates::Rates;
use crate::mode::Mode;
use crate::serve::health::Health;
use crate::serve::metrics::ReadConnections;
use crate::sync::Inputs;

/// Every answer says which program gave it.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What does not change while the daemon runs.
#[derive(Clone, Debug)]
pub struct About {
    /// This node's name.
    pub node: String,
    /// The mode that programs the kernel.
    pub mode: Arc<dyn Mode>,
    /// The families this machine has.
    pub families: Vec<Family>,
    /// Where objects come from: `manifests` or `kubernetes`.
    pub source: &'static str,
}

/// Knows whom to ask for what.
pub struct Admin {
    about: About,
    started: Timestamp,
    inputs: Inputs,
    health: Arc<Health>,
    history: Arc<History>,
    rates: Rates,
    looker: Looker,
    counts: CountsCache,
    /// How many clients listen to events.
    listeners: AtomicUsize,
}

impl Admin {
    /// Answers from these. `read` is none where connections are not counted.
    pub fn new(
        about: About,
        inputs: Inputs,
        health: Arc<Health>,
        history: Arc<History>,
        read: Option<ReadConnections>,
        looker: Looker,
    ) -> Self {
        Self {
            about,
            started: Timestamp::now(),
            inputs,
            health,
            history,
            rates: Rates::new(read),
            looker,
            counts: CountsCache::default(),
            listeners: AtomicUsize::new(0),
        }
    }
}
