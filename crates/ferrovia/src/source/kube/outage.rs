//! Waits for an API server that was lost, with one probe at a time for all reflectors.
//!
//! A probe costs the server a connection and a request for one object, and a server that is away nothing, so there is one every second or two.
//! Without it each reflector would come back when its own pause is over, and what is known is only as good as what the last of them
//! knows. The probe also finds a server that was restored from a backup: its resourceVersion is behind ours then, and a watch from ours
//! would be silent until the server gets there.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex, Notify};
use tokio::time::sleep;

use super::api::Api;
use super::backoff::random_between;

/// Probes after which they come half as often.
const LONG_OUTAGE: u32 = 30;

/// The outage of a server, shared by all who follow it.
#[derive(Clone, Debug, Default)]
pub(super) struct Outage(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Held by the one who probes.
    turn: Mutex<()>,
    /// Probes since the server last answered.
    probes: AtomicU32,
    over: Notify,
    /// The server's resourceVersion when it answered.
    resource_version: StdMutex<Option<String>>,
}

impl Outage {
    /// The server answered. Wakes all who wait.
    pub(super) fn end(&self, resource_version: Option<String>) {
        self.0.probes.store(0, Ordering::Relaxed);
        *self.last_version() = resource_version;
        self.0.over.notify_waiters();
    }

    /// Waits until the server answers again, for so long at most. Its resourceVersion, if it was seen.
    pub(super) async fn wait(&self, api: &Api, uri: &str, limit: Duration) -> Option<String> {
        let over = self.0.over.notified();
        tokio::select! {
            () = sleep(limit) => None,
            () = over => self.last_version().clone(),
            resource_version = self.probe(api, uri) => resource_version,
        }
    }

    async fn probe(&self, api: &Api, uri: &str) -> Option<String> {
        let _turn = self.0.turn.lock().await;
        loop {
            let probes = self.0.probes.fetch_add(1, Ordering::Relaxed);
            sleep(pause(api.times().probe, probes)).await;
            if let Some(answer) = api.probe(uri).await {
                self.end(answer.resource_version.clone());
                return answer.resource_version;
            }
        }
    }

    fn last_version(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        let version = self.0.resource_version.lock();
        version.unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long to wait before a probe. Chance keeps the nodes of a cluster from coming all at once. The first comes soon, for most connections
/// break although the server is well.
fn pause((low, high): (Duration, Duration), probes: u32) -> Duration {
    match probes {
        0 => random_between(low / 4, low * 2),
        1..LONG_OUTAGE => random_between(low, high),
        _ => random_between(low * 2, high * 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_frequent_at_first_and_never_rare() {
        let (low, high) = (Duration::from_millis(500), Duration::from_secs(2));
        for (probes, shortest, longest) in [(0, low / 4, low * 2), (1, low, high)] {
            for _ in 0..50 {
                let pause = pause((low, high), probes);
                assert!(pause >= shortest && pause <= longest, "{probes}: {pause:?}");
            }
        }
        for _ in 0..50 {
            let pause = pause((low, high), u32::MAX);
            assert!(pause >= low * 2 && pause <= high * 2, "{pause:?}");
        }
    }
}
