//! Which question is at which path.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, HeaderValue};
use http::{Method, StatusCode, Uri};
use serde_json::{Value, json};

use super::history::to_json;
use super::problem::Problem;
use super::query::{Query, decode};
use super::{Admin, VERSION};
use crate::serve::http::answer::{Answer, JSON, answer as respond, set};

/// What all paths begin with.
const PREFIX: &str = "/api/v1/";
const PATHS: &str =
    "GET /api/v1/overview, services, services/NAMESPACE/NAME, trace, plan, diff, changes or events";

/// By which way a question came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// The socket, which only the daemon's user may open.
    Socket,
    /// The page's address, which everybody on this machine can reach.
    Page,
}

impl Door {
    /// Who talks to whom is nobody's business but root's, and work must not be had for nothing.
    fn check_trusted(self) -> Result<(), Problem> {
        match self {
            Self::Socket => Ok(()),
            Self::Page => Err(Problem::new(
                StatusCode::FORBIDDEN,
                "this is told over the admin socket only",
                "ask with a command such as ferrovia trace or ferrovia diff, as the daemon's user",
            )),
        }
    }
}

/// Answers a request, whoever was allowed to make it.
pub(crate) async fn answer(admin: &Arc<Admin>, door: Door, method: &Method, uri: &Uri) -> Answer {
    if method != Method::GET && method != Method::HEAD {
        let code = StatusCode::METHOD_NOT_ALLOWED;
        let mut refusal = refuse(&Problem::new(code, "nothing can be changed here", PATHS));
        set(&mut refusal, ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    let found = match Query::parse(uri.query()) {
        Ok(query) => route(admin, door, uri.path(), query, method == Method::HEAD).await,
        Err(problem) => Err(problem),
    };
    match found {
        Ok(Found::Json(value)) => json_answer(StatusCode::OK, value.to_string()),
        Ok(Found::Stream(answer)) => answer,
        Err(problem) => refuse(&problem),
    }
}

enum Found {
    Json(Value),
    Stream(Answer),
}

async fn route(
    admin: &Arc<Admin>,
    door: Door,
    path: &str,
    query: Query,
    head_only: bool,
) -> Result<Found, Problem> {
    let missing = || Problem::missing("there is nothing at this path", PATHS);
    let segments: Option<Vec<String>> = path
        .strip_prefix(PREFIX)
        .ok_or_else(missing)?
        .split('/')
        .map(|segment| decode(segment, false))
        .collect();
    let segments = segments.ok_or_else(missing)?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let value = match segments[..] {
        ["overview"] => {
            query.only(&[])?;
            admin.overview(true).await?
        }
        ["services"] => {
            let query = query.only(&["filter", "sort", "offset", "limit"])?;
            admin.services(&query).await?
        }
        ["services", namespace, name] => {
            query.only(&[])?;
            admin.service(namespace, name).await?
        }
        ["trace"] => {
            let query = query.only(&["from", "to", "kernel"])?;
            if query.flag("kernel")? {
                door.check_trusted()?;
            }
            admin.trace(&query).await?
        }
        ["plan"] => {
            door.check_trusted()?;
            admin.plan(&query.only(&["family", "service"])?).await?
        }
        ["diff"] => {
            door.check_trusted()?;
            admin.diff(&query.only(&["family"])?).await?
        }
        ["changes"] => {
            let query = query.only(&["after"])?;
            let after = query.number("after", 0)?;
            let changes = admin.history.after(after as u64);
            json!({ "version": VERSION, "changes": to_json(&changes) })
        }
        // The head of a stream that nobody will read.
        ["events"] if head_only => Value::Null,
        ["events"] => {
            let answer = admin.events(&query.only(&["service"])?)?;
            return Ok(Found::Stream(answer));
        }
        _ => return Err(missing()),
    };
    Ok(Found::Json(value))
}

fn refuse(problem: &Problem) -> Answer {
    json_answer(problem.code, problem.body())
}

fn json_answer(code: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = respond(code, JSON, body);
    set(
        &mut answer,
        CACHE_CONTROL,
        HeaderValue::from_static("no-store"),
    );
    answer
}
