//! Says that something changed in the folder, soon after it did and once for a burst. What changed is for a rescan
//! to find out.
//!
//! inotify reads have no time-out, so a thread blocks in them and keeps the tally that [`Watcher::wait`] waits on.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use inotify::{Event, EventMask, Inotify, WatchDescriptor, WatchMask, Watches};

use super::decode::Format;
use super::tree::{FileId, Interest, WatchPoints};

/// A burst is over when nothing happened for this long.
const QUIET: Duration = Duration::from_millis(10);

/// A burst that does not end is cut after this long.
const BURST_LIMIT: Duration = Duration::from_millis(100);

/// Who has a file open and wrote nothing for this long is not waited for any more.
const UNFINISHED_LIMIT: Duration = Duration::from_secs(5);

/// So long the reader may take to count what has happened. It takes no time, but on a busy machine it may have to wait for its turn.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(2);

/// A file that exists everywhere and, not being a directory, is never watched for itself.
const MARKER: &str = "/dev/null";

/// Room for a few hundred notifications in one read.
const BUFFER: usize = 64 << 10;

/// Why the folder cannot be watched at all.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The kernel gives us no inotify instance.
    #[error(
        "cannot watch the folder of manifests (fs.inotify.max_user_instances may be used up): {0}"
    )]
    Init(io::Error),
    /// There is no thread for it.
    #[error("cannot start the thread that watches the folder of manifests: {0}")]
    Thread(io::Error),
}

/// Waits for changes.
#[derive(Debug)]
pub struct Watcher {
    watches: Watches,
    shared: Arc<Shared>,
    has_complained: bool,
}

#[derive(Debug)]
struct Shared {
    tally: Mutex<Tally>,
    news: Condvar,
}

/// What the reading thread has seen since the last burst was handed out.
#[derive(Debug)]
struct Tally {
    changed: bool,
    last: Instant,
    /// Manifests that were written to and not closed yet, and when: half a file is not worth a look.
    unfinished: HashMap<(WatchDescriptor, OsString), Instant>,
    watched: HashMap<WatchDescriptor, Point>,
    /// The highest number of a watch whose end was notified.
    newest_ended: i32,
    closing: bool,
}

/// A directory that is watched.
#[derive(Debug)]
struct Point {
    path: PathBuf,
    interest: Interest,
}

impl Watcher {
    /// A watcher that watches nothing yet.
    pub fn new() -> Result<Self, WatchError> {
        let inotify = Inotify::init().map_err(WatchError::Init)?;
        let watches = inotify.watches();
        let shared = Arc::new(Shared {
            tally: Mutex::new(Tally {
                changed: false,
                last: Instant::now(),
                unfinished: HashMap::new(),
                watched: HashMap::new(),
                newest_ended: 0,
                closing: false,
            }),
            news: Condvar::new(),
        });
        let reader = Arc::clone(&shared);
        thread::Builder::new()
            .name("manifest-watch".to_owned())
            .spawn(move || reader.read(inotify))
            .map_err(WatchError::Thread)?;
        Ok(Self {
            watches,
            shared,
            has_complained: false,
        })
    }

    /// Watches exactly these directories from now on. True when there is one among them that was not watched
    /// before, whose content should then be looked at once more.
    pub(super) fn cover(&mut self, points: &WatchPoints) -> bool {
        // Held throughout, so that the reader judges no notification by half a list.
        let mut tally = self.shared.lock();
        let mut watched = HashMap::new();
        for (path, interest) in points {
            // Added anew every time: the path may be another directory by now. If it is not, nothing happens.
            match self.watches.add(path, mask()) {
                Ok(descriptor) => merge(&mut watched, descriptor, path, interest),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if self.has_complained => drop(error),
                Err(error) => {
                    self.has_complained = true;
                    let path = path.display();
                    tracing::warn!(%path, %error, "cannot be watched; changes are found late");
                }
            }
        }
        let before = std::mem::replace(&mut tally.watched, watched);
        for descriptor in before.keys().filter(|old| !tally.watched.contains_key(old)) {
            // It fails for a directory that is gone, whose watch went with it.
            let _ = self.watches.remove(descriptor.clone());
        }
        tally
            .watched
            .keys()
            .any(|descriptor| !before.contains_key(descriptor))
    }

    /// Blocks until something changed and the burst it is part of is over, or until nothing changed for `idle`.
    pub(super) fn wait(&mut self, idle: Duration) {
        let mut tally = self.shared.lock();
        let idle_end = Instant::now() + idle;
        while !tally.changed {
            if Instant::now() >= idle_end {
                return;
            }
            tally = self.shared.sleep(tally, idle_end);
        }
        let burst_end = Instant::now() + BURST_LIMIT;
        loop {
            let quiet_end = tally.last + QUIET;
            let end = if tally.unfinished.is_empty() {
                quiet_end.min(burst_end)
            } else {
                burst_end
            };
            if Instant::now() >= end {
                break;
            }
            tally = self.shared.sleep(tally, end);
        }
        tally.changed = false;
    }

    /// Whether a file is being written right now, as far as notifications tell.
    pub(super) fn is_unfinished(&self, file: FileId) -> bool {
        let mut tally = self.catch_up();
        tally
            .unfinished
            .retain(|_, last| last.elapsed() < UNFINISHED_LIMIT);
        // Known by number rather than by path, because a link in the folder may lead to it.
        tally.unfinished.keys().any(|(descriptor, name)| {
            let point = tally.watched.get(descriptor);
            let metadata = point.and_then(|point| fs::metadata(point.path.join(name)).ok());
            metadata.as_ref().map(FileId::of) == Some(file)
        })
    }

    /// The tally once the reader has counted everything that happened until now. Notifications come in order, so
    /// it is enough to cause one and wait for it.
    fn catch_up(&self) -> MutexGuard<'_, Tally> {
        let marker = self.mark();
        let mut tally = self.shared.lock();
        let end = Instant::now() + CATCH_UP_LIMIT;
        while marker.is_some_and(|marker| tally.newest_ended < marker) && Instant::now() < end {
            tally = self.shared.sleep(tally, end);
        }
        tally
    }

    /// Makes the reader see the end of a watch; the watch's number. Numbers only grow.
    fn mark(&self) -> Option<i32> {
        let mut watches = self.watches.clone();
        let descriptor = watches.add(MARKER, WatchMask::DELETE_SELF).ok()?;
        let number = descriptor.get_watch_descriptor_id();
        watches.remove(descriptor).ok().map(|()| number)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        // If this fails the reader stays blocked, which costs a thread and hurts nobody.
        self.mark();
    }
}

/// Everything that ends a change, and the writes before it.
fn mask() -> WatchMask {
    WatchMask::CLOSE_WRITE
        | WatchMask::MODIFY
        | WatchMask::CREATE
        | WatchMask::DELETE
        | WatchMask::MOVED_FROM
        | WatchMask::MOVED_TO
        | WatchMask::ATTRIB
        | WatchMask::DELETE_SELF
        | WatchMask::MOVE_SELF
        | WatchMask::ONLYDIR
}

/// The same directory may be reached by two paths, and has one descriptor.
fn merge(
    watched: &mut HashMap<WatchDescriptor, Point>,
    descriptor: WatchDescriptor,
    path: &Path,
    interest: &Interest,
) {
    let point = watched.entry(descriptor).or_insert_with(|| Point {
        path: path.to_owned(),
        interest: interest.clone(),
    });
    match (&mut point.interest, interest) {
        (Interest::Names(known), Interest::Names(names)) => known.extend(names.iter().cloned()),
        (known, Interest::All) => *known = Interest::All,
        (Interest::All, _) => {}
    }
}

impl Shared {
    /// The reading thread.
    fn read(&self, mut inotify: Inotify) {
        let mut buffer = vec![0; BUFFER];
        loop {
            let events = match inotify.read_events_blocking(&mut buffer) {
                Ok(events) => events,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    tracing::error!(%error, "no more notifications; changes are found late");
                    return;
                }
            };
            let mut tally = self.lock();
            if tally.closing {
                return;
            }
            events.for_each(|event| tally.count(&event));
            drop(tally);
            self.news.notify_all();
        }
    }

    /// A thread that panicked left no half-made tally behind, so poison means nothing here.
    fn lock(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleep<'a>(&self, tally: MutexGuard<'a, Tally>, until: Instant) -> MutexGuard<'a, Tally> {
        let time = until.saturating_duration_since(Instant::now());
        self.news
            .wait_timeout(tally, time)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }
}

impl Tally {
    fn count(&mut self, event: &Event<&OsStr>) {
        if event.mask.contains(EventMask::IGNORED) {
            self.newest_ended = self.newest_ended.max(event.wd.get_watch_descriptor_id());
            return;
        }
        if !self.is_of_interest(event) {
            return;
        }
        self.last = Instant::now();
        let manifest = event
            .name
            .filter(|name| Format::of(Path::new(name)).is_some());
        let file = manifest.map(|name| (event.wd.clone(), name.to_owned()));
        if event.mask.contains(EventMask::MODIFY) {
            self.unfinished.extend(file.map(|file| (file, self.last)));
            return;
        }
        let is_begun_only = event.mask.intersects(EventMask::CREATE | EventMask::ATTRIB);
        if let Some(file) = file.filter(|_| !is_begun_only) {
            self.unfinished.remove(&file);
        }
        // Lost notifications (a queue overflow) end here too: a rescan finds what they were about.
        self.changed = true;
    }

    fn is_of_interest(&self, event: &Event<&OsStr>) -> bool {
        match (
            self.watched.get(&event.wd).map(|point| &point.interest),
            event.name,
        ) {
            (Some(Interest::Names(names)), Some(name)) => names.contains(name),
            _ => true,
        }
    }
}
