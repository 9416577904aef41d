//! What is counted for a service port and for each of its endpoints, and read without stopping anything.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the buckets for how long dialling took, in microseconds; one more bucket holds what took longer.
pub const DIAL_BOUNDS: [u64; 9] = [
    100, 500, 1_000, 5_000, 25_000, 100_000, 250_000, 1_000_000, 2_000_000,
];

/// Why a connection, an attempt at one, or a datagram failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectFailure {
    /// The endpoint refused it.
    Refused,
    /// The endpoint did not answer in time.
    TimedOut,
    /// There is no way to the endpoint.
    Unreachable,
    /// There is no endpoint.
    NoEndpoints,
    /// The client is none that is let in.
    NotAllowed,
    /// A limit of the engine or of this system was met: connections, descriptors, ports, memory.
    Limit,
    /// It was cut off by one of the two sides.
    Reset,
    Other,
}

impl ConnectFailure {
    /// All of them, in the order of the figures.
    pub const ALL: [Self; 8] = [
        Self::Refused,
        Self::TimedOut,
        Self::Unreachable,
        Self::NoEndpoints,
        Self::NotAllowed,
        Self::Limit,
        Self::Reset,
        Self::Other,
    ];

    /// A short name, as for a label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::TimedOut => "timed_out",
            Self::Unreachable => "unreachable",
            Self::NoEndpoints => "no_endpoints",
            Self::NotAllowed => "not_allowed",
            Self::Limit => "limit",
            Self::Reset => "reset",
            Self::Other => "other",
        }
    }

    /// What kind an error of a system call is.
    pub(super) fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ECONNREFUSED) => Self::Refused,
            Some(libc::ETIMEDOUT) => Self::TimedOut,
            Some(libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ENETDOWN | libc::EHOSTDOWN) => {
                Self::Unreachable
            }
            Some(
                libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM | libc::EADDRNOTAVAIL,
            ) => Self::Limit,
            Some(libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED) => Self::Reset,
            _ => Self::Other,
        }
    }
}

/// Figures at one moment. Those of a UDP service port call a flow a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Connections accepted; for an endpoint, those it got.
    pub connections: u64,
    /// Connections that are open.
    pub open: u64,
    /// Bytes from clients to endpoints.
    pub bytes_in: u64,
    /// Bytes from endpoints to clients.
    pub bytes_out: u64,
    /// Attempts after the first, on account of a failure.
    pub retries: u64,
    /// Failures in the order of [`ConnectFailure::ALL`].
    pub failures: [u64; ConnectFailure::ALL.len()],
    /// How many dials took how long: one bucket for each of [`DIAL_BOUNDS`], not counting those below, and one for the rest.
    pub dials: [u64; DIAL_BOUNDS.len() + 1],
    /// The time of all dials together, in microseconds.
    pub dial_micros: u64,
}

impl Figures {
    /// How often something failed in this way.
    pub fn failures(&self, failure: ConnectFailure) -> u64 {
        self.failures[failure as usize]
    }
}

/// The same, while it is counted. Every number is right by itself; a reader may see one of them before another.
#[derive(Debug, Default)]
pub(super) struct ServiceCounters {
    connections: AtomicU64,
    open: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    retries: AtomicU64,
    failures: [AtomicU64; ConnectFailure::ALL.len()],
    dials: [AtomicU64; DIAL_BOUNDS.len() + 1],
    dial_micros: AtomicU64,
}

impl ServiceCounters {
    pub(super) fn opened(&self) {
        add(&self.connections, 1);
        add(&self.open, 1);
    }

    pub(super) fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn bytes(&self, inwards: u64, outwards: u64) {
        if inwards > 0 {
            add(&self.bytes_in, inwards);
        }
        if outwards > 0 {
            add(&self.bytes_out, outwards);
        }
    }

    pub(super) fn retried(&self) {
        add(&self.retries, 1);
    }

    pub(super) fn failed(&self, failure: ConnectFailure) {
        add(&self.failures[failure as usize], 1);
    }

    pub(super) fn dialled(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = DIAL_BOUNDS.partition_point(|bound| *bound < micros);
        add(&self.dials[bucket], 1);
        add(&self.dial_micros, micros);
    }

    pub(super) fn read(&self) -> Figures {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Figures {
            connections: get(&self.connections),
            open: get(&self.open),
            bytes_in: get(&self.bytes_in),
            bytes_out: get(&self.bytes_out),
            retries: get(&self.retries),
            failures: self.failures.each_ref().map(get),
            dials: self.dials.each_ref().map(get),
            dial_micros: get(&self.dial_micros),
        }
    }
}

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_their_own_places() {
        let counters = ServiceCounters::default();
        for (times, failure) in ConnectFailure::ALL.into_iter().enumerate() {
            (0..times).for_each(|_| counters.failed(failure));
        }
        let figures = counters.read();
        for (times, failure) in ConnectFailure::ALL.into_iter().enumerate() {
            assert_eq!(figures.failures(failure), times as u64, "{failure:?}");
        }
    }

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let counters = ServiceCounters::default();
        for micros in [100, 101, 2_000_000, 2_000_001] {
            counters.dialled(Duration::from_micros(micros));
        }
        assert_eq!(counters.read().dials, [1, 1, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(counters.read().dial_micros, 4_000_202);
    }
}
