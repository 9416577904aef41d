//! Watches: from a version on, or beginning with a list.

use std::ops::ControlFlow;

use ferrovia_core::store::Event;
use http::Response;
use kube::client::Body;
use tokio::time::{Duration, Instant};

use super::api::RequestError;
use super::backoff::random_between;
use super::chunks::{Chunks, ReadError};
use super::decode::{self, Fault, Identity, LONGEST_OBJECT, News, Status};
use super::known::is_before;
use super::lines::{Line, Lines};
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
    /// When the server should have ended it.
    ends: Instant,
    /// The version it began with.
    from: Option<String>,
}

impl Reflector {
    /// Lists everything with a watch that begins with all objects, and stays with that watch.
    pub(super) async fn list_streaming(&mut self) -> Result<(), Failure> {
        let lasts = self.lasts();
        let answer = match self.ask(&self.resource.streaming_list(lasts)).await {
            // A resource that is missing is missing in pages, too.
            Err(RequestError::Refused { status, .. })
                if matches!(status.code, 400 | 405 | 422)
                    || status.code == 404 && !self.resource.may_be_missing =>
            {
                return Err(Failure::NoStreaming(status.message));
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
        let answer = match self.ask(&self.resource.watch(version, lasts)).await {
            Err(RequestError::Refused { status, .. }) if status.is_about_version() => {
                return Err(Failure::Gone);
            }
            answer => answer?,
        };
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
            ends: began + lasts + self.api.times().overdue,
            from: self.version.clone(),
        };
        let mut chunks = Chunks::new(answer.into_body());
        let mut lines = Lines::new(LONGEST_OBJECT);
        loop {
            let mut turn = ControlFlow::Continue(());
            let read = chunks
                .read(self.deadline(&watch), &mut |piece| {
                    lines.feed(piece, &mut |line| {
                        // What comes after the end of a watch means nothing.
                        if turn.is_continue() {
                            turn = self.take_line(&mut watch, &line);
                        }
                    });
                })
                .await;
            let telling = Instant::now();
            if std::mem::take(&mut watch.has_just_listed) {
                self.complete_list().await?;
            } else {
                self.tell().await?;
            }
            // A receiver that lags is not the server's silence.
            watch.heard += telling.elapsed();
            if let ControlFlow::Break(failure) = turn {
                return Err(failure);
            }
            let is_more = match read {
                Err(ReadError::Silent(_)) if watch.is_listing => return Err(Failure::ListStalled),
                read => read?,
            };
            if !is_more {
                return self.ended(&watch, began, lines.is_half());
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
        if began.elapsed() < TOO_SHORT && self.version == watch.from {
            return Err(Failure::Garbage(
                "the server ended a watch at once".to_owned(),
            ));
        }
        Ok(())
    }

    /// Until when something has to come.
    fn deadline(&self, watch: &Watch) -> Instant {
        let times = self.api.times();
        let silent = if watch.is_listing {
            watch.heard + times.list_silence
        } else if self.has_bookmarks {
            watch.heard + times.silence
        } else {
            watch.ends
        };
        silent.min(watch.ends)
    }

    fn take_line(&mut self, watch: &mut Watch, line: &Line<'_>) -> ControlFlow<Failure> {
        let read = match line {
            Line::Whole(line) if line.trim_ascii().is_empty() => return ControlFlow::Continue(()),
            Line::Whole(line) => decode::news(self.resource.kind, line),
            Line::TooLong(start) => Err(decode::too_long(start)),
        };
        let news = match read {
            Ok(news) => news,
            Err(fault) => return self.take_bad_line(watch, &fault),
        };
        watch.garbage = 0;
        watch.heard = Instant::now();
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
                return ControlFlow::Break(Failure::NoStreaming(
                    "it sent a bookmark before the end of the list".to_owned(),
                ));
            }
            watch.is_listing = false;
            watch.has_just_listed = true;
        } else {
            self.has_bookmarks = true;
        }
        // Time does not run backwards: this is another history, from a backup perhaps.
        if self
            .version
            .as_ref()
            .is_some_and(|known| is_before(&version, known))
        {
            return ControlFlow::Break(Failure::Gone);
        }
        self.version = Some(version);
        self.prove();
        ControlFlow::Continue(())
    }

    fn take_bad_line(&mut self, watch: &mut Watch, fault: &Fault) -> ControlFlow<Failure> {
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
        Failure::Gone
    } else {
        Failure::Ended(status)
    }
}
