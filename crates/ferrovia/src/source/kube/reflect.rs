//! Follows one resource for ever: lists it, watches it, and begins again where it has to.

use std::time::{Duration, Instant};

use ferrovia_core::store::Event;
use ferrovia_core::wire::Kind;
use http::Response;
use kube::client::Body;
use tokio::time::sleep;

use super::api::{Api, RequestError};
use super::backoff::{Backoff, Return};
use super::chunks::ReadError;
use super::decode::{Fault, Status};
use super::freshness::Freshness;
use super::known::Known;
use super::outlet::{Closed, Outlet};
use super::resource::Resource;

/// One resource and what we know of it.
pub(super) struct Reflector {
    pub(super) api: Api,
    pub(super) resource: Resource,
    pub(super) known: Known,
    /// Where to go on watching; without it everything has to be listed.
    pub(super) version: Option<String>,
    /// The server does not know streaming lists.
    pub(super) wants_pages: bool,
    /// The last streaming list did not get to its end.
    wants_pages_once: bool,
    /// The first list was complete once.
    pub(super) has_listed: bool,
    /// This server sends bookmarks, so silence means something.
    pub(super) has_bookmarks: bool,
    /// What will be told together.
    pub(super) news: Vec<Event>,
    pub(super) has_watched: bool,
    freshness: Freshness,
    outlet: Outlet,
    backoff: Backoff,
    /// The server could not be reached, and has granted nothing since.
    is_lost: bool,
    back: Return,
    /// The version at which a watch last made no sense.
    senseless_at: Option<String>,
    /// It was said that the server lacks or forbids this resource.
    is_absent: bool,
}

/// How long to leave the server alone.
enum Pause {
    /// So long.
    For(Duration),
    /// So long, unless somebody else finds that it is back.
    UntilReturn(Duration),
}

/// Why a list or a watch ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// Nobody wants to hear any more.
    #[error("the receiver has gone")]
    Closed,
    /// The request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The answer broke off.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The watch was ended by the server with this.
    #[error("the server ended the watch: {} {}", .0.reason, .0.message)]
    Ended(Status),
    /// The history after our version is forgotten.
    #[error("the version we know is too old, or from another time")]
    Gone,
    /// The server does not stream lists.
    #[error("the server does not stream lists: {0}")]
    NoStreaming(String),
    /// A streaming list did not come to its end in time.
    #[error("the streaming list came to a halt")]
    ListStalled,
    /// What came was not what an API server sends.
    #[error("{0}")]
    Garbage(String),
}

impl From<Closed> for Failure {
    fn from(Closed: Closed) -> Self {
        Self::Closed
    }
}

impl Reflector {
    pub(super) fn new(
        api: Api,
        resource: Resource,
        freshness: Freshness,
        outlet: Outlet,
        back: Return,
    ) -> Self {
        Self {
            backoff: Backoff::new(api.times()),
            is_lost: false,
            back,
            api,
            resource,
            known: Known::default(),
            version: None,
            wants_pages: false,
            wants_pages_once: false,
            has_listed: false,
            has_bookmarks: false,
            news: Vec::new(),
            has_watched: false,
            freshness,
            outlet,
            senseless_at: None,
            is_absent: false,
        }
    }

    /// Runs until nobody wants to hear any more.
    pub(super) async fn run(mut self) -> Closed {
        loop {
            let wants_pages = self.wants_pages || std::mem::take(&mut self.wants_pages_once);
            let result = match self.version.clone() {
                Some(version) => self.watch_from(&version).await,
                None if wants_pages => self.list_pages().await,
                None => self.list_streaming().await,
            };
            if let Err(failure) = result {
                match self.recover(failure).await {
                    Ok(Pause::For(time)) => sleep(time).await,
                    Ok(Pause::UntilReturn(time)) => self.back.wait(time).await,
                    Err(closed) => return closed,
                }
            }
        }
    }

    /// Asks the server for something; the answer as soon as it begins.
    pub(super) async fn ask(&mut self, uri: &str) -> Result<Response<Body>, RequestError> {
        let answer = self.api.get(uri).await?;
        if std::mem::take(&mut self.is_lost) {
            self.back.announce();
        }
        Ok(answer)
    }

    /// Decides how to go on after a failure, and after how long.
    async fn recover(&mut self, failure: Failure) -> Result<Pause, Closed> {
        let now = Instant::now();
        let resource = self.resource.plural;
        match failure {
            Failure::Closed => return Err(Closed),
            Failure::Gone => {
                tracing::info!(
                    resource,
                    "the API server forgot what happened since we last heard; listing again"
                );
                self.version = None;
                return Ok(Pause::For(self.backoff.hindered(now)));
            }
            Failure::NoStreaming(why) => {
                tracing::debug!(resource, why, "listing in pages");
                self.wants_pages = true;
                return Ok(Pause::For(Duration::ZERO));
            }
            Failure::Request(RequestError::Refused {
                ref status,
                retry_after,
            }) => {
                if self.resource.may_be_missing && matches!(status.code, 403 | 404) {
                    return self.do_without(&failure).await;
                }
                log_refusal(resource, status, &failure);
                let asked = retry_after.unwrap_or_default();
                return Ok(Pause::For(asked.max(self.backoff.failed(now))));
            }
            Failure::ListStalled => {
                tracing::info!(
                    resource,
                    "the streaming list came to a halt; listing in pages this time"
                );
                self.wants_pages_once = true;
                return Ok(Pause::For(self.backoff.hindered(now)));
            }
            // The connection was silent for long: that was pause enough.
            Failure::Read(ReadError::Silent(_)) => {
                tracing::warn!(resource, "the API server fell silent; connecting again");
                self.avoid_this_place();
                return Ok(Pause::For(self.backoff.hindered(now)));
            }
            Failure::Ended(_) | Failure::Garbage(_) => {
                tracing::warn!(resource, error = %failure, "cannot follow the API server; trying again");
                self.avoid_this_place();
            }
            Failure::Request(_) | Failure::Read(_) => {
                tracing::warn!(resource, error = %failure, "lost the API server; what is known stays in force");
                self.is_lost = true;
                return Ok(Pause::UntilReturn(self.backoff.failed(now)));
            }
        }
        Ok(Pause::For(self.backoff.failed(now)))
    }

    /// Where a watch fails twice it will fail for ever; a list leads round that place. It may be a version of a future that will not
    /// come, because the server was restored from a backup: it sends nothing until it gets there.
    fn avoid_this_place(&mut self) {
        let place = self.version.clone();
        if place.is_some() && place == self.senseless_at {
            self.version = None;
        }
        self.senseless_at = place;
    }

    /// A resource that need not be there counts as listed. It may appear when the server or its roles are updated; what is known of it
    /// stays, for it may only be forbidden for a while.
    async fn do_without(&mut self, refusal: &Failure) -> Result<Pause, Closed> {
        if !self.is_absent {
            tracing::info!(resource = self.resource.plural, %refusal, "doing without; asking again now and then");
            self.is_absent = true;
        }
        self.say_listed();
        self.tell().await?;
        Ok(Pause::For(self.api.times().absent))
    }

    /// All objects were told: those that were not in the list are gone.
    pub(super) async fn complete_list(&mut self) -> Result<(), Closed> {
        for key in self.known.end_list() {
            self.news.push(deletion(self.resource.kind, &key));
        }
        if self.has_listed {
            self.api.observer().relisted(self.resource.kind);
        }
        self.say_listed();
        self.tell().await
    }

    fn say_listed(&mut self) {
        if !self.has_listed {
            self.news.push(Event::Listed(self.resource.kind));
            self.has_listed = true;
        }
    }

    /// Hands over what has collected.
    pub(super) async fn tell(&mut self) -> Result<(), Closed> {
        let news = std::mem::take(&mut self.news);
        self.outlet.send(news, self.known.unread()).await
    }

    /// The server proved that what we know is current.
    pub(super) fn prove(&mut self) {
        self.is_absent = false;
        self.freshness.prove(self.resource.kind, Instant::now());
        self.api.observer().heard_of(self.resource.kind);
    }

    /// An object cannot be used: says so, and leaves its last good state in force.
    pub(super) fn log_fault(&self, fault: &Fault) {
        let object = fault
            .object
            .as_ref()
            .map_or("unknown", |object| &object.key);
        tracing::warn!(
            kind = self.resource.kind.name(),
            object,
            error = fault.what,
            "cannot read an object of the API server; its last good state stays in force"
        );
    }
}

/// The event for an object that went.
pub(super) fn deletion(kind: Kind, key: &str) -> Event {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    Event::Deleted {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn log_refusal(resource: &str, status: &Status, failure: &Failure) {
    match status.code {
        403 => tracing::error!(
            resource,
            error = %failure,
            "the API server forbids us to list and watch {resource}; \
             bind the ClusterRole system:node-proxier to the user or service account we run as"
        ),
        401 => tracing::error!(
            resource,
            error = %failure,
            "the API server does not know us; check the token or certificate of the kubeconfig"
        ),
        _ => tracing::warn!(resource, error = %failure, "the API server refuses; trying again"),
    }
}
