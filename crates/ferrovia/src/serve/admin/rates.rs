//! Connections and rates, read from the kernel when somebody wants them.
//!
//! There is no thread for it: whoever asks first after a second has passed takes the next sample, and the others get the same.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ferrovia_core::model::ServiceKey;
use serde_json::{Value, json};

use crate::serve::metrics::{Connections, ReadConnections};

/// A sample is good for so long; a little less than the second that listeners wait.
const FRESH: Duration = Duration::from_millis(900);
/// A rate is told only of samples that are this near to each other. An average since somebody last looked would mislead.
const NEAR: Duration = Duration::from_secs(15);
/// As many services' rates are told in one event; those with the most connections.
const TOLD: usize = 1000;

/// Takes samples.
pub(super) struct Rates {
    /// None where nobody counts.
    reader: Option<Mutex<Reader>>,
}

struct Reader {
    read: ReadConnections,
    latest: Arc<Sample>,
}

/// What was counted at a moment, and how fast it grew before.
#[derive(Debug, Default)]
pub(super) struct Sample {
    at: Option<Instant>,
    services: HashMap<ServiceKey, Counted>,
    endpoints: BTreeMap<(ServiceKey, SocketAddr), Count>,
    /// There was a sample shortly before it.
    has_rates: bool,
    /// Why it could not be read.
    error: Option<String>,
    event: OnceLock<String>,
}

/// One number that only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Count {
    pub(super) total: u64,
    /// None until there are two samples.
    pub(super) per_second: Option<f64>,
}

/// What is counted of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counted {
    pub(super) connections: Count,
    pub(super) refused: Count,
}

impl Rates {
    pub(super) fn new(read: Option<ReadConnections>) -> Self {
        let reader = |read| Reader {
            read,
            latest: Arc::default(),
        };
        Self {
            reader: read.map(|read| Mutex::new(reader(read))),
        }
    }

    /// Somebody counts.
    pub(super) fn is_counting(&self) -> bool {
        self.reader.is_some()
    }

    /// The latest sample, taken now if it is not fresh. Waits for the kernel and for the sync loop, so not for the network's thread.
    pub(super) fn sample(&self) -> Arc<Sample> {
        let Some(reader) = &self.reader else {
            return Arc::default();
        };
        let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = |at: Instant| at.elapsed() < FRESH;
        if !reader.latest.at.is_some_and(is_fresh) {
            let mut counted = Connections::new(usize::MAX);
            let read = (reader.read)(&mut counted);
            let next = match read {
                Ok(()) => Sample::after(&reader.latest, &counted, Instant::now()),
                Err(error) => Sample {
                    at: Some(Instant::now()),
                    error: Some(error.to_string()),
                    ..Sample::default()
                },
            };
            reader.latest = Arc::new(next);
        }
        Arc::clone(&reader.latest)
    }
}

impl Sample {
    fn after(before: &Self, counted: &Connections, now: Instant) -> Self {
        let mut sample = Self {
            at: Some(now),
            ..Self::default()
        };
        for (key, n) in counted.services() {
            sample.of_service(&key.service).connections.total += n;
        }
        for (key, n) in counted.refusals() {
            sample.of_service(&key.service).refused.total += n;
        }
        for (key, endpoint, n) in counted.endpoints() {
            let entry = sample.endpoints.entry((key.service.clone(), endpoint));
            entry.or_default().total += n;
        }
        let elapsed = before
            .at
            .filter(|_| before.error.is_none())
            .map(|at| now.saturating_duration_since(at))
            .filter(|elapsed| *elapsed <= NEAR && !elapsed.is_zero());
        if let Some(elapsed) = elapsed {
            sample.has_rates = true;
            sample.compare(before, elapsed);
        }
        sample
    }

    fn of_service(&mut self, service: &ServiceKey) -> &mut Counted {
        self.services.entry(service.clone()).or_default()
    }

    fn compare(&mut self, before: &Self, elapsed: Duration) {
        for (service, counted) in &mut self.services {
            let before = before.services.get(service).copied().unwrap_or_default();
            counted.connections.since(before.connections, elapsed);
            counted.refused.since(before.refused, elapsed);
        }
        for (endpoint, count) in &mut self.endpoints {
            let before = before.endpoints.get(endpoint).copied().unwrap_or_default();
            count.since(before, elapsed);
        }
    }

    /// A service that was never met has zero of everything.
    pub(super) fn service(&self, service: &ServiceKey) -> Counted {
        let known = self.services.get(service).copied();
        known.unwrap_or(Counted {
            connections: self.nothing(),
            refused: self.nothing(),
        })
    }

    pub(super) fn endpoint(&self, service: &ServiceKey, endpoint: SocketAddr) -> Count {
        let known = self.endpoints.get(&(service.clone(), endpoint)).copied();
        known.unwrap_or(self.nothing())
    }

    fn nothing(&self) -> Count {
        Count {
            total: 0,
            per_second: self.has_rates.then_some(0.0),
        }
    }

    /// What the endpoints of a service got.
    pub(super) fn endpoints_of<'a>(
        &'a self,
        service: &'a ServiceKey,
    ) -> impl Iterator<Item = (SocketAddr, Count)> {
        let first = SocketAddr::from(([0, 0, 0, 0], 0));
        let from = (service.clone(), first);
        let range = self.endpoints.range(from..);
        range
            .take_while(move |((it, _), _)| it == service)
            .map(|((_, endpoint), count)| (*endpoint, *count))
    }

    pub(super) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The services that grow, as an event; written once for all listeners.
    pub(super) fn event(&self) -> &str {
        self.event.get_or_init(|| self.to_json().to_string())
    }

    fn to_json(&self) -> Value {
        let rate = |count: &Count| count.per_second.unwrap_or_default();
        let speed = |counted: &Counted| rate(&counted.connections) + rate(&counted.refused);
        let mut moving: Vec<_> = self
            .services
            .iter()
            .filter(|(_, counted)| speed(counted) > 0.0)
            .collect();
        let sum = |part: fn(&Counted) -> Count| -> f64 {
            moving.iter().map(|(_, counted)| rate(&part(counted))).sum()
        };
        let totals = (sum(|c| c.connections), sum(|c| c.refused));
        let omitted = moving.len().saturating_sub(TOLD);
        if omitted > 0 {
            moving.select_nth_unstable_by(TOLD, |(_, a), (_, b)| speed(b).total_cmp(&speed(a)));
            moving.truncate(TOLD);
        }
        let services: serde_json::Map<String, Value> = moving
            .into_iter()
            .map(|(service, counted)| (service.to_string(), row(counted)))
            .collect();
        json!({
            "perSecond": totals.0,
            "refusedPerSecond": totals.1,
            "services": services,
            "omitted": omitted,
            "error": self.error,
        })
    }
}

/// Connections: total and per second; refusals: the same.
fn row(counted: &Counted) -> Value {
    let Counted {
        connections,
        refused,
    } = counted;
    json!([
        connections.total,
        connections.per_second,
        refused.total,
        refused.per_second
    ])
}

impl Count {
    /// A sum may become smaller, when the kernel forgets pairs that nobody used for a day. That is no growth.
    fn since(&mut self, before: Self, elapsed: Duration) {
        let grown = self.total.saturating_sub(before.total);
        let per_second = grown as f64 / elapsed.as_secs_f64();
        self.per_second = Some((per_second * 100.0).round() / 100.0);
    }
}

#[cfg(test)]
mod tests {
    use ferrovia_core::family::Family;
    use ferrovia_core::model::{PortKey, Protocol};

    use super::*;
    use crate::serve::metrics::Refused;

    fn counted(n: u64) -> Connections {
        let key = PortKey {
            service: ServiceKey::new("shop", "web").unwrap(),
            name: "http".into(),
            protocol: Protocol::Tcp,
        };
        let mut counted = Connections::new(usize::MAX);
        counted.service(Family::V4, &key, n);
        counted.service(Family::V6, &key, n);
        counted.endpoint(Family::V4, &key, "10.0.0.1:80".parse().unwrap(), n);
        counted.refused(Family::V4, &key, Refused::NoEndpoints, 1);
        counted
    }

    #[test]
    fn a_rate_is_the_growth_between_two_samples() {
        let web = ServiceKey::new("shop", "web").unwrap();
        let start = Instant::now();
        let first = Sample::after(&Sample::default(), &counted(10), start);
        assert_eq!(first.service(&web).connections.total, 20);
        assert_eq!(first.service(&web).connections.per_second, None);
        let later = start + Duration::from_secs(2);
        let second = Sample::after(&first, &counted(15), later);
        assert_eq!(second.service(&web).connections.per_second, Some(5.0));
        assert_eq!(second.service(&web).refused.per_second, Some(0.0));
        let endpoint = second.endpoint(&web, "10.0.0.1:80".parse().unwrap());
        assert_eq!((endpoint.total, endpoint.per_second), (15, Some(2.5)));
        assert!(second.event().contains(r#""shop/web":[30,5.0,1,0.0]"#));
        let much_later = later + 2 * NEAR;
        let third = Sample::after(&second, &counted(15), much_later);
        assert_eq!(third.service(&web).connections.per_second, None);
    }

    #[test]
    fn one_reading_a_second_is_enough_for_everybody() {
        let readings = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = Arc::clone(&readings);
        let rates = Rates::new(Some(Box::new(move |_| {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(())
        })));
        let first = rates.sample();
        let second = rates.sample();
        // A machine that stood still for a second in between is not at fault.
        if first.at.is_some_and(|at| at.elapsed() < FRESH) {
            assert!(Arc::ptr_eq(&first, &second));
            assert_eq!(readings.load(std::sync::atomic::Ordering::Relaxed), 1);
        }
        assert!(!Rates::new(None).is_counting());
    }
}
