//! Watches: from a version on, or beginning with a list.

use std::ops::ControlFlow;

use ferrovia_core::store::Event;
use http::Response;
use kube::client::Body;
use tokio::time::{Duration, Instant};

use super::api::{RequestError, Shape};
use super::backoff::random_between;
use super::chunks::{Chunks, ReadError};
use super::decode::{Fault, Identity, News, Status};
use super::format::Encoding;
use super::known::is_before;
use super::reflect::{Failure, Reflector, deletion};

/// So many lines in a row that make no sense, and this is no watch.
const GARBAGE_LIMIT: u32 = 5;

/// A watch that ended before this, and led nowhere, is no better than a failure.
const TOO_SHORT: Duration = Duration::from_secs(1);

/// One watch while it lasts.
struct Watch {
    /// The list at its beginning is not complete yet.
    is_listing: bool,
    /// It was completed by what was read last.
    has_just_listed: bool,
    /// Lines in a row that made no sense.
    garbage: u32,
    /// When the last line that made sense came.
    heard: Instant,
    /// How long we did not read since then.
    paused: Duration,
    /// When the server should have ended it.
    ends: Instant,
    /// The version it began with.
    from: Option<String>,
}

impl Reflector {
    /// Lists everything with a watch that begins with all objects, and stays with that watch.
    pub(super) async fn watch_list(&mut self) -> Result<(), Failure> {
        let lasts = self.lasts();
        let uri = self.resource.watch_list(self.relist_from(), lasts);
        let answer = match self
            .ask_for(Shape::Stream, &uri, self.api.times().answer)
            .await
        {
            Err(RequestError::Refused { status, .. }) if status.is_gone() => {
                return Err(Failure::Expired);
            }
            Err(RequestError::Refused { status, .. }) if status.is_ahead() => {
                return Err(Failure::Ahead);
            }
            // Something between us may hold back an answer that has no end.
            Err(RequestError::Late(_)) => return Err(Failure::ListStalled),
            answer => answer?,
        };
        self.known.begin_list();
        self.follow(answer, lasts, true).await
    }

    /// Watches what happened after this version.
    pub(super) async fn watch_from(&mut self, version: &str) -> Result<(), Failure> {
        let lasts = self.lasts();
        if self.has_watched {
            self.api.observer().watch_restarted(self.resource.kind);
        }
        // A proxy may hold the headers back until the first event, so they have as long as the watch.
        let limit = lasts + self.api.times().overdue;
        let uri = self.resource.watch(version, lasts);
        let answer = match self.ask_for(Shape::Stream, &uri, limit).await {
            Err(RequestError::Refused { status, .. }) if status.is_ahead() => {
                return Err(Failure::Ahead);
            }
            Err(RequestError::Refused { status, .. }) if status.is_about_version() => {
                return Err(Failure::Expired);
            }
            answer => answer?,
        };
        if self.watches_the_future().await {
            return Err(Failure::Ahead);
        }
        self.prove();
        self.follow(answer, lasts, false).await
    }

    fn lasts(&self) -> Duration {
        let (shortest, longest) = self.api.times().watch;
        random_between(shortest, longest)
    }

    async fn follow(
        &mut self,
        answer: Response<Body>,
        lasts: Duration,
        is_listing: bool,
    ) -> Result<(), Failure> {
        self.has_watched = true;
        let began = Instant::now();
        let mut watch = Watch {
            is_listing,
            has_just_listed: false,
            garbage: 0,
            heard: began,
            paused: Duration::ZERO,
            ends: began + lasts + self.api.times().overdue,
            from: self.version.clone(),
        };
        let mut events = Encoding::of(answer.headers()).events(self.resource.kind);
        let mut chunks = Chunks::new(answer);
        loop {
            let mut turn = ControlFlow::Continue(());
            let read = chunks
                .read(self.deadline(&watch), &mut |piece| {
                    let fed = events.feed(piece, &mut |event| {
                        // What comes after the end of a watch means nothing.
                        if turn.is_continue() {
                            turn = self.take_event(&mut watch, event);
                        }
                    });
                    if let (Err(error), true) = (fed, turn.is_continue()) {
                        turn = ControlFlow::Break(Failure::Garbage(error.to_string()));
                    }
                })
                .await;
            let telling = Instant::now();
            if std::mem::take(&mut watch.has_just_listed) {
                self.complete_list().await?;
            } else {
                self.tell().await?;
            }
            // A receiver that lags is not the server's silence.
            watch.paused += telling.elapsed();
            if let ControlFlow::Break(failure) = turn {
                return Err(failure);
            }
            let is_more = match read {
                Err(ReadError::Silent(_)) if watch.is_listing => return Err(Failure::ListStalled),
                read => read?,
            };
            if !is_more {
                return self.ended(&watch, began, events.is_half());
            }
            // A line that never ends is silence, too.
            if Instant::now() >= self.deadline(&watch) {
                return Err(ReadError::Silent(watch.heard.elapsed()).into());
            }
        }
    }

    /// The server closed the watch, as it does when its time is up.
    fn ended(&self, watch: &Watch, began: Instant, is_half: bool) -> Result<(), Failure> {
        if is_half {
            return Err(ReadError::Broken("it ended in the middle of an event".to_owned()).into());
        }
        if watch.is_listing {
            return Err(Failure::ListStalled);
        }
        if self.version != watch.from {
            return Ok(());
        }
        if began.elapsed() < TOO_SHORT {
            return Err(Failure::Garbage(
                "the server ended a watch at once".to_owned(),
            ));
        }
        if watch.heard == began {
            return Err(Failure::Barren);
        }
        Ok(())
    }

    /// Until when something has to come.
    fn deadline(&self, watch: &Watch) -> Instant {
        let times = self.api.times();
        let silent = if watch.is_listing {
            watch.heard + watch.paused + times.list_silence
        } else if self.has_bookmarks {
            watch.heard + watch.paused + times.silence
        } else {
            watch.ends
        };
        silent.min(watch.ends)
    }

    fn take_event(
        &mut self,
        watch: &mut Watch,
        event: Result<News, Fault>,
    ) -> ControlFlow<Failure> {
        let news = match event {
            Ok(news) => news,
            Err(fault) => return self.take_bad_event(watch, &fault),
        };
        watch.garbage = 0;
        watch.heard = Instant::now();
        watch.paused = Duration::ZERO;
        match news {
            News::Applied(object) => {
                let identity = Identity::of(object.metadata());
                let is_news = if watch.is_listing {
                    self.known.listed(&identity)
                } else {
                    self.advance(&identity.version);
                    self.known.applied(&identity)
                };
                if is_news {
                    self.news.push(Event::Applied(object));
                }
                self.heard(watch);
            }
            News::Deleted(identity) => {
                if !watch.is_listing {
                    self.advance(&identity.version);
                }
                if self.known.deleted(&identity) {
                    self.news.push(deletion(self.resource.kind, &identity.key));
                }
                self.heard(watch);
            }
            News::Bookmark { version, ends_list } => {
                return self.take_bookmark(watch, version, ends_list);
            }
            News::Error(status) => return ControlFlow::Break(end_of_watch(status)),
        }
        ControlFlow::Continue(())
    }

    fn take_bookmark(
        &mut self,
        watch: &mut Watch,
        version: String,
        ends_list: bool,
    ) -> ControlFlow<Failure> {
        if watch.is_listing {
            if !ends_list {
                // Bookmarks begin after the list, so this server does not know of lists in watches and will never end this one.
                return ControlFlow::Break(Failure::NoWatchList(
                    "it sent a bookmark before the end of the list".to_owned(),
                ));
            }
            watch.is_listing = false;
            watch.has_just_listed = true;
            self.listed_at(version);
            self.prove();
            return ControlFlow::Continue(());
        }
        self.has_bookmarks = true;
        // Time does not run backwards: this is another history, from a backup perhaps.
        if self
            .version
            .as_ref()
            .is_some_and(|known| is_before(&version, known))
        {
            return ControlFlow::Break(Failure::Ahead);
        }
        self.version = Some(version);
        self.prove();
        ControlFlow::Continue(())
    }

    fn take_bad_event(&mut self, watch: &mut Watch, fault: &Fault) -> ControlFlow<Failure> {
        self.log_fault(fault);
        match &fault.object {
            Some(object) if watch.is_listing => self.known.unreadable_in_list(Some(object)),
            Some(object) => {
                self.advance(&object.version);
                self.known.unreadable(object);
            }
            None => {
                if watch.is_listing {
                    self.known.unreadable_in_list(None);
                }
                watch.garbage += 1;
            }
        }
        if watch.garbage >= GARBAGE_LIMIT {
            return ControlFlow::Break(Failure::Garbage(format!(
                "{GARBAGE_LIMIT} events in a row made no sense"
            )));
        }
        ControlFlow::Continue(())
    }

    fn heard(&mut self, watch: &Watch) {
        // Objects of a list are no proof: only its end is.
        if !watch.is_listing {
            self.prove();
        }
    }

    /// What came up to here need not be told again.
    fn advance(&mut self, version: &str) {
        let is_known = self
            .version
            .as_deref()
            .is_some_and(|known| is_before(version, known));
        if !version.is_empty() && !is_known {
            self.version = Some(version.to_owned());
        }
    }
}

fn end_of_watch(status: Status) -> Failure {
    if status.is_gone() {
        Failure::Expired
    } else if status.is_ahead() {
        Failure::Ahead
    } else {
        Failure::Ended(status)
    }
}
