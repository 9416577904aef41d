//! One request at a time to the API server: with the credentials of the day, not too often, and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, oneshot};
use tokio::time::{sleep, timeout};

use super::access::{AccessError, ApiAccess, Files, Opened};
use super::client;
use super::decode::{ListMetadata, Status};
use super::format::Negotiation;
use super::limit::Limit;
use super::observe::{Asked, Observer};
use super::times::Times;
use crate::version::{KUBERNETES, platform};

/// More of a refusal than this is not read.
const LARGEST_REFUSAL: usize = 64 * 1024;

/// The longest pause a server can ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How long a server may take to answer a probe.
const LONGEST_PROBE: Duration = Duration::from_secs(5);

/// More of the answer to a probe than this is not read.
const LARGEST_PROBE: usize = 1 << 20;

/// How much longer than its limit the reading of credentials is waited for: the thread itself keeps the limit.
const OPENING_SLACK: Duration = Duration::from_secs(5);

/// How long before they expire credentials are replaced.
const EARLIER: Duration = Duration::from_secs(60);

/// Credentials are not replaced more often than this, however soon they expire, unless they are refused.
const SHORTEST_LIFETIME: Duration = Duration::from_secs(10);

/// Credentials that live longer are replaced then.
const LONGEST_LIFETIME: Duration = Duration::from_secs(30 * 24 * 60 * 60);

const JSON: &str = "application/json";

/// Objects without what makes them large; servers that do not know it send them whole.
const METADATA_ONLY: &str =
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";

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
    negotiation: Negotiation,
    user_agent: String,
    current: Mutex<Current>,
    /// Credentials are being read, perhaps by a program that hangs.
    is_opening: Arc<AtomicBool>,
}

/// What requests are made with now.
struct Current {
    session: Arc<Session>,
    /// When the files that the credentials came from were last looked at; none if they are to be looked at before the next request.
    checked: Option<Instant>,
    /// New credentials could not be had; not to be tried again before.
    retry_at: Option<Instant>,
}

/// A client with the credentials as they were at some time.
struct Session {
    client: Client,
    host: String,
    files: Files,
    fingerprint: u64,
    /// When its credentials have to be replaced, if they expire.
    refresh_at: Option<Instant>,
}

/// What a server answered to a probe.
pub(super) struct ProbeAnswer {
    /// As of when the answer is, unless it was a refusal.
    pub(super) resource_version: Option<String>,
}

/// A request to be made.
struct Call<'a> {
    method: Method,
    uri: &'a str,
    /// The media types to ask for, if not the negotiated ones.
    accept: Option<&'static str>,
    content: &'a [u8],
    /// Until the headers of the answer.
    limit: Duration,
}

/// Why a request has no answer that could be used.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum RequestError {
    /// No answer came in time.
    #[error("no answer for {} s", .0.as_secs())]
    Late(Duration),
    /// There is no connection: refused, not reachable, or no TLS session.
    #[error("{0}")]
    Unreachable(String),
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
        let negotiation = Negotiation::new(access.encoding);
        let (platform, ours) = (platform(), env!("CARGO_PKG_VERSION"));
        let shared = Shared {
            access,
            times,
            observer,
            limit,
            negotiation,
            user_agent: format!("kube-proxy/{KUBERNETES} ({platform}) ferrovia/{ours}"),
            current: Mutex::new(Current {
                session,
                checked: Some(Instant::now()),
                retry_at: None,
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

    /// Asks for something; the answer is one that was granted. Its headers have to come within the limit.
    pub(super) async fn get(
        &self,
        uri: &str,
        limit: Duration,
    ) -> Result<Response<Body>, RequestError> {
        let call = Call {
            method: Method::GET,
            uri,
            accept: None,
            content: &[],
            limit,
        };
        self.request(&call).await
    }

    /// Finds out whether the server answers, whatever it says.
    pub(super) async fn probe(&self, uri: &str) -> Option<ProbeAnswer> {
        let call = Call {
            method: Method::GET,
            uri,
            accept: Some(METADATA_ONLY),
            content: &[],
            limit: self.shared.times.answer.min(LONGEST_PROBE),
        };
        match self.request(&call).await {
            Ok(answer) => Some(ProbeAnswer {
                resource_version: list_version(answer).await,
            }),
            Err(RequestError::Refused { .. }) => Some(ProbeAnswer {
                resource_version: None,
            }),
            Err(error) => {
                tracing::debug!(err = %error, "API server still unreachable");
                None
            }
        }
    }

    /// Posts an object in JSON.
    pub(super) async fn post(&self, uri: &str, object: &[u8]) -> Result<(), RequestError> {
        let call = Call {
            method: Method::POST,
            uri,
            accept: Some(JSON),
            content: object,
            limit: self.shared.times.answer,
        };
        self.request(&call).await.map(|_| ())
    }

    async fn request(&self, call: &Call<'_>) -> Result<Response<Body>, RequestError> {
        let session = self.session().await;
        let sent = self.send(&session, call).await;
        if matches!(sent, Err(RequestError::Unreachable(_))) {
            // Its certificate may be of another authority now, or its address another one.
            self.shared.current.lock().await.checked = None;
        }
        let mut answer = sent?;
        if call.method == Method::GET && self.shared.negotiation.is_refused(answer.status()) {
            answer = self.send(&session, call).await?;
        }
        if answer.status() != StatusCode::UNAUTHORIZED {
            return granted(answer).await;
        }
        // The credentials may have expired before their time: take them anew, and try once more.
        match self.reopen(&session).await {
            Some(session) => granted(self.send(&session, call).await?).await,
            None => granted(answer).await,
        }
    }

    async fn send(
        &self,
        session: &Session,
        call: &Call<'_>,
    ) -> Result<Response<Body>, RequestError> {
        let held_back = self.shared.limit.take(Instant::now());
        if !held_back.is_zero() {
            sleep(held_back).await;
        }
        let accept = call.accept.unwrap_or(self.shared.negotiation.accept());
        let mut request = Request::builder()
            .method(&call.method)
            .uri(call.uri)
            .header(ACCEPT, accept)
            .header(USER_AGENT, &self.shared.user_agent);
        if !call.content.is_empty() {
            request = request.header(CONTENT_TYPE, JSON);
        }
        let request = request
            .body(Body::from(call.content.to_vec()))
            .map_err(|error| RequestError::Transport(error.to_string()))?;
        let asked = Instant::now();
        let answer = match timeout(call.limit, session.client.send(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(transport_error(&error)),
            Err(_) => Err(RequestError::Late(call.limit)),
        };
        self.shared.observer.asked(&Asked {
            method: call.method.as_str(),
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
        let now = Instant::now();
        let mut is_stale = current.session.refresh_at.is_some_and(|at| now >= at);
        let period = self.shared.times.credentials;
        if current
            .checked
            .is_none_or(|at| now.duration_since(at) >= period)
        {
            current.checked = Some(now);
            is_stale |= current.session.files.fingerprint() != current.session.fingerprint;
        }
        if is_stale {
            self.replace(&mut current).await;
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

    /// Takes new credentials: the one place where that is done, and not too often. Requests wait for it.
    async fn replace(&self, current: &mut Current) -> bool {
        let Shared {
            access,
            times,
            is_opening,
            ..
        } = &*self.shared;
        if current.retry_at.is_some_and(|at| Instant::now() < at) {
            return false;
        }
        match open_session(access, times.answer, is_opening).await {
            Ok(session) => {
                if session.fingerprint != current.session.fingerprint {
                    tracing::info!("Reloaded credentials for the API server");
                }
                current.session = session;
                current.retry_at = None;
                true
            }
            Err(error) => {
                let retry_after = times.credentials_retry;
                tracing::warn!(
                    err = %error,
                    retryAfter = ?retry_after,
                    "Failed to renew credentials for the API server; keeping the current ones"
                );
                current.retry_at = Some(Instant::now() + retry_after);
                false
            }
        }
    }
}

/// Reads files and may run a program, so it is done on a thread of its own. The program is killed at the limit. A file system that hangs costs
/// one thread: until it ends, no other is started.
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
        .ok_or_else(|| hung("credentials are still being read since before"))?;
    let (result, opened) = oneshot::channel();
    let (access, runtime) = (access.clone(), Handle::current());
    let work = move || {
        let _inside = runtime.enter();
        let session = open_blocking(&access, limit);
        drop(opening);
        // Nobody waits any more if it took too long.
        let _ = result.send(session);
    };
    thread::Builder::new()
        .name("kube-access".into())
        .spawn(work)
        .map_err(|error| hung(&format!("cannot start a thread: {error}")))?;
    match timeout(limit + OPENING_SLACK, opened).await {
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

fn open_blocking(access: &ApiAccess, limit: Duration) -> Result<Arc<Session>, AccessError> {
    let Opened {
        config,
        files,
        expires,
    } = access.open(limit)?;
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
        refresh_at: expires.map(|at| refresh_time(at, Timestamp::now(), Instant::now())),
    }))
}

/// Before the credentials expire, but not all the time if they hardly live.
fn refresh_time(expires: Timestamp, now: Timestamp, instant: Instant) -> Instant {
    let lifetime = Duration::try_from(expires.duration_since(now)).unwrap_or_default();
    // A time far in the future is beyond what an instant holds.
    let lifetime = lifetime.min(LONGEST_LIFETIME);
    let margin = EARLIER.min(lifetime / 4);
    instant + (lifetime - margin).max(SHORTEST_LIFETIME)
}

/// The resourceVersion of a list that is not worth more.
async fn list_version(answer: Response<Body>) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct List {
        metadata: ListMetadata,
    }
    let body = Limited::new(answer.into_body(), LARGEST_PROBE).collect();
    let body = timeout(LONGEST_PROBE, body).await.ok()?.ok()?;
    let list: List = serde_json::from_slice(&body.to_bytes()).ok()?;
    Some(list.metadata.resource_version).filter(|version| !version.is_empty())
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

fn transport_error(error: &(dyn std::error::Error + 'static)) -> RequestError {
    let what = with_causes(error);
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    let is_connect = causes.any(|cause| {
        let hyper = cause.downcast_ref::<hyper_util::client::legacy::Error>();
        hyper.is_some_and(hyper_util::client::legacy::Error::is_connect)
    });
    if is_connect {
        RequestError::Unreachable(what)
    } else {
        RequestError::Transport(what)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_replaced_before_they_expire() {
        let (now, instant) = (Timestamp::UNIX_EPOCH, Instant::now());
        let after = |seconds: i64| {
            let expires = Timestamp::from_second(seconds).unwrap();
            refresh_time(expires, now, instant).duration_since(instant)
        };
        assert_eq!(after(3600), Duration::from_secs(3540));
        assert_eq!(after(80), Duration::from_secs(60));
        assert_eq!(after(1), SHORTEST_LIFETIME);
        assert_eq!(after(-500), SHORTEST_LIFETIME);
        assert_eq!(after(253_402_207_200), LONGEST_LIFETIME - EARLIER);
    }
}
