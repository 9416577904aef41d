//! The connections of one set of credentials.
//!
//! Over HTTP/2 all requests share one connection. A connection that no longer answers would hold up every request that follows, so it is
//! abandoned as soon as something fails on it: the next request opens a new one. Answers that still arrive on the old one are read to
//! their end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use kube::Client;

use super::access::AccessError;
use super::client::Factory;

/// A client, and how to make another one without connections.
pub(super) struct Connections {
    factory: Factory,
    current: Mutex<Current>,
}

struct Current {
    client: Client,
    /// How many clients there were before.
    generation: u64,
}

/// Where a request was sent, and its answer comes from.
#[derive(Clone)]
pub(super) struct Used {
    // An answer that is still being read must not keep connections open that nothing else uses.
    connections: Weak<Connections>,
    generation: u64,
}

impl Connections {
    pub(super) fn open(factory: Factory) -> Result<Arc<Self>, AccessError> {
        let client = factory()?;
        let current = Current {
            client,
            generation: 0,
        };
        Ok(Arc::new(Self {
            factory,
            current: Mutex::new(current),
        }))
    }

    /// The client for a request.
    pub(super) fn client(self: &Arc<Self>) -> (Client, Used) {
        let current = self.current();
        let used = Used {
            connections: Arc::downgrade(self),
            generation: current.generation,
        };
        (current.client.clone(), used)
    }

    fn abandon(&self, generation: u64) {
        let mut current = self.current();
        // Whatever else failed on the same connection has been here before.
        if current.generation != generation {
            return;
        }
        match (self.factory)() {
            Ok(client) => {
                current.client = client;
                current.generation += 1;
            }
            Err(error) => {
                tracing::warn!(err = %error, "Failed to replace a broken connection; keeping it");
            }
        }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Used {
    /// No further request is sent there. Must be called on a tokio runtime.
    pub(super) fn abandon(&self) {
        if let Some(connections) = self.connections.upgrade() {
            connections.abandon(self.generation);
        }
    }
}
