//! How many connections a server holds at once.
//!
//! When there are too many the oldest goes, not the newest: whoever keeps idle connections open in order to fill the pool then only
//! loses them, and a health check, which is over in a moment, always gets its answer.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use ferrovia_host::privileges;
use tokio::task::AbortHandle;

/// Clients of a pool may use up this part of all descriptors that the process may have. Others are for the connections to the API server and
/// the kernel, and for the tools of some modes, which cannot be started without.
const SHARE: u64 = 16;
/// Fewer than this, and clients would be in each other's way.
const FEWEST: usize = 4;

/// Connections of one or several listeners, oldest first.
#[derive(Debug)]
pub(crate) struct Pool {
    limit: usize,
    live: Mutex<VecDeque<AbortHandle>>,
}

impl Pool {
    /// Holds up to `limit` connections, or fewer where the process may not have many descriptors.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit: privileges::most_open_files().map_or(limit, |all| bounded(limit, all)),
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

fn bounded(limit: usize, descriptors: u64) -> usize {
    let share = usize::try_from(descriptors / SHARE).unwrap_or(usize::MAX);
    limit.min(share.max(FEWEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_most_descriptors_to_others() {
        assert_eq!(bounded(256, 1 << 20), 256);
        assert_eq!(bounded(256, 1024), 64);
        assert_eq!(bounded(256, 64), FEWEST);
        assert_eq!(bounded(256, 0), FEWEST);
        assert_eq!(bounded(2, 64), 2);
    }
}
