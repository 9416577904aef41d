//! `events`: news as they happen, as server-sent events.
//!
//! - `hello`: which run of the daemon this is; the first event
//! - `overview`: as the route of that name, without the plot; after every change and every few seconds
//! - `changes`: syncs since the last such event
//! - `rates`: the services that get connections; every second
//! - `endpoints`: connections of the endpoints of the service asked for; every second

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ferrovia_core::model::ServiceKey;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, Sender};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::history::to_json;
use super::overview::blocking;
use super::problem::Problem;
use super::query::Query;
use super::{Admin, VERSION};
use crate::serve::http::answer::{Answer, Content, Piece, set};

/// The most clients that may listen at once.
const LISTENERS: usize = 16;
/// How often rates are told.
const BEAT: Duration = Duration::from_secs(1);
/// How often an overview is told although nothing changed: the age of the data does, and a dead connection must be noticed.
const OVERVIEW: Duration = Duration::from_secs(5);
/// The least time between two tellings of changes, so that a burst is one event.
const BREATH: Duration = Duration::from_millis(100);
/// How long a client may take to read an event.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a client should wait before it comes back, in milliseconds.
const RETRY: u32 = 1000;

impl Admin {
    /// Begins to tell.
    pub(super) fn events(self: &Arc<Self>, query: &Query) -> Result<Answer, Problem> {
        let service = match query.get("service") {
            None => None,
            Some(name) => Some(read_service(name)?),
        };
        let Some(place) = Place::take(self) else {
            return Err(Problem::busy(
                format!("{LISTENERS} clients listen already"),
                "close one of the pages, or ask for overview and services again and again",
            ));
        };
        let (sender, pieces) = mpsc::channel(2);
        let teller = Teller {
            place,
            sender,
            service,
            told: 0,
        };
        tokio::spawn(teller.tell());
        let mut answer = Answer::new(Content::Stream(pieces));
        let kind = HeaderValue::from_static("text/event-stream");
        set(&mut answer, CONTENT_TYPE, kind);
        set(
            &mut answer,
            CACHE_CONTROL,
            HeaderValue::from_static("no-store"),
        );
        Ok(answer)
    }
}

fn read_service(text: &str) -> Result<ServiceKey, Problem> {
    let key = text.split_once('/');
    key.and_then(|(namespace, name)| ServiceKey::new(namespace, name))
        .ok_or_else(|| {
            Problem::bad(
                format!("service={text:?} does not name a service"),
                "write service=NAMESPACE/NAME",
            )
        })
}

/// One of the places for listeners, given back when dropped.
struct Place(Arc<Admin>);

impl Place {
    fn take(admin: &Arc<Admin>) -> Option<Self> {
        let taken = admin
            .listeners
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                (n < LISTENERS).then_some(n + 1)
            });
        taken.is_ok().then(|| Self(Arc::clone(admin)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.listeners.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Tells one client.
struct Teller {
    place: Place,
    sender: Sender<Piece>,
    service: Option<ServiceKey>,
    /// The newest change that was told.
    told: u64,
}

/// The client went, or does not read.
struct Gone;

impl Teller {
    async fn tell(mut self) {
        // There is nobody to tell of a client that went.
        let _ = self.tell_until_gone().await;
    }

    async fn tell_until_gone(&mut self) -> Result<(), Gone> {
        let admin = Arc::clone(&self.place.0);
        let mut newest = admin.history.newest();
        self.told = *newest.borrow_and_update();
        let hello = json!({ "version": VERSION, "started": admin.started().to_string(), "newest": self.told });
        self.send("hello", &hello.to_string()).await?;
        self.overview().await?;
        let mut overview_due = Instant::now() + OVERVIEW;
        let mut beat = interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let has_changed = tokio::select! {
                _ = beat.tick() => false,
                changed = newest.changed() => changed.is_ok(),
                () = self.sender.closed() => return Err(Gone),
            };
            if has_changed {
                tokio::time::sleep(BREATH).await;
                newest.borrow_and_update();
                self.changes().await?;
            } else {
                self.rates().await?;
            }
            if has_changed || Instant::now() >= overview_due {
                self.overview().await?;
                overview_due = Instant::now() + OVERVIEW;
            }
        }
    }

    async fn overview(&mut self) -> Result<(), Gone> {
        match self.place.0.overview(false).await {
            Ok(overview) => self.send("overview", &overview.to_string()).await,
            // The loop is busy; it will be asked again.
            Err(_) => Ok(()),
        }
    }

    async fn changes(&mut self) -> Result<(), Gone> {
        let changes = self.place.0.history.after(self.told);
        let Some(last) = changes.last() else {
            return Ok(());
        };
        self.told = last.number;
        self.send("changes", &to_json(&changes).to_string()).await
    }

    async fn rates(&mut self) -> Result<(), Gone> {
        if !self.place.0.rates.is_counting() {
            return Ok(());
        }
        let admin = Arc::clone(&self.place.0);
        let service = self.service.clone();
        let made = blocking(move || {
            let sample = admin.rates.sample();
            let endpoints = service.map(|service| {
                let counts = sample.endpoints_of(&service);
                let counts: serde_json::Map<String, Value> = counts
                    .map(|(at, count)| (at.to_string(), json!([count.total, count.per_second])))
                    .collect();
                json!({ "service": service.as_str(), "endpoints": counts }).to_string()
            });
            (sample, endpoints)
        });
        let Ok((sample, endpoints)) = made.await else {
            return Err(Gone);
        };
        self.send("rates", sample.event()).await?;
        match endpoints {
            Some(endpoints) => self.send("endpoints", &endpoints).await,
            None => Ok(()),
        }
    }

    /// JSON has no line breaks of its own, so it is one line of an event.
    async fn send(&self, event: &str, data: &str) -> Result<(), Gone> {
        let mut text = String::with_capacity(data.len() + 64);
        // Writing to memory cannot fail.
        let _ = write!(text, "retry: {RETRY}\nevent: {event}\ndata: {data}\n\n");
        let sent = self.sender.send(Piece::Text(text.into()));
        match timeout(PATIENCE, sent).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Gone),
        }
    }
}
