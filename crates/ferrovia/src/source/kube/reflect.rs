//! Follows one resource for ever: lists it, watches it, and begins again where it has to.

use std::time::{Duration, Instant};

use ferrovia_core::store::Event;
use ferrovia_core::wire::Kind;
use http::Response;
use kube::client::Body;
use tokio::time::sleep;

use super::api::{Api, RequestError};
use super::backoff::{Backoff, random_between};
use super::chunks::ReadError;
use super::decode::{Fault, Status};
use super::freshness::Freshness;
use super::known::{Known, is_before};
use super::outage::Outage;
use super::outlet::{Closed, Outlet};
use super::resource::Resource;

/// One resource and what we know of it.
pub(super) struct Reflector {
    pub(super) api: Api,
    pub(super) resource: Resource,
    pub(super) known: Known,
    /// Where to go on watching; without it everything has to be listed.
    pub(super) version: Option<String>,
    /// Where the watch was before everything had to be listed: a list need not be newer.
    last_version: Option<String>,
    /// The server does not have that resourceVersion, no longer or not yet.
    pub(super) needs_consistent_read: bool,
    /// A watch-list failed, so lists are paged until then.
    pages_until: Option<Instant>,
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
    /// Since the connection was lost, the server's resourceVersion was not compared with ours: it may have been restored from a backup.
    needs_version_check: bool,
    lost: Lost,
    /// The version at which a watch last made no sense.
    senseless_at: Option<String>,
    /// It was said that the server lacks or forbids this resource.
    is_absent: bool,
}

/// What to do while the server is lost.
pub(super) struct Lost {
    pub(super) outage: Outage,
    /// The request that finds out whether it is back.
    pub(super) probe: String,
}

/// How a resource is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// With a watch that begins with all objects.
    WatchList,
    /// With a list in pages.
    Pages,
    /// With a watch from where we are.
    Watch,
}

/// How long to leave the server alone.
enum Pause {
    /// So long.
    For(Duration),
    /// Until it answers a probe.
    UntilReturn,
}

/// Why a list or a watch ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The receiver of events is closed.
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
    /// The server no longer has the history after our resourceVersion.
    #[error("the resourceVersion has expired (410 Gone)")]
    Expired,
    /// Our resourceVersion is in the server's future.
    #[error("the resourceVersion is ahead of the server's")]
    Ahead,
    /// The server ignores `sendInitialEvents`.
    #[error("the server does not serve watch-lists: {0}")]
    NoWatchList(String),
    /// A watch-list did not come to its end in time.
    #[error("the watch-list stalled")]
    ListStalled,
    /// A watch came to its end without an event or a bookmark.
    #[error("the watch ended without an event or a bookmark")]
    Barren,
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
        lost: Lost,
    ) -> Self {
        Self {
            backoff: Backoff::new(api.times()),
            is_lost: false,
            needs_version_check: false,
            lost,
            api,
            resource,
            known: Known::default(),
            version: None,
            last_version: None,
            needs_consistent_read: false,
            pages_until: None,
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

    /// Runs until the receiver is closed.
    pub(super) async fn run(mut self) -> Closed {
        loop {
            let attempt = self.next_attempt(Instant::now());
            let result = match (attempt, self.version.clone()) {
                (Attempt::Watch, Some(version)) => self.watch_from(&version).await,
                (Attempt::WatchList, _) => self.watch_list().await,
                (Attempt::Pages | Attempt::Watch, _) => self.list_pages().await,
            };
            if let Err(failure) = result {
                match self.recover(attempt, failure).await {
                    Ok(Pause::For(time)) => sleep(time).await,
                    Ok(Pause::UntilReturn) => self.wait_for_return().await,
                    Err(closed) => return closed,
                }
            }
        }
    }

    fn next_attempt(&self, now: Instant) -> Attempt {
        let is_paged = self.pages_until.is_some_and(|until| now < until);
        match self.version {
            Some(_) => Attempt::Watch,
            None if is_paged => Attempt::Pages,
            None => Attempt::WatchList,
        }
    }

    /// Asks the server for something; the answer as soon as it begins.
    pub(super) async fn ask(
        &mut self,
        uri: &str,
        limit: Duration,
    ) -> Result<Response<Body>, RequestError> {
        let answer = self.api.get(uri, limit).await?;
        if std::mem::take(&mut self.is_lost) {
            self.lost.outage.end(None);
        }
        Ok(answer)
    }

    /// Decides how to go on after a failure, and after how long.
    async fn recover(&mut self, attempt: Attempt, failure: Failure) -> Result<Pause, Closed> {
        let now = Instant::now();
        let resource = self.resource.plural;
        match failure {
            Failure::Closed => Err(Closed),
            Failure::Expired | Failure::Ahead => {
                tracing::info!(resource, err = %failure, "Watch expired; relisting");
                self.needs_consistent_read |= self.version.is_none();
                self.relist();
                if matches!(failure, Failure::Ahead) {
                    self.distrust(true);
                }
                Ok(Pause::For(self.backoff.hindered(now)))
            }
            Failure::Request(RequestError::Unreachable(_)) => Ok(self.lose(&failure)),
            Failure::Request(RequestError::Refused {
                ref status,
                retry_after,
            }) => {
                let pause = self.refused(attempt, status, &failure).await?;
                Ok(Pause::For(retry_after.unwrap_or_default().max(pause)))
            }
            // The watch-list did not come to its end, whatever the reason.
            _ if attempt == Attempt::WatchList && self.version.is_none() => {
                Ok(Pause::For(self.fall_back_to_pages(&failure)))
            }
            Failure::Read(ReadError::Silent(_)) => {
                tracing::warn!(resource, "Watch fell silent; reconnecting");
                // A server that sends bookmarks and then nothing may be at a point before ours, restored from a backup: it sends nothing
                // until it gets there.
                if self.has_bookmarks {
                    self.relist();
                }
                self.avoid_this_place();
                Ok(Pause::For(self.backoff.hindered(now)))
            }
            Failure::Barren => {
                self.avoid_this_place();
                Ok(Pause::For(Duration::ZERO))
            }
            Failure::Read(ReadError::Broken(_)) => Ok(self.lose(&failure)),
            Failure::Request(_) => {
                self.avoid_this_place();
                Ok(self.lose(&failure))
            }
            Failure::Ended(_)
            | Failure::NoWatchList(_)
            | Failure::ListStalled
            | Failure::Garbage(_) => {
                tracing::warn!(resource, err = %failure, "Failed to follow the API server; retrying");
                self.avoid_this_place();
                Ok(Pause::For(self.backoff.failed(now)))
            }
        }
    }

    /// There is no connection any more, or none yet.
    fn lose(&mut self, failure: &Failure) -> Pause {
        let resource = self.resource.plural;
        tracing::warn!(resource, err = %failure, "Lost connection to the API server; keeping current rules");
        self.is_lost = true;
        self.needs_version_check = true;
        Pause::UntilReturn
    }

    /// A server that answers no probe, but might answer us, is still asked now and then.
    async fn wait_for_return(&mut self) {
        let longest = self.api.times().backoff_limit;
        let limit = random_between(longest, longest * 2);
        let Lost { outage, probe } = &self.lost;
        let current = outage.wait(&self.api, probe, limit).await;
        self.backoff.begin_again();
        if let Some(current) = current
            && self.is_server_behind(&current)
        {
            self.relist();
            self.distrust(true);
        }
    }

    /// Whether a watch that was just granted begins at a resourceVersion that the server has not reached. Such a watch is silent until the server
    /// gets there. Asked only once after a loss, and only if no probe has answered the question.
    pub(super) async fn watches_the_future(&mut self) -> bool {
        if !self.needs_version_check {
            return false;
        }
        match self.api.probe(&self.lost.probe).await {
            Some(answer) => {
                self.needs_version_check = false;
                let current = answer.resource_version;
                current.is_some_and(|current| self.is_server_behind(&current))
            }
            // The server was lost again, which ends the watch too.
            None => false,
        }
    }

    fn is_server_behind(&mut self, current: &str) -> bool {
        self.needs_version_check = false;
        let known = self.version.as_deref();
        let is_behind = known.is_some_and(|known| is_before(current, known));
        if is_behind {
            tracing::warn!(
                resource = self.resource.plural,
                resourceVersion = current,
                "API server is behind what is known, as after a restore from a backup; relisting"
            );
        }
        is_behind
    }

    /// Lists in pages for a while: whatever keeps a watch-list from its end may keep the next one from it, too.
    fn fall_back_to_pages(&mut self, failure: &Failure) -> Duration {
        let now = Instant::now();
        let retry_after = self.api.times().watch_list_retry;
        tracing::info!(
            resource = self.resource.plural,
            err = %failure,
            retryAfter = ?retry_after,
            "Watch-list failed; falling back to paged lists"
        );
        self.pages_until = Some(now + retry_after);
        self.backoff.hindered(now)
    }

    /// The server answered that it will not. After a watch that means a list, unless it only wants to be left alone or does not know us.
    async fn refused(
        &mut self,
        attempt: Attempt,
        status: &Status,
        failure: &Failure,
    ) -> Result<Duration, Closed> {
        let is_watch_list = attempt == Attempt::WatchList;
        let is_missing = self.resource.may_be_missing && matches!(status.code, 403 | 404);
        if status.code != 429 && is_watch_list && !(is_missing && status.code == 404) {
            return Ok(self.fall_back_to_pages(failure));
        }
        if status.code == 403 && attempt == Attempt::Pages {
            // A role may grant watch and not list.
            self.pages_until = None;
        }
        if !matches!(status.code, 401 | 429) {
            self.relist();
        }
        if is_missing {
            return self.do_without(failure).await;
        }
        log_refusal(self.resource.plural, attempt, status, failure);
        Ok(self.backoff.failed(Instant::now()))
    }

    /// The next thing to do is a list, at least as new as what we know.
    fn relist(&mut self) {
        if let Some(version) = self.version.take() {
            self.last_version = Some(version);
        }
    }

    /// The resourceVersion that a list has to reach; nothing if there is none, or the server does not have it.
    pub(super) fn relist_from(&self) -> Option<&str> {
        self.last_version
            .as_deref()
            .filter(|_| !self.needs_consistent_read)
    }

    /// The server does not have our resourceVersion. If it is behind, our versions may stand for other states there.
    pub(super) fn distrust(&mut self, is_behind: bool) {
        self.needs_consistent_read = true;
        if is_behind {
            self.known.forget_versions();
        }
    }

    /// Everything was listed as of this resourceVersion; a watch goes on from there.
    pub(super) fn listed_at(&mut self, version: String) {
        self.version = Some(version);
        self.needs_consistent_read = false;
        self.needs_version_check = false;
    }

    /// Where a watch fails twice it will fail for ever; a list leads round that place. It may be a version of a future that will not
    /// come, because the server was restored from a backup: it sends nothing until it gets there.
    fn avoid_this_place(&mut self) {
        let place = self.version.clone();
        if place.is_some() && place == self.senseless_at {
            self.relist();
        }
        self.senseless_at = place;
    }

    /// A resource that need not be there counts as listed. It may appear when the server or its roles are updated; what is known of it
    /// stays, for it may only be forbidden for a while.
    async fn do_without(&mut self, refusal: &Failure) -> Result<Duration, Closed> {
        let retry_after = self.backoff.absent(Instant::now());
        if !self.is_absent {
            tracing::info!(
                resource = self.resource.plural,
                err = %refusal,
                retryAfter = ?retry_after,
                "Resource unavailable; continuing without it"
            );
            self.is_absent = true;
        }
        self.say_listed();
        self.tell().await?;
        Ok(retry_after)
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

fn log_refusal(resource: &str, attempt: Attempt, status: &Status, failure: &Failure) {
    let role =
        "bind the ClusterRole system:node-proxier to the user or service account of this proxy";
    match (status.code, attempt) {
        (403, Attempt::Watch) => tracing::error!(
            resource, err = %failure, remedy = role,
            "Watch forbidden; polling the list instead"
        ),
        (403, _) => {
            tracing::error!(resource, err = %failure, remedy = role, "List and watch forbidden");
        }
        (401, _) => tracing::error!(
            resource, err = %failure, remedy = "check the token or certificate of the kubeconfig",
            "Credentials rejected by the API server"
        ),
        _ => {
            tracing::warn!(resource, err = %failure, "Request refused by the API server; retrying");
        }
    }
}
