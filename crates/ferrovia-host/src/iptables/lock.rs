//! The lock that the legacy tools share with all processes on the machine.
//!
//! A tool that waits for the lock prints nothing meanwhile. So we wait for it ourselves first, say who holds it when that takes long, and
//! start the tool when it is free; the tool then takes it for the time it runs. A process that takes it in between makes the tool wait a little, which
//! it does by itself.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::locked;

/// The tools' default.
const DEFAULT: &str = "/run/xtables.lock";
/// How often we try.
const PAUSE: Duration = Duration::from_millis(50);
/// After so long, the log says who holds it.
const LONG: Duration = Duration::from_secs(2);

/// Why the lock could not be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error(
        "cannot take the xtables lock {}: held by {holder} for {waited:?}; nothing was written", path.display()
    )]
    Held {
        path: PathBuf,
        /// Who, as far as known.
        holder: String,
        /// How long we waited.
        waited: Duration,
    },
    /// The file cannot be used.
    #[error("cannot use the xtables lock {}: {cause}", path.display())]
    Unusable { path: PathBuf, cause: io::Error },
}

/// How much the lock has been used. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct LockUsage(Arc<Mutex<Usage>>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// How often we took it.
    pub times: u64,
    /// How long we held it the last time.
    pub last_held: Duration,
    /// How long we held it in all.
    pub held: Duration,
    /// How long we waited for it in all.
    pub waited: Duration,
}

impl LockUsage {
    /// What was counted so far.
    pub fn get(&self) -> Usage {
        *locked(&self.0)
    }

    /// It was waited for, in vain or not.
    pub(super) fn waited(&self, waited: Duration) {
        locked(&self.0).waited += waited;
    }

    /// A tool has had it.
    pub(super) fn held(&self, held: Duration) {
        let mut usage = locked(&self.0);
        usage.times += 1;
        usage.last_held = held;
        usage.held += held;
    }
}

#[derive(Clone, Debug)]
pub(super) struct Lock {
    path: PathBuf,
    limit: Duration,
}

impl Lock {
    /// The one the tools use, waited for at most so long.
    pub(super) fn new(limit: Duration) -> Self {
        let path = env::var_os("XTABLES_LOCKFILE").unwrap_or_else(|| OsString::from(DEFAULT));
        Self {
            path: path.into(),
            limit,
        }
    }

    /// Says who holds it, if anybody does, before something is done that waits for it in silence.
    pub(super) fn tell_if_held(&self) {
        // If it cannot be opened, the tool reports it.
        let Ok(file) = File::open(&self.path) else {
            return;
        };
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            tracing::warn!(holder = holder(&file), lock = %self.path.display(), "Found the xtables lock held by another process; the tool waits for some seconds");
        }
    }

    /// Waits until it is free.
    pub(super) fn wait_until_free(&self) -> Result<(), LockError> {
        let unusable = |cause| LockError::Unusable {
            path: self.path.clone(),
            cause,
        };
        let start = Instant::now();
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&self.path)
            .map_err(unusable)?;
        let mut is_logged = false;
        loop {
            match file.try_lock() {
                // Closing the file gives it back.
                Ok(()) => return Ok(()),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(cause)) => return Err(unusable(cause)),
            }
            let waited = start.elapsed();
            if waited >= self.limit {
                return Err(LockError::Held {
                    path: self.path.clone(),
                    holder: holder(&file),
                    waited,
                });
            }
            if waited >= LONG && !is_logged {
                tracing::warn!(holder = holder(&file), lock = %self.path.display(), "Waiting for the xtables lock held by another process");
                is_logged = true;
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Who holds the lock on a file, for people.
fn holder(file: &File) -> String {
    let unknown = || "a process that cannot be seen from here".to_owned();
    let Ok(meta) = file.metadata() else {
        return unknown();
    };
    let Ok(locks) = fs::read_to_string("/proc/locks") else {
        return unknown();
    };
    // The kernel lists device and inode; device numbers are written differently by different file systems, inodes are enough.
    let Some(pid) = locks.lines().find_map(|line| holder_in(line, meta.ino())) else {
        return unknown();
    };
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match name.trim() {
        "" => format!("process {pid}"),
        name => format!("process {pid} ({name})"),
    }
}

/// The process of a line such as `1: FLOCK  ADVISORY  WRITE 1234 00:19:567 0 EOF`, if it holds this file's lock. A line with `->` is about
/// another process who waits; a number that is not positive about another process in a PID namespace beyond ours.
fn holder_in(line: &str, inode: u64) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    if words.next()? != "FLOCK" {
        return None;
    }
    let pid: u32 = words.nth(2)?.parse().ok()?;
    let found: u64 = words.next()?.rsplit(':').next()?.parse().ok()?;
    (found == inode && pid > 0).then_some(pid)
}

#[cfg(test)]
mod tests {
    use ferrovia_lab::Folder;

    use super::*;

    /// A lock in a folder of its own.
    fn own(limit: Duration) -> (Lock, Folder) {
        let folder = Folder::new();
        let path = folder.join("lock");
        (Lock { path, limit }, folder)
    }

    #[test]
    fn a_free_lock_is_not_waited_for_and_is_given_back() {
        let (lock, _folder) = own(Duration::ZERO);
        lock.wait_until_free().unwrap();
        lock.wait_until_free().unwrap();
    }

    #[test]
    fn error_names_the_holder_of_the_lock() {
        let (lock, _folder) = own(Duration::from_millis(100));
        let file = File::create(&lock.path).unwrap();
        file.lock().unwrap();
        let error = lock.wait_until_free().unwrap_err().to_string();
        let me = format!("process {} (", std::process::id());
        assert!(error.contains(&format!("held by {me}")), "{error}");
    }

    #[test]
    fn it_is_waited_for() {
        let (lock, _folder) = own(Duration::from_secs(60));
        let file = File::create(&lock.path).unwrap();
        file.lock().unwrap();
        let start = Instant::now();
        let free = thread::spawn(move || {
            thread::sleep(Duration::from_millis(150));
            drop(file);
        });
        lock.wait_until_free().unwrap();
        assert!(start.elapsed() >= Duration::from_millis(100));
        free.join().unwrap();
    }

    #[test]
    fn a_place_for_it_that_is_not_there_is_an_error() {
        let lock = Lock {
            path: "/nonexistent/lock".into(),
            limit: Duration::ZERO,
        };
        let error = lock.wait_until_free().unwrap_err().to_string();
        assert!(error.contains("/nonexistent/lock"), "{error}");
    }

    #[test]
    fn lines_about_others_do_not_count() {
        let line = "1: FLOCK  ADVISORY  WRITE 1234 00:19:567 0 EOF";
        assert_eq!(holder_in(line, 567), Some(1234));
        assert_eq!(holder_in(line, 568), None);
        assert_eq!(
            holder_in("1: -> FLOCK  ADVISORY  WRITE 1234 00:19:567 0 EOF", 567),
            None
        );
        assert_eq!(
            holder_in("1: POSIX  ADVISORY  WRITE 1234 00:19:567 0 EOF", 567),
            None
        );
        assert_eq!(
            holder_in("1: FLOCK  ADVISORY  WRITE -1 00:19:567 0 EOF", 567),
            None
        );
        assert_eq!(holder_in("", 567), None);
    }
}
