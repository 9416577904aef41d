//! One request at a time to the API server: with the credentials of the day, not too often, and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use kube::Client;
use kube::client::Body;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, oneshot};
use tokio::time::{sleep, timeout};

use super::access::{AccessError, ApiAccess, Files, Opened};
use super::client;
use super::decode::Status;
use super::limit::Limit;
use super::observe::{Asked, Observer};
use super::times::Times;
use crate::version::{KUBERNETES, platform};

/// More of a refusal than this is not read.
const LARGEST_REFUSAL: usize = 64 * 1024;

/// The longest pause a server can ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The API server, as seen from here. Clones share credentials and the rate limit.
#[derive(Clone)]
pub struct Api {
    shared: Arc<Shared>,
}

struct Shared {
    access: ApiAccess,
    times: Times,
    observer: Arc<dyn Observer>,
    limit: Limit,
    user_agent: String,
    current: Mutex<Current>,
    /// Credentials are being read, perhaps by a program that hangs.
    is_opening: Arc<AtomicBool>,
}

/// What requests are made with now.
struct Current {
    session: Arc<Session>,
    /// When the files that the credentials came from were last looked at.
    checked: Instant,
}

/// A client with the credentials as they were at some time.
struct Session {
    client: Client,
    host: String,
    files: Files,
    fingerprint: u64,
}

/// Why a request has no answer that could be used.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum RequestError {
    /// No answer came in time.
    #[error("no answer for {} s", .0.as_secs())]
    Late(Duration),
    /// It could not be sent, or the answer not be received.
    #[error("{0}")]
    Transport(String),
    /// The server refused.
    #[error("{}", shown(.status))]
    Refused {
        /// What it says.
        status: Status,
        /// When it wants to be asked again, within reason.
        retry_after: Option<Duration>,
    },
}

impl Api {
    /// Reads the credentials. Does not speak to the server yet. Must be called on a tokio runtime.
    pub async fn open(
        access: ApiAccess,
        times: Times,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, AccessError> {
        let is_opening = Arc::default();
        let session = open_session(&access, times.answer, &is_opening).await?;
        let limit = Limit::new(access.qps, access.burst, Instant::now());
        let (platform, ours) = (platform(), env!("CARGO_PKG_VERSION"));
        let shared = Shared {
            access,
            times,
            observer,
            limit,
            user_agent: format!("kube-proxy/{KUBERNETES} ({platform}) ferrovia/{ours}"),
            current: Mutex::new(Current {
                session,
                checked: Instant::now(),
            }),
            is_opening,
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    pub(super) fn times(&self) -> &Times {
        &self.shared.times
    }

    pub(super) fn observer(&self) -> &dyn Observer {
        &*self.shared.observer
    }

    /// Asks for something; the answer is one that was granted.
    pub(super) async fn get(&self, uri: &str) -> Result<Response<Body>, RequestError> {
        self.request(Method::GET, uri, &[]).await
    }

    /// Posts an object in JSON.
    pub(super) async fn post(&self, uri: &str, object: &[u8]) -> Result<(), RequestError> {
        self.request(Method::POST, uri, object).await.map(|_| ())
    }

    async fn request(
        &self,
        method: Method,
        uri: &str,
        content: &[u8],
    ) -> Result<Response<Body>, RequestError> {
        let session = self.session().await;
        let answer = self.send(&session, &method, uri, content).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return granted(answer).await;
        }
        // The credentials may have expired before their time: take them anew, and try once more.
        match self.reopen(&session).await {
            Some(session) => granted(self.send(&session, &method, uri, content).await?).await,
            None => granted(answer).await,
        }
    }

    async fn send(
        &self,
        session: &Session,
        method: &Method,
        uri: &str,
        content: &[u8],
    ) -> Result<Response<Body>, RequestError> {
        let held_back = self.shared.limit.take(Instant::now());
        if !held_back.is_zero() {
            sleep(held_back).await;
        }
        let mut request = Request::builder()
            .method(method)
            .uri(uri)
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, &self.shared.user_agent);
        if !content.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request
            .body(Body::from(content.to_vec()))
            .map_err(|error| RequestError::Transport(error.to_string()))?;
        let asked = Instant::now();
        let limit = self.shared.times.answer;
        let answer = match timeout(limit, session.client.send(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(RequestError::Transport(with_causes(&error))),
            Err(_) => Err(RequestError::Late(limit)),
        };
        self.shared.observer.asked(&Asked {
            method: method.as_str(),
            host: &session.host,
            code: answer.as_ref().ok().map(|answer| answer.status().as_u16()),
            took: asked.elapsed(),
            held_back,
        });
        answer
    }

    /// The current session, after a look at the files its credentials came from, now and then.
    async fn session(&self) -> Arc<Session> {
        let mut current = self.shared.current.lock().await;
        if current.checked.elapsed() >= self.shared.times.credentials {
            current.checked = Instant::now();
            if current.session.files.fingerprint() != current.session.fingerprint {
                tracing::info!("the credentials for the API server changed; taking the new ones");
                self.replace(&mut current).await;
            }
        }
        current.session.clone()
    }

    /// New credentials instead of those that were refused; nothing if there are none.
    async fn reopen(&self, refused: &Arc<Session>) -> Option<Arc<Session>> {
        let mut current = self.shared.current.lock().await;
        // Another request may have been faster.
        let is_replaced = !Arc::ptr_eq(&current.session, refused);
        (is_replaced || self.replace(&mut current).await).then(|| current.session.clone())
    }

    async fn replace(&self, current: &mut Current) -> bool {
        let Shared {
            access,
            times,
            is_opening,
            ..
        } = &*self.shared;
        match open_session(access, times.answer, is_opening).await {
            Ok(session) => {
                current.session = session;
                true
            }
            Err(error) => {
                tracing::warn!(%error, "cannot take new credentials for the API server; keeping the old ones");
                false
            }
        }
    }
}

/// Reads files and may run a program, so it is done on a thread of its own, and given up on after a while. A program that hangs costs
/// that one thread: until it ends, no other is started.
async fn open_session(
    access: &ApiAccess,
    limit: Duration,
    is_opening: &Arc<AtomicBool>,
) -> Result<Arc<Session>, AccessError> {
    let hung = |what: &str| AccessError::Connection {
        server: "the API server".to_owned(),
        what: what.to_owned(),
    };
    let opening = Opening::begin(is_opening)
        .ok_or_else(|| hung("the exec plugin that was started before has not ended yet"))?;
    let (result, opened) = oneshot::channel();
    let (access, runtime) = (access.clone(), Handle::current());
    let work = move || {
        let _inside = runtime.enter();
        let session = open_blocking(&access);
        drop(opening);
        // Nobody waits any more if it took too long.
        let _ = result.send(session);
    };
    thread::Builder::new()
        .name("kube-access".into())
        .spawn(work)
        .map_err(|error| hung(&format!("cannot start a thread: {error}")))?;
    match timeout(limit, opened).await {
        Ok(Ok(session)) => session,
        Ok(Err(_)) => Err(hung("reading the credentials failed")),
        Err(_) => Err(hung("reading the credentials takes too long")),
    }
}

/// Credentials are being read until this is dropped.
struct Opening(Arc<AtomicBool>);

impl Opening {
    /// Nothing if they are being read already.
    fn begin(is_opening: &Arc<AtomicBool>) -> Option<Self> {
        let was_opening = is_opening.swap(true, Ordering::AcqRel);
        (!was_opening).then(|| Self(is_opening.clone()))
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

fn open_blocking(access: &ApiAccess) -> Result<Arc<Session>, AccessError> {
    let Opened { config, files } = access.open()?;
    let url = &config.cluster_url;
    let host = url.host().unwrap_or_default();
    let host = url
        .port()
        .map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    Ok(Arc::new(Session {
        fingerprint: files.fingerprint(),
        client: client::build(config)?,
        host,
        files,
    }))
}

async fn granted(answer: Response<Body>) -> Result<Response<Body>, RequestError> {
    if answer.status().is_success() {
        return Ok(answer);
    }
    let code = answer.status().as_u16();
    let asked_pause = answer
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    let body = Limited::new(answer.into_body(), LARGEST_REFUSAL).collect();
    let body = timeout(LONGEST_PAUSE, body).await.ok().and_then(Result::ok);
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    let status = Status::of_answer(code, &body);
    let retry_after = asked_pause
        .or(status.retry_after_seconds())
        .map(|seconds| Duration::from_secs(seconds).min(LONGEST_PAUSE));
    Err(RequestError::Refused {
        status,
        retry_after,
    })
}

/// The library's errors name only the layer that failed; the cause is further down.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    text
}

fn shown(status: &Status) -> String {
    let Status {
        code,
        reason,
        message,
        ..
    } = status;
    match (reason.as_str(), message.as_str()) {
        ("", "") => format!("HTTP {code}"),
        ("", message) => format!("HTTP {code}: {message}"),
        (reason, message) => format!("HTTP {code} {reason}: {message}"),
    }
}
