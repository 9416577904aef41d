//! Responds to requests.

use std::sync::Arc;
use std::time::Instant;

use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, RETRY_AFTER,
};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::body::{Aborted, Body};
use super::credentials::USER;
use super::encoding::Encoding;
use super::event;
use super::faults::{Fault, Verb};
use super::kind::Kind;
use super::list::list;
use super::options::Auth;
use super::query::{self, ListOptions, Route};
use super::request::Request;
use super::state::{ConnectionCommand, ServerState};
use super::status::Status;
use super::watch::watch;

/// The maximum size of a request body. Real servers accept 3 MiB.
const BODY_LIMIT: usize = 3 << 20;

/// Larger responses are compressed if the client accepts it.
const COMPRESSED_FROM: usize = 128 * 1024;

/// The peer of a connection.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) connection: u64,
    /// Its verified client certificate.
    pub(super) certificate: Option<Vec<u8>>,
}

/// Responds to a request; `Err` resets the stream.
pub(super) async fn answer(
    shared: Arc<ServerState>,
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
        certificate: peer.certificate.clone(),
        version: head.version,
        connection: peer.connection,
        at: Instant::now(),
    };
    shared.state().requests.push(logged.clone());
    shared.tell();
    let encoding = Encoding::negotiated(&logged.headers, shared.options.protobuf);
    let answered = match &encoding {
        Ok(encoding) => respond(&shared, &peer, &logged, incoming, *encoding).await,
        Err(status) => Err(status.clone().into()),
    };
    let encoding = encoding.unwrap_or(Encoding::Json);
    match answered {
        Ok(body) => Ok(compress(&shared, &logged, success(&logged, body, encoding))),
        Err(Refusal::Status(status)) => Ok(refusal(&status, encoding)),
        Err(Refusal::Abort) => Err(Aborted),
    }
}

/// Why the response is not 200.
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
    shared: &Arc<ServerState>,
    peer: &Peer,
    request: &Request,
    incoming: Incoming,
    encoding: Encoding,
) -> Result<Body, Refusal> {
    let route = Route::of(&request.method, &request.path);
    let (verb, kind) = aim(&route, request);
    let (delay, fault) = shared.state().faults.on_request(verb, kind);
    tokio::time::sleep(delay).await;
    let user = request.user.as_deref().ok_or_else(Status::unauthorized)?;
    if let Some(fault) = fault {
        suffer(shared, peer, fault, Subject { user, verb, kind }).await?;
    }
    match fault {
        Some(Fault::Garbage) => return Ok(Body::one("garbage\n".repeat(10))),
        Some(Fault::BreakOff) => return Ok(broken_off()),
        _ => {}
    }
    let body = serve(shared, route?, request, incoming, encoding).await?;
    Ok(match fault {
        Some(Fault::HoldHeaders) => body.begun().await,
        _ => body,
    })
}

async fn serve(
    shared: &Arc<ServerState>,
    route: Route,
    request: &Request,
    incoming: Incoming,
    encoding: Encoding,
) -> Result<Body, Refusal> {
    match route {
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
            Ok(Body::one(encoding.single(kind, &object)))
        }
        Route::Collection(kind, namespace) => {
            let options = ListOptions::parse(kind, &request.query, shared.options.watch_lists)?;
            if options.watch {
                return Ok(watch(shared, kind, namespace, options, encoding)?);
            }
            let state = shared.state();
            let has_cache = shared.options.watch_cache;
            let namespace = namespace.as_deref();
            Ok(list(
                &state.store,
                kind,
                namespace,
                &options,
                has_cache,
                encoding,
            )?)
        }
    }
}

/// The properties of a request that select faults.
fn aim(route: &Result<Route, Status>, request: &Request) -> (Verb, Option<Kind>) {
    match route {
        Ok(Route::Collection(kind, _)) if request.is_watch() => {
            let begins_with_state = request.parameter("sendInitialEvents") == Some("true");
            let verb = match begins_with_state {
                true => Verb::WatchList,
                false => Verb::Watch,
            };
            (verb, Some(*kind))
        }
        Ok(Route::Collection(kind, _)) => (Verb::List, Some(*kind)),
        Ok(Route::Object(kind, ..)) => (Verb::Get, Some(*kind)),
        Ok(Route::NewEvent(_)) => (Verb::Create, None),
        Ok(Route::Version) | Err(_) => (Verb::Get, None),
    }
}

/// The log entry of a request.
struct Subject<'a> {
    user: &'a str,
    verb: Verb,
    kind: Option<Kind>,
}

/// Applies a fault to a request.
async fn suffer(
    shared: &ServerState,
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
            let command = ConnectionCommand::Reset;
            shared.state().send_to_connection(peer.connection, command);
            hang().await
        }
        Fault::Hang => hang().await,
        Fault::Delay(_)
        | Fault::Garbage
        | Fault::BreakOff
        | Fault::HoldHeaders
        | Fault::Silence
        | Fault::Duplicate
        | Fault::Reorder => Ok(()),
    }
}

/// A response that ends in the middle of a line.
fn broken_off() -> Body {
    let (feed, body) = Body::stream();
    // There is room in the queue for both.
    let _ = feed.try_send(Ok(r#"{"type":"ADDED","object":{"#.into()));
    let _ = feed.try_send(Err(Aborted));
    body
}

/// Never returns; the future is dropped with its connection.
async fn hang() -> Result<(), Refusal> {
    std::future::pending().await
}

/// The user of a request; `None` if authentication failed.
fn user(shared: &ServerState, peer: &Peer, headers: &HeaderMap) -> Option<String> {
    match shared.options.auth {
        Auth::None => Some("system:anonymous".into()),
        Auth::ClientCertificate => peer.certificate.as_ref().map(|_| USER.to_owned()),
        Auth::Token | Auth::TokenFile => {
            let sent = headers.get(AUTHORIZATION)?.to_str().ok()?;
            let token = sent.strip_prefix("Bearer ")?;
            (token == shared.state().token).then(|| USER.to_owned())
        }
    }
}

async fn new_event(
    shared: &ServerState,
    namespace: &str,
    incoming: Incoming,
) -> Result<Body, Refusal> {
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
    let mut state = shared.state();
    event::check(&event, namespace, &state.events)?;
    state.events.push(event);
    drop(state);
    shared.tell();
    Ok(Body::one(answer))
}

fn success(request: &Request, body: Body, encoding: Encoding) -> Response<Body> {
    let mut response = Response::new(body);
    if request.method == http::Method::POST {
        *response.status_mut() = StatusCode::CREATED;
    }
    // The version and Events are always JSON.
    let is_json = request.method == http::Method::POST || request.path == "/version";
    let encoding = if is_json { Encoding::Json } else { encoding };
    finish(response, encoding.content_type(request.is_watch()))
}

/// Compresses a large answer as real servers do: for clients that ask for it, and never a watch.
fn compress(shared: &ServerState, request: &Request, response: Response<Body>) -> Response<Body> {
    let accepted = request.headers.get(ACCEPT_ENCODING);
    let is_asked = accepted.is_some_and(|accepted| accepted == "gzip");
    if !is_asked || request.is_watch() {
        return response;
    }
    let (mut head, body) = response.into_parts();
    match body.compressed(COMPRESSED_FROM) {
        Ok(body) => {
            shared.state().compressed += 1;
            let gzip = HeaderValue::from_static("gzip");
            head.headers.insert(CONTENT_ENCODING, gzip);
            Response::from_parts(head, body)
        }
        Err(body) => Response::from_parts(head, body),
    }
}

fn refusal(status: &Status, encoding: Encoding) -> Response<Body> {
    if let Some(text) = status.text() {
        return in_text(status.code, text);
    }
    let mut response = Response::new(Body::one(encoding.status(status)));
    *response.status_mut() = status.code;
    let headers = response.headers_mut();
    if let Some(seconds) = status.retry_after {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    finish(response, encoding.content_type(false))
}

/// A response that is not an object.
fn in_text(code: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Body::one(text));
    *response.status_mut() = code;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

fn finish(mut response: Response<Body>, content_type: &'static str) -> Response<Body> {
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
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
