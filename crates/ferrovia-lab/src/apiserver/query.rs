//! The path and the query of a request.

use http::Method;

use super::kind::Kind;
use super::object::Key;
use super::options::WatchListSupport;
use super::selector::Selector;
use super::status::Status;

/// The meaning of a path and a method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// All objects of a kind, or those of a namespace.
    Collection(Kind, Option<String>),
    /// One object: kind, namespace (empty if it has none) and name.
    Object(Kind, String, String),
    /// A new event in a namespace.
    NewEvent(String),
    Version,
}

impl Route {
    /// Finds the route of a request.
    pub(super) fn of(method: &Method, path: &str) -> Result<Self, Status> {
        let route = Self::of_path(path).ok_or_else(|| Self::missing(path))?;
        let expected = match route {
            Self::NewEvent(_) => Method::POST,
            _ => Method::GET,
        };
        if *method == expected {
            Ok(route)
        } else {
            Err(Status::method_not_allowed())
        }
    }

    /// The response for an unknown path.
    fn missing(path: &str) -> Status {
        let is_in = |root: String| path == root || path.starts_with(&format!("{root}/"));
        let mut roots = Kind::ALL.into_iter().map(|kind| kind.root());
        match roots.any(is_in) || is_in("/apis/events.k8s.io/v1".to_owned()) {
            true => Status::no_such_path(),
            false => Status::no_such_group(),
        }
    }

    fn of_path(path: &str) -> Option<Self> {
        if path == "/version" {
            return Some(Self::Version);
        }
        if let Some(rest) = path.strip_prefix("/apis/events.k8s.io/v1/namespaces/") {
            let namespace = rest.strip_suffix("/events")?;
            return (!namespace.contains('/')).then(|| Self::NewEvent(namespace.to_owned()));
        }
        Kind::ALL
            .into_iter()
            .find_map(|kind| Self::of_kind(kind, path))
    }

    fn of_kind(kind: Kind, path: &str) -> Option<Self> {
        let rest = path.strip_prefix(&kind.root())?.strip_prefix('/')?;
        let parts: Vec<_> = rest.split('/').collect();
        match parts[..] {
            [resource] if resource == kind.resource() => Some(Self::Collection(kind, None)),
            [resource, name] if resource == kind.resource() && !kind.namespaced() => {
                Some(Self::Object(kind, String::new(), name.to_owned()))
            }
            ["namespaces", namespace, resource] if resource == kind.resource() => kind
                .namespaced()
                .then(|| Self::Collection(kind, Some(namespace.to_owned()))),
            ["namespaces", namespace, resource, name] if resource == kind.resource() => kind
                .namespaced()
                .then(|| Self::Object(kind, namespace.to_owned(), name.to_owned())),
            _ => None,
        }
    }
}

/// The options of a list or a watch.
#[derive(Clone, Debug)]
pub(super) struct ListOptions {
    pub(super) watch: bool,
    pub(super) selector: Selector,
    pub(super) version: Version,
    pub(super) limit: Option<usize>,
    pub(super) token: Option<Token>,
    pub(super) timeout_seconds: Option<u64>,
    pub(super) bookmarks: bool,
    /// `sendInitialEvents`; without it the resourceVersion decides.
    pub(super) initial_events: Option<bool>,
}

/// The resourceVersion of a list, or at which a watch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// The most recent one.
    Newest,
    /// Any (`resourceVersion=0`); the server ignores limits.
    Any,
    /// At least as new as this revision.
    NotOlderThan(u64),
    /// Exactly this revision.
    Exact(u64),
}

/// Where a list continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// The revision of the first page; `None` for the most recent one.
    pub(super) revision: Option<u64>,
    pub(super) start: Key,
}

impl ListOptions {
    /// Parses the query of a list or a watch.
    pub(super) fn parse(
        kind: Kind,
        parameters: &[(String, String)],
        watch_lists: WatchListSupport,
    ) -> Result<Self, Status> {
        let get = |name: &str| {
            let found = parameters.iter().find(|(key, _)| key == name);
            found.map_or("", |(_, value)| value)
        };
        let (labels, fields) = (get("labelSelector"), get("fieldSelector"));
        let selector = Selector::parse(kind, labels, fields).map_err(|reason| {
            Status::bad_request(format!(
                "Unable to find {:?} that match label selector {labels:?}, field selector \
                 {fields:?}: {reason}",
                format!("{}, Resource={}", kind.api_version(), kind.resource()),
            ))
        })?;
        let watch = flag("watch", get("watch"))?.unwrap_or(false);
        let limit = number("limit", get("limit"))?.filter(|limit| *limit > 0);
        let initial_events = match watch_lists {
            WatchListSupport::Ignored => None,
            _ => flag("sendInitialEvents", get("sendInitialEvents"))?,
        };
        let version = get("resourceVersion");
        let matching = match (watch, watch_lists) {
            // Watches ignored it before watch-lists existed.
            (true, WatchListSupport::Ignored) => "",
            _ => get("resourceVersionMatch"),
        };
        let token = get("continue");
        if watch {
            if !version.is_empty() && version.parse::<u64>().is_err() {
                return Err(Status::no_version_of_watch(version));
            }
            check_watch(matching, initial_events, watch_lists)?;
        } else {
            check_list(version, matching, token, initial_events)?;
        }
        Ok(Self {
            watch,
            selector,
            version: Version::parse(version, matching, !watch && limit.is_some())?,
            limit: limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
            token: Token::parse(token)?,
            timeout_seconds: number("timeoutSeconds", get("timeoutSeconds"))?,
            bookmarks: flag("allowWatchBookmarks", get("allowWatchBookmarks"))?.unwrap_or(false),
            initial_events,
        })
    }
}

impl Version {
    fn parse(version: &str, matching: &str, limited: bool) -> Result<Self, Status> {
        if version.is_empty() {
            return Ok(Self::Newest);
        }
        let revision = number("resourceVersion", version)?.unwrap_or_default();
        Ok(match (matching, revision) {
            (_, 0) => Self::Any,
            ("Exact", _) => Self::Exact(revision),
            // For historical reasons, a resourceVersion with a limit and without match is exact.
            ("", _) if limited => Self::Exact(revision),
            _ => Self::NotOlderThan(revision),
        })
    }
}

impl Token {
    fn parse(text: &str) -> Result<Option<Self>, Status> {
        if text.is_empty() {
            return Ok(None);
        }
        Self::decode(text)
            .map(Some)
            .ok_or_else(|| Status::bad_request("continue key is not valid"))
    }

    /// The opaque token for clients, safe in a query.
    pub(super) fn encode(&self) -> String {
        let revision = self.revision.unwrap_or_default();
        let (namespace, name) = &self.start;
        let plain = format!("{revision}/{namespace}/{name}");
        plain.bytes().map(|byte| format!("{byte:02x}")).collect()
    }

    fn decode(text: &str) -> Option<Self> {
        let digits: Vec<_> = text
            .chars()
            .map(|c| c.to_digit(16))
            .collect::<Option<_>>()?;
        let bytes: Vec<_> = digits
            .chunks(2)
            .map(|pair| match pair {
                [high, low] => u8::try_from(high * 16 + low).ok(),
                _ => None,
            })
            .collect::<Option<_>>()?;
        let plain = String::from_utf8(bytes).ok()?;
        let mut parts = plain.splitn(3, '/');
        let revision = parts.next()?.parse::<u64>().ok()?;
        Some(Self {
            revision: Some(revision).filter(|revision| *revision > 0),
            start: (parts.next()?.into(), parts.next()?.into()),
        })
    }
}

/// Validates the options of a watch as real servers do.
fn check_watch(
    matching: &str,
    initial_events: Option<bool>,
    watch_lists: WatchListSupport,
) -> Result<(), Status> {
    let Some(_) = initial_events else {
        return match matching {
            "" => Ok(()),
            _ => Err(Status::forbidden_option(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )),
        };
    };
    if matching != "NotOlderThan" {
        return Err(Status::forbidden_option(
            "resourceVersionMatch",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ));
    }
    if watch_lists == WatchListSupport::Forbidden {
        return Err(Status::forbidden_option(
            "sendInitialEvents",
            "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
        ));
    }
    Ok(())
}

/// Validates the options of a list as real servers do.
fn check_list(
    version: &str,
    matching: &str,
    token: &str,
    initial_events: Option<bool>,
) -> Result<(), Status> {
    let forbidden = |field, message| Err(Status::forbidden_option(field, message));
    if initial_events.is_some() {
        return forbidden(
            "sendInitialEvents",
            "sendInitialEvents is forbidden for list",
        );
    }
    if !token.is_empty() && !matches!(version, "" | "0") {
        return Err(Status::bad_request(
            "specifying resource version is not allowed when using continue",
        ));
    }
    let field = "resourceVersionMatch";
    match (matching, version) {
        ("", _) => Ok(()),
        (_, "") => forbidden(
            field,
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (_, _) if !token.is_empty() => forbidden(
            field,
            "resourceVersionMatch is forbidden when continue is provided",
        ),
        ("Exact", "0") => forbidden(
            field,
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        ),
        ("Exact" | "NotOlderThan", _) => Ok(()),
        (other, _) => Err(Status::unsupported_match(other)),
    }
}

/// Splits and decodes a query.
pub(super) fn parameters(query: &str) -> Vec<(String, String)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        })
        .collect()
}

fn decode(text: &str) -> String {
    let mut bytes = vec![];
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let escaped = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (first, escaped) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or_default();
                continue;
            }
            (b'+', _) => bytes.push(b' '),
            _ => bytes.push(*first),
        }
        rest = tail;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn flag(name: &str, value: &str) -> Result<Option<bool>, Status> {
    match value {
        "" => Ok(None),
        "true" | "1" => Ok(Some(true)),
        "false" | "0" => Ok(Some(false)),
        other => Err(unreadable(name, other)),
    }
}

fn number(name: &str, value: &str) -> Result<Option<u64>, Status> {
    match value {
        "" => Ok(None),
        digits => match digits.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(unreadable(name, digits)),
        },
    }
}

fn unreadable(name: &str, value: &str) -> Status {
    Status::bad_request(format!("{name}: Invalid value: {value:?}"))
}
