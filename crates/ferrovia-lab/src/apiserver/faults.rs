//! What can be made to go wrong, and where.

use std::time::Duration;

use http::StatusCode;

use super::kind::Kind;

/// Which requests a fault is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    verb: Option<Verb>,
    kind: Option<Kind>,
}

/// What a request does.
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
    /// Makes an event.
    Create,
}

impl Verb {
    /// The verb as access rules write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch | Self::WatchList => "watch",
            Self::Create => "create",
        }
    }
}

impl Target {
    /// Every request.
    pub const ALL: Self = Self {
        verb: None,
        kind: None,
    };

    /// Requests for a kind, whatever they do.
    pub fn kind(kind: Kind) -> Self {
        Self {
            verb: None,
            kind: Some(kind),
        }
    }

    /// Requests that do this, whatever they are about.
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

/// Something that goes wrong with a request or in a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The answer comes later.
    Delay(Duration),
    /// The answer never comes; the connection stays open.
    Hang,
    /// The answer is this code, with a `Status` that fits.
    Code {
        /// The code.
        code: StatusCode,
        /// The seconds the client is told to wait.
        retry_after: Option<u32>,
    },
    /// The answer is 403, as for a user without the right.
    Forbid,
    /// Instead of an answer the stream is reset over HTTP/2 (`RST_STREAM`), and the connection
    /// closed over HTTP/1.1.
    Abort,
    /// Instead of an answer the whole connection is reset.
    Reset,
    /// The answer is 200, and its body lines that are no events.
    Garbage,
    /// The answer is 200, and the connection is closed in the middle of the first event.
    BreakOff,
    /// The response headers of a watch come together with its first event, as behind some proxies.
    HoldHeaders,
    /// Watches send nothing any more but stay open, and answer HTTP/2 pings. They send what they
    /// missed once the fault is gone.
    Silence,
    /// Watches send every event twice.
    Duplicate,
    /// Watches send events pairwise in the wrong order; the first of a pair waits for the second.
    Reorder,
}

impl Fault {
    /// An answer with this code.
    pub fn code(code: StatusCode) -> Self {
        Self::Code {
            code,
            retry_after: None,
        }
    }

    /// Whether it is about the events of a watch, not about the request.
    fn is_lasting(self) -> bool {
        matches!(self, Self::Silence | Self::Duplicate | Self::Reorder)
    }
}

/// How a watch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As when its time is up.
    Clean,
    /// With an error: `RST_STREAM` over HTTP/2, a connection closed too early over HTTP/1.1.
    Abort,
}

/// The faults that are in force.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    target: Target,
    fault: Fault,
    /// How many requests it still hits; nothing for all to come.
    left: Option<u32>,
}

impl Faults {
    pub(super) fn add(&mut self, target: Target, fault: Fault, times: Option<u32>) {
        self.0.push(Rule {
            target,
            fault,
            left: times,
        });
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// What happens to a request: the time it waits, and the first fault that decides its fate.
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
