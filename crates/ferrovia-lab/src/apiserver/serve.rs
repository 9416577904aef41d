//! From a request to its answer.

use std::sync::Arc;
use std::time::Instant;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::body::{Aborted, Body};
use super::credentials::USER;
use super::faults::{Fault, Verb};
use super::kind::Kind;
use super::list::list;
use super::options::Auth;
use super::query::{self, ListOptions, Route};
use super::request::Request;
use super::shared::{ConnectionOrder, Shared};
use super::status::Status;
use super::watch::watch;

/// The most a client may send. Real servers take 3 MiB.
const BODY_LIMIT: usize = 3 << 20;

/// Who is on the other side of a connection.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) connection: u64,
    /// Whether it has shown a certificate of our authority.
    pub(super) certified: bool,
}

/// Answers a request; `Err` resets the stream.
pub(super) async fn answer(
    shared: Arc<Shared>,
    peer: Peer,
    request: http::Request<Incoming>,
) -> Result<Response<Body>, Aborted> {
    let (head, incoming) = request.into_parts();
    let logged = Request {
        method: head.method,
        path: head.uri.path().to_owned(),
        query: query::parameters(head.uri.query().unwrap_or_default()),
        user: user(&shared, &peer, &head.headers),
        headers: head.headers,
        at: Instant::now(),
    };
    shared.state().requests.push(logged.clone());
    shared.tell();
    match respond(&shared, &peer, &logged, incoming).await {
        Ok(body) => Ok(success(&logged, body)),
        Err(Refusal::Status(status)) => Ok(refusal(&status)),
        Err(Refusal::Abort) => Err(Aborted),
    }
}

/// Why there is no answer of 200.
enum Refusal {
    Status(Status),
    Abort,
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

async fn respond(
    shared: &Arc<Shared>,
    peer: &Peer,
    request: &Request,
    incoming: Incoming,
) -> Result<Body, Refusal> {
    let route = Route::of(&request.method, &request.path);
    let (verb, kind) = aim(&route, request);
    let (delay, fault) = shared.state().faults.on_request(verb, kind);
    tokio::time::sleep(delay).await;
    let user = request.user.as_deref().ok_or_else(Status::unauthorized)?;
    if let Some(fault) = fault {
        suffer(shared, peer, fault, Subject { user, verb, kind }).await?;
    }
    match route? {
        Route::Version => Ok(Body::one(version().to_string())),
        Route::NewEvent(namespace) => new_event(shared, &namespace, incoming).await,
        Route::Collection(Kind::ServiceCidr, _) | Route::Object(Kind::ServiceCidr, ..)
            if !shared.options.service_cidrs =>
        {
            Err(Status::no_such_path().into())
        }
        Route::Object(kind, namespace, name) => {
            let object = shared.state().store.get(kind, &namespace, &name);
            let object = object.ok_or_else(|| Status::no_such_object(kind, &name))?;
            Ok(Body::one(object.value(kind).to_string()))
        }
        Route::Collection(kind, namespace) => {
            let options = ListOptions::parse(kind, &request.query, shared.options.streaming_lists)?;
            if options.watch {
                return Ok(watch(shared, kind, namespace, options)?);
            }
            let state = shared.state();
            Ok(list(&state.store, kind, namespace.as_deref(), &options)?)
        }
    }
}

/// What faults are chosen by.
fn aim(route: &Result<Route, Status>, request: &Request) -> (Verb, Option<Kind>) {
    match route {
        Ok(Route::Collection(kind, _)) if request.is_watch() => (Verb::Watch, Some(*kind)),
        Ok(Route::Collection(kind, _)) => (Verb::List, Some(*kind)),
        Ok(Route::Object(kind, ..)) => (Verb::Get, Some(*kind)),
        Ok(Route::NewEvent(_)) => (Verb::Create, None),
        Ok(Route::Version) | Err(_) => (Verb::Get, None),
    }
}

/// Who asked for what.
struct Subject<'a> {
    user: &'a str,
    verb: Verb,
    kind: Option<Kind>,
}

/// Does to a request what a fault demands.
async fn suffer(
    shared: &Shared,
    peer: &Peer,
    fault: Fault,
    subject: Subject<'_>,
) -> Result<(), Refusal> {
    match fault {
        Fault::Code { code, retry_after } => Err(Status::of_code(code, retry_after).into()),
        Fault::Forbid => {
            let Subject { user, verb, kind } = subject;
            Err(match kind {
                Some(kind) => Status::forbidden(user, verb.name(), kind).into(),
                None => Status::of_code(StatusCode::FORBIDDEN, None).into(),
            })
        }
        Fault::Abort => Err(Refusal::Abort),
        Fault::Reset => {
            let order = ConnectionOrder::Reset;
            shared.state().order_connection(peer.connection, order);
            hang().await
        }
        Fault::Hang => hang().await,
        Fault::Delay(_) | Fault::Silence | Fault::Duplicate | Fault::Reorder => Ok(()),
    }
}

/// Never returns; the future goes when its connection does.
async fn hang() -> Result<(), Refusal> {
    std::future::pending().await
}

/// The user of a request; nothing if it has not shown what is demanded.
fn user(shared: &Shared, peer: &Peer, headers: &HeaderMap) -> Option<String> {
    match shared.options.auth {
        Auth::None => Some("system:anonymous".into()),
        Auth::ClientCertificate => peer.certified.then(|| USER.to_owned()),
        Auth::Token | Auth::TokenFile => {
            let sent = headers.get(AUTHORIZATION)?.to_str().ok()?;
            let token = sent.strip_prefix("Bearer ")?;
            (token == shared.state().token).then(|| USER.to_owned())
        }
    }
}

async fn new_event(shared: &Shared, namespace: &str, incoming: Incoming) -> Result<Body, Refusal> {
    let collected = Limited::new(incoming, BODY_LIMIT).collect().await;
    let bytes = collected
        .map_err(|error| Status::bad_request(format!("the body cannot be read: {error}")))?
        .to_bytes();
    let mut event: Value = serde_json::from_slice(&bytes)
        .map_err(|error| Status::bad_request(format!("the body is not JSON: {error}")))?;
    let metadata = event.get_mut("metadata").and_then(Value::as_object_mut);
    let metadata = metadata.ok_or_else(|| Status::bad_request("the event has no metadata"))?;
    metadata.insert("namespace".into(), json!(namespace));
    let answer = event.to_string();
    shared.state().events.push(event);
    shared.tell();
    Ok(Body::one(answer))
}

fn success(request: &Request, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    if request.method == http::Method::POST {
        *response.status_mut() = StatusCode::CREATED;
    }
    finish(response)
}

fn refusal(status: &Status) -> Response<Body> {
    let mut response = Response::new(Body::one(status.object().to_string()));
    *response.status_mut() = status.code;
    let headers = response.headers_mut();
    if let Some(seconds) = status.retry_after {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    if status.code == StatusCode::UNAUTHORIZED {
        let challenge = HeaderValue::from_static("Bearer realm=\"kubernetes\"");
        headers.insert(WWW_AUTHENTICATE, challenge);
    }
    finish(response)
}

fn finish(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(
        "cache-control",
        HeaderValue::from_static("no-cache, private"),
    );
    response
}

fn version() -> Value {
    json!({
        "major": "1",
        "minor": "36",
        "gitVersion": "v1.36.4",
        "platform": "linux/amd64",
    })
}
