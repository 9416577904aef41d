//! A folder of manifests as the source of objects, for nodes without an API server.
//!
//! ```text
//! Watcher ── something changed ──▶ Folder::rescan ── Batch ──▶ deliver
//!                                   tree  (which files are there, what has to be watched)
//!                                   decode (bytes to objects, or one error with line and field)
//! ```
//!
//! [`Folder`] holds all the state and asks no one when to look; [`Watcher`] only knows *that* something
//! changed, never what. So a missed or doubled notification costs a cheap rescan and nothing else.

pub mod decode;

mod claims;
mod content;
mod digest;
mod excerpt;
mod file;
mod folder;
mod problem;
mod tree;
mod watch;

use std::ops::ControlFlow;
use std::time::Duration;

pub use excerpt::Excerpt;
use file::Caution;
pub use folder::{Batch, Folder, OpenError};
pub use problem::{Problem, Severity};
pub use watch::{WatchError, Watcher};

/// Without any notification the folder is looked at this often: network file systems send none for what other
/// machines do.
const RESCAN_EVERY: Duration = Duration::from_secs(10);

/// A file that lost objects or broke is believed when it has been so for this long: it may be half written.
/// Notifications tell when a writer is done, but not every file system sends them. No longer than a burst's quiet
/// end, so that a lone change is not held up.
const PATIENCE: Duration = Duration::from_millis(10);

/// An emptied file is believed only after this long: most programs that overwrite a file empty it first.
const PATIENCE_WITH_EMPTY: Duration = Duration::from_secs(1);

/// Loads the folder, then follows it until `deliver` breaks. The first batch is always delivered, even of an
/// empty folder, because it ends the lists; later ones only when there is something in them.
pub fn run(
    mut folder: Folder,
    mut deliver: impl FnMut(Batch) -> ControlFlow<()>,
) -> Result<(), WatchError> {
    let mut watcher = Watcher::new()?;
    let mut is_first = true;
    loop {
        let batch = folder.rescan_with(&Caution {
            is_busy: &|file| watcher.is_unfinished(file),
            patience: PATIENCE,
            patience_with_empty: PATIENCE_WITH_EMPTY,
        });
        // Watched only now, so what happened in a new sub-folder since it was read went unnoticed: look again.
        let grown = watcher.cover(folder.watch_points());
        if (is_first || !batch.is_empty()) && deliver(batch).is_break() {
            return Ok(());
        }
        is_first = false;
        if !grown {
            let idle = if folder.has_put_off() {
                PATIENCE
            } else {
                RESCAN_EVERY
            };
            watcher.wait(idle);
        }
    }
}
