//! How old what we know is.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ferrovia_core::wire::Kind;

/// When each resource was last proved current: by an event, a bookmark, or an answer to a new watch. Shared; clones are the same clock.
///
/// A server sends bookmarks about once a minute, so well above that something hangs, even if every connection looks healthy. One that
/// sends none is only heard of when a watch begins, every five to ten minutes.
#[derive(Clone, Debug)]
pub struct Freshness {
    proofs: Arc<Mutex<Proofs>>,
}

#[derive(Debug)]
struct Proofs {
    services: Instant,
    slices: Instant,
}

impl Freshness {
    /// Nothing is known yet; the age counts from now.
    pub fn new(now: Instant) -> Self {
        let proofs = Proofs {
            services: now,
            slices: now,
        };
        Self {
            proofs: Arc::new(Mutex::new(proofs)),
        }
    }

    /// The age of the older of Services and EndpointSlices: what the rules are made of.
    pub fn age(&self, now: Instant) -> Duration {
        let proofs = self.proofs.lock().unwrap_or_else(PoisonError::into_inner);
        now.saturating_duration_since(proofs.services.min(proofs.slices))
    }

    pub(super) fn prove(&self, kind: Kind, now: Instant) {
        let mut proofs = self.proofs.lock().unwrap_or_else(PoisonError::into_inner);
        match kind {
            Kind::Service => proofs.services = now,
            Kind::EndpointSlice => proofs.slices = now,
            Kind::Endpoints | Kind::Node | Kind::ServiceCidr => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_one_counts() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let freshness = Freshness::new(start);
        assert_eq!(freshness.age(start + second * 9), second * 9);
        freshness.prove(Kind::Service, start + second * 5);
        freshness.prove(Kind::Node, start + second * 8);
        assert_eq!(freshness.age(start + second * 9), second * 9);
        freshness.prove(Kind::EndpointSlice, start + second * 7);
        assert_eq!(freshness.age(start + second * 9), second * 4);
    }
}
