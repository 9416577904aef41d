//! Faults and the requests they affect.

use std::time::Duration;

use http::StatusCode;

use super::kind::Kind;

/// The requests that a fault affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultTarget {
    verb: Option<Verb>,
    kind: Option<Kind>,
}

/// The verb of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Reads one object, or the server's version.
    Get,
    /// Reads a collection.
    List,
    /// Follows a collection, with or without its initial state.
    Watch,
    /// Follows a collection beginning with its initial state (`sendInitialEvents`).
    WatchList,
    /// Creates an Event.
    Create,
}

impl Verb {
    /// The verb as in RBAC rules.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch | Self::WatchList => "watch",
            Self::Create => "create",
        }
    }
}

impl FaultTarget {
    pub const ALL: Self = Self {
        verb: None,
        kind: None,
    };

    /// All requests for a kind.
    pub fn kind(kind: Kind) -> Self {
        Self {
            verb: None,
            kind: Some(kind),
        }
    }

    /// All requests with this verb.
    pub fn verb(verb: Verb) -> Self {
        Self {
            verb: Some(verb),
            kind: None,
        }
    }

    /// Lists of a kind.
    pub fn list(kind: Kind) -> Self {
        Self {
            verb: Some(Verb::List),
            kind: Some(kind),
        }
    }

    /// Watches of a kind.
    pub fn watch(kind: Kind) -> Self {
        Self {
            verb: Some(Verb::Watch),
            kind: Some(kind),
        }
    }

    /// Watch-lists of a kind.
    pub fn watch_list(kind: Kind) -> Self {
        Self {
            verb: Some(Verb::WatchList),
            kind: Some(kind),
        }
    }

    fn covers(self, verb: Verb, kind: Option<Kind>) -> bool {
        let covers_verb =
            |own: Verb| own == verb || (own == Verb::Watch && verb == Verb::WatchList);
        self.verb.is_none_or(covers_verb) && self.kind.is_none_or(|own| Some(own) == kind)
    }
}

/// A fault of a request or a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The response is delayed.
    Delay(Duration),
    /// There is no response; the connection stays open.
    Hang,
    /// The response has this status code and a matching `Status`.
    Code {
        code: StatusCode,
        /// The seconds of the `Retry-After` header.
        retry_after: Option<u32>,
    },
    /// The response is 403, as for a user without permission.
    Forbid,
    /// Instead of a response the stream is reset over HTTP/2 (`RST_STREAM`), and the connection
    /// closed over HTTP/1.1.
    Abort,
    /// Instead of a response the whole connection is reset.
    Reset,
    /// The response is 200 with a body of lines that are not events.
    Garbage,
    /// The response is 200, and the connection is closed in the middle of the first event.
    BreakOff,
    /// The response headers of a watch come together with its first event, as behind some proxies.
    HoldHeaders,
    /// Watches send nothing but stay open, and HTTP/2 pings are answered. They send what they
    /// missed once the fault is removed.
    Silence,
    /// Watches send every event twice.
    Duplicate,
    /// Watches swap pairs of events; the first of a pair waits for the second.
    Reorder,
}

impl Fault {
    /// A response with this status code.
    pub fn code(code: StatusCode) -> Self {
        Self::Code {
            code,
            retry_after: None,
        }
    }

    /// Whether it affects the events of a watch instead of the request.
    fn is_lasting(self) -> bool {
        matches!(self, Self::Silence | Self::Duplicate | Self::Reorder)
    }
}

/// How a watch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Cleanly, as after `timeoutSeconds`.
    Clean,
    /// With an error: `RST_STREAM` over HTTP/2, a connection closed too early over HTTP/1.1.
    Abort,
}

/// The active faults.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    target: FaultTarget,
    fault: Fault,
    /// How many more requests it affects; `None` for all.
    left: Option<u32>,
}

impl Faults {
    pub(super) fn add(&mut self, target: FaultTarget, fault: Fault, times: Option<u32>) {
        self.0.push(Rule {
            target,
            fault,
            left: times,
        });
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The delay of a request, and the first fault that determines its response.
    pub(super) fn on_request(
        &mut self,
        verb: Verb,
        kind: Option<Kind>,
    ) -> (Duration, Option<Fault>) {
        let mut delay = Duration::ZERO;
        let mut fate = None;
        for rule in &mut self.0 {
            let exhausted = rule.left == Some(0);
            if exhausted || rule.fault.is_lasting() || !rule.target.covers(verb, kind) {
                continue;
            }
            match rule.fault {
                Fault::Delay(time) => delay += time,
                fault if fate.is_none() => fate = Some(fault),
                _ => continue,
            }
            rule.left = rule.left.map(|left| left.saturating_sub(1));
        }
        (delay, fate)
    }

    /// Whether the watches of a kind have this fault.
    pub(super) fn holds(&self, kind: Kind, fault: Fault) -> bool {
        let covers = |rule: &Rule| rule.target.covers(Verb::Watch, Some(kind));
        self.0
            .iter()
            .any(|rule| rule.fault == fault && covers(rule))
    }
}
