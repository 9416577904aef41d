//! Which events are logged: klog's numbers laid over the levels of `tracing`.
//!
//! Errors and warnings always are. Of our own code information is verbosity 0, debugging 4 and tracing 6; the libraries underneath are a
//! good deal more talkative, so theirs are 2, 8 and 10.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tracing::subscriber::Interest;
use tracing::{Level, Metadata, Subscriber, callsite};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::Context;

use super::vmodule::{self, FileVerbosity};

/// The targets of our own crates begin like this.
const OURS: &str = "ferrovia";

/// How much is wanted at the moment.
#[derive(Debug)]
pub(super) struct Verbosity {
    level: AtomicU32,
    files: Vec<FileVerbosity>,
}

impl Verbosity {
    pub(super) fn new(level: u32, files: Vec<FileVerbosity>) -> Self {
        Self {
            level: AtomicU32::new(level),
            files,
        }
    }

    pub(super) fn level(&self) -> u32 {
        self.level.load(Ordering::Relaxed)
    }

    pub(super) fn set_level(&self, level: u32) {
        self.level.store(level, Ordering::Relaxed);
        // Every place in the code that logs remembers whether anyone listens.
        callsite::rebuild_interest_cache();
    }

    fn wants(&self, metadata: &Metadata<'_>) -> bool {
        let needed = needed_for(metadata);
        needed <= self.level() || needed <= self.level_of_file(metadata)
    }

    /// A file's own verbosity only ever adds to the general one.
    fn level_of_file(&self, metadata: &Metadata<'_>) -> u32 {
        metadata
            .file()
            .and_then(|file| vmodule::level_for(&self.files, file))
            .unwrap_or(0)
    }

    /// No event of a finer level can be wanted.
    fn finest(&self) -> LevelFilter {
        let files = self.files.iter().map(|file| file.verbosity);
        match files.fold(self.level(), u32::max) {
            0..4 => LevelFilter::INFO,
            4..6 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        }
    }
}

/// The smallest `-v` that shows an event; its `v` in JSON.
pub(super) fn needed_for(metadata: &Metadata<'_>) -> u32 {
    let is_ours = metadata.target().starts_with(OURS);
    match *metadata.level() {
        Level::ERROR | Level::WARN => 0,
        Level::INFO if is_ours => 0,
        Level::INFO => 2,
        Level::DEBUG if is_ours => 4,
        Level::DEBUG => 8,
        Level::TRACE if is_ours => 6,
        Level::TRACE => 10,
    }
}

/// Lets pass what is wanted.
#[derive(Debug)]
pub(super) struct VerbosityFilter(Arc<Verbosity>);

impl VerbosityFilter {
    pub(super) fn new(verbosity: Arc<Verbosity>) -> Self {
        Self(verbosity)
    }
}

impl<S: Subscriber> Layer<S> for VerbosityFilter {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.0.wants(metadata) {
            Interest::always()
        } else {
            Interest::never()
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.0.wants(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.0.finest())
    }
}
