//! Is this node's proxy well? Kept as plain state that the sync loop and the source tell, and that the HTTP servers ask.
//!
//! [`State`] decides, with the time passed in; [`Health`] shares it between threads. Nothing here opens a socket or waits.

mod moment;
mod state;

use std::fmt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ferrovia_core::family::Family;

pub use moment::Moment;
pub use state::{Answer, NodeState, State};

/// How old the objects are that the rules were made from: the time since the source last knew that it had missed nothing.
pub type DataAge = Box<dyn Fn(Instant) -> Duration + Send + Sync>;

/// The proxy's health, shared. No method waits for longer than another takes to copy a few words.
pub struct Health {
    state: Mutex<State>,
    data_age: OnceLock<DataAge>,
}

impl Health {
    /// Shares a state.
    pub fn new(state: State) -> Self {
        Self {
            state: Mutex::new(state),
            data_age: OnceLock::new(),
        }
    }

    /// Makes `/healthz` show how old the source's objects are. Only the first call counts, as a process has one source.
    pub fn show_data_age(&self, age: DataAge) {
        let _ = self.data_age.set(age);
    }

    /// A change of a family waits to be written.
    pub fn queued(&self, family: Family, now: Moment) {
        self.lock().queued(family, now);
    }

    /// A family is going to be written for the first time. From now on it counts, so that one that never succeeds is noticed.
    pub fn started(&self, family: Family, now: Moment) {
        self.lock().started(family, now);
    }

    /// A family's rules are as they should be.
    pub fn updated(&self, family: Family, now: Moment) {
        self.lock().updated(family, now);
    }

    /// What is known of this node.
    pub fn set_node(&self, node: NodeState) {
        self.lock().set_node(node);
    }

    /// Whether this process waits for another one to exit: `/healthz` fails meanwhile, `/livez` does not.
    pub fn set_standby(&self, is_standby: bool) {
        self.lock().set_standby(is_standby);
    }

    /// No family's changes have waited too long. Neither the node's state nor the data's age count.
    pub fn is_healthy(&self, now: Moment) -> bool {
        self.lock().is_healthy(now)
    }

    /// The answer to `/healthz`: may this node get traffic from outside?
    pub fn healthz(&self, now: Moment) -> Answer {
        let age = self.data_age(now);
        self.lock().healthz(now, age)
    }

    /// The answer to `/livez`: would a restart help?
    pub fn livez(&self, now: Moment) -> Answer {
        self.lock().livez(now)
    }

    /// How old the data are, if somebody knows.
    pub fn data_age(&self, now: Moment) -> Option<Duration> {
        self.data_age.get().map(|age| age(now.instant))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is a single assignment, so what a panic leaves behind is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health")
            .field("state", &*self.lock())
            .finish_non_exhaustive()
    }
}
