//! How long to wait for what. Tests wait less.

use std::time::Duration;

/// The times the source goes by.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Until the response headers of anything but a page of a list or a watch, whose limits are their own.
    pub answer: Duration,
    /// Until one page of a list has come whole, headers included. The API server itself gives up after a minute.
    pub page: Duration,
    /// How long a server may pause while it sends a streaming list; then the list is asked for in pages.
    pub list_silence: Duration,
    /// After a watch-list failed, lists are paged for this long: a server that cannot serve watch-lists is not asked at every relist, and one
    /// that had a bad moment is asked again later.
    pub watch_list_retry: Duration,
    /// How long watches last; the server ends them, each after a random time between the two.
    pub watch: (Duration, Duration),
    /// How long after that time a server that did not end a watch is taken for hung.
    pub overdue: Duration,
    /// A watch that sends bookmarks (servers do, about once a minute) and then nothing for this long is taken for hung.
    pub silence: Duration,
    /// The time between two probes of a server that was lost: a random one between the two.
    pub probe: (Duration, Duration),
    /// The first pause after a failure; each further one is twice as long.
    pub backoff: Duration,
    /// The longest such pause, before chance prolongs it to up to twice that.
    pub backoff_limit: Duration,
    /// After this long without a failure the first pause is the short one again.
    pub backoff_reset: Duration,
    /// The longest pause until a resource that may be missing, and that the server does not have or forbids, is asked for again. The
    /// first pauses are short: a server that starts forbids what it grants a moment later.
    pub absent: Duration,
    /// How often credentials are read again from the files they came from.
    pub credentials: Duration,
    /// After new credentials could not be had they are asked for again no sooner than this.
    pub credentials_retry: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            answer: Duration::from_secs(30),
            page: Duration::from_secs(120),
            list_silence: Duration::from_secs(15),
            watch_list_retry: Duration::from_secs(600),
            watch: (Duration::from_secs(300), Duration::from_secs(600)),
            overdue: Duration::from_secs(30),
            silence: Duration::from_secs(180),
            probe: (Duration::from_millis(500), Duration::from_secs(2)),
            backoff: Duration::from_millis(800),
            backoff_limit: Duration::from_secs(30),
            backoff_reset: Duration::from_secs(120),
            absent: Duration::from_secs(300),
            credentials: Duration::from_secs(60),
            credentials_retry: Duration::from_secs(10),
        }
    }
}
