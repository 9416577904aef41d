//! `/debug`: what can be looked at and changed while the proxy runs, if profiling is on.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use http::header::ORIGIN;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::time::timeout;

use crate::serve::http::answer::{Answer, TEXT, answer as reply, not_found, text};

/// Changes how much is logged, from now on.
pub type SetVerbosity = Arc<dyn Fn(u32) + Send + Sync>;

/// A number of a few digits.
const MAX_NUMBER: usize = 64;
/// How long it may take to send it.
const PATIENCE: Duration = Duration::from_secs(10);

/// What Go's tools would ask for; we have none of it.
const GO_PROFILES: [&str; 9] = [
    "allocs",
    "block",
    "goroutine",
    "heap",
    "mutex",
    "profile",
    "symbol",
    "threadcreate",
    "trace",
];
const INDEX: &str = "This proxy is not written in Go and has no Go profiles. There are:\n\n\
    /debug/pprof/cmdline  the command line, its words separated by NUL\n\
    /debug/flags/v        PUT a number: the verbosity of the log\n\n\
    For profiles, use perf on the node: perf record -g -p PID\n";

/// Answers a request below `/debug/`.
pub(super) async fn answer(request: Request<Incoming>, set_verbosity: &SetVerbosity) -> Answer {
    match request.uri().path() {
        "/debug/pprof/" | "/debug/pprof" => text(INDEX),
        "/debug/pprof/cmdline" => text(command_line()),
        "/debug/flags/v" => verbosity(request, set_verbosity).await,
        path => match path.strip_prefix("/debug/pprof/") {
            Some(name) if GO_PROFILES.contains(&name) => {
                reply(StatusCode::NOT_IMPLEMENTED, TEXT, INDEX)
            }
            _ => not_found(),
        },
    }
}

fn command_line() -> String {
    let words: Vec<String> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    words.join("\0")
}

async fn verbosity(request: Request<Incoming>, set_verbosity: &SetVerbosity) -> Answer {
    if request.method() != Method::PUT {
        return reply(StatusCode::NOT_ACCEPTABLE, TEXT, "use PUT\n");
    }
    // No tool sends this header but every browser does, also on behalf of a page that only pretends to come from this address.
    if request.headers().contains_key(ORIGIN) {
        return reply(StatusCode::FORBIDDEN, TEXT, "not for web pages\n");
    }
    let body = Limited::new(request.into_body(), MAX_NUMBER).collect();
    let bytes = match timeout(PATIENCE, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) => return bad_number(error),
        Err(late) => return bad_number(late),
    };
    match String::from_utf8_lossy(&bytes).trim().parse() {
        Ok(level) => {
            set_verbosity(level);
            tracing::info!(level, "the verbosity of the log was set");
            text(format!("the verbosity is {level} now\n"))
        }
        Err(error) => bad_number(error),
    }
}

fn bad_number(error: impl Display) -> Answer {
    let problem = format!("the body should be the verbosity, a number such as 4: {error}\n");
    reply(StatusCode::BAD_REQUEST, TEXT, problem)
}
