//! Hears when the configuration file changes. kube-proxy then ends with an error so that whoever started it starts it anew, and so do we.
//!
//! A mounted ConfigMap is a chain of symlinks of which one is swapped, so every directory on the way to the file is watched. What counts is the
//! content: a file that is touched, or replaced by the same again, has not changed.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::thread;
use std::time::Duration;

use inotify::{Inotify, WatchMask, Watches};

use super::ConfigFile;
use super::complete::read;

/// A content is believed when it is still the same after so long: whoever writes a file may not be done.
const SETTLE: Duration = Duration::from_millis(100);
/// The kernel's limit for a chain of symlinks.
const MOST_LINKS: usize = 40;
/// Room for many notifications in one read.
const BUFFER: usize = 16 << 10;

/// Why the file cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The kernel gives us no inotify instance.
    #[error(
        "cannot watch the configuration file (fs.inotify.max_user_instances may be used up): {0}"
    )]
    Init(io::Error),
    /// A directory on the way to the file cannot be watched.
    #[error("cannot watch {} for changes of the configuration file: {cause}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// Notifications cannot be read any more.
    #[error("cannot hear of changes of the configuration file: {0}")]
    Read(io::Error),
}

/// Waits for the file to change.
#[derive(Debug)]
pub struct Watch {
    inotify: Inotify,
    watches: Watches,
    file: ConfigFile,
}

impl Watch {
    /// Watches from now on. A change between reading and watching is found by [`Watch::wait`], too.
    pub fn new(file: ConfigFile) -> Result<Self, WatchError> {
        let inotify = Inotify::init().map_err(WatchError::Init)?;
        let watches = inotify.watches();
        let mut watch = Self {
            inotify,
            watches,
            file,
        };
        watch.cover()?;
        Ok(watch)
    }

    /// Blocks until the file's content is another one. A file that is gone has not changed yet.
    pub fn wait(mut self) -> Result<(), WatchError> {
        let mut buffer = vec![0; BUFFER];
        loop {
            if self.has_changed() {
                return Ok(());
            }
            match self.inotify.read_events_blocking(&mut buffer) {
                // What happened matters not, since the file is looked at anew.
                Ok(events) => drop(events),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(WatchError::Read(error)),
            }
            // The way to the file may be another one now.
            self.cover()?;
        }
    }

    fn has_changed(&self) -> bool {
        let Ok(mut content) = read(&self.file.path) else {
            return false;
        };
        while content != self.file.content {
            thread::sleep(SETTLE);
            match read(&self.file.path) {
                Ok(again) if again == content => return true,
                Ok(again) => content = again,
                Err(_) => return false,
            }
        }
        false
    }

    /// Watches every directory on the way. One that is watched already stays so.
    fn cover(&mut self) -> Result<(), WatchError> {
        for path in directories(&self.file.path) {
            self.cover_nearest(&path)?;
        }
        Ok(())
    }

    /// Watches a directory, and while it is not there the nearest one above, which tells when it comes.
    fn cover_nearest(&mut self, path: &Path) -> Result<(), WatchError> {
        if self.is_covered(path)? {
            return Ok(());
        }
        if let Some(above) = path.parent() {
            self.cover_nearest(above)?;
            // It may have come in between, when nobody listened yet.
            self.is_covered(path)?;
        }
        Ok(())
    }

    /// Watches a directory; false if there is none, or a file in its place.
    fn is_covered(&mut self, path: &Path) -> Result<bool, WatchError> {
        use io::ErrorKind::{NotADirectory, NotFound};
        match self.watches.add(path, mask()) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), NotFound | NotADirectory) => Ok(false),
            Err(cause) => Err(WatchError::Directory {
                path: path.to_owned(),
                cause,
            }),
        }
    }
}

/// Everything that can put another content behind a path.
fn mask() -> WatchMask {
    WatchMask::CLOSE_WRITE
        | WatchMask::MODIFY
        | WatchMask::CREATE
        | WatchMask::DELETE
        | WatchMask::MOVED_FROM
        | WatchMask::MOVED_TO
        | WatchMask::MOVE_SELF
        | WatchMask::ONLYDIR
}

/// The directories that hold a symlink on the way to the file, and the one that holds the file.
fn directories(path: &Path) -> BTreeSet<PathBuf> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut found = BTreeSet::new();
    let mut links = 0;
    let mut here = PathBuf::from("/");
    let mut ahead: VecDeque<OsString> = parts(&absolute);
    while let Some(part) = ahead.pop_front() {
        if part == ".." {
            here.pop();
            continue;
        }
        let next = here.join(&part);
        match fs::read_link(&next) {
            Ok(target) if links < MOST_LINKS => {
                links += 1;
                found.insert(here.clone());
                if target.is_absolute() {
                    here = PathBuf::from("/");
                }
                for part in parts(&target).into_iter().rev() {
                    ahead.push_front(part);
                }
            }
            _ if ahead.is_empty() => {
                found.insert(here.clone());
            }
            _ => here = next,
        }
    }
    found
}

fn parts(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(part) => Some(part.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
        })
        .collect()
}
