//! What metrics want to know of the conversation with the API server.

use std::time::Duration;

use ferrovia_core::wire::Kind;

/// A request that was answered or failed.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// The HTTP method.
    pub method: &'a str,
    /// Host and port of the server.
    pub host: &'a str,
    /// The status code, or nothing if no answer came.
    pub code: Option<u16>,
    /// Until the head of the answer came.
    pub took: Duration,
    /// How long it was held back by our own rate limit, before that.
    pub held_back: Duration,
}

/// Hears of everything that is worth a number. All calls must return at once.
pub trait Observer: Send + Sync {
    /// A request was made.
    fn asked(&self, _request: &Asked<'_>) {}
    /// A watch was begun anew after one that ended.
    fn watch_restarted(&self, _kind: Kind) {}
    /// Everything was listed once more, because a watch could not be resumed.
    fn relisted(&self, _kind: Kind) {}
    /// The server proved that what we know of this kind is current.
    fn heard_of(&self, _kind: Kind) {}
}

/// Nobody is interested.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {}
