//! How many connections a server holds at once.
//!
//! When there are too many the oldest goes, not the newest: whoever keeps idle connections open in order to fill the pool then only
//! loses them, and a health check, which is over in a moment, always gets its answer.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use tokio::task::AbortHandle;

/// Connections of one or several listeners, oldest first.
#[derive(Debug)]
pub(crate) struct Pool {
    limit: usize,
    live: Mutex<VecDeque<AbortHandle>>,
}

impl Pool {
    /// Holds up to `limit` connections.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            live: Mutex::default(),
        }
    }

    /// Takes in a connection, at the cost of the oldest if need be.
    pub(crate) fn add(&self, connection: AbortHandle) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if live.len() >= self.limit {
            live.retain(|connection| !connection.is_finished());
        }
        if live.len() >= self.limit
            && let Some(oldest) = live.pop_front()
        {
            oldest.abort();
        }
        live.push_back(connection);
    }

    /// Ends the oldest connection, because something that all of them use is short.
    pub(crate) fn drop_oldest(&self) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.retain(|connection| !connection.is_finished());
        if let Some(oldest) = live.pop_front() {
            oldest.abort();
        }
    }
}
