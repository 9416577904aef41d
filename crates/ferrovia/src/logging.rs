//! What the daemon writes about itself, as kube-proxy would: klog's text or its JSON, filtered by `-v` and `--vmodule`.
//!
//! An event of `tracing` passes the filter (`verbosity.rs`, `vmodule.rs`), becomes a record of bounded size (`record.rs`), is held back if
//! it only says again what was said a moment ago (`repeats.rs`), becomes one line (`text.rs`, `json.rs`) and leaves in one system call
//! (`output.rs`). What is logged, and at which level, is up to the code that does the thing.

mod json;
mod layer;
mod output;
mod record;
mod repeats;
mod text;
mod verbosity;
mod vmodule;

use std::fmt;
use std::io::{self, IsTerminal as _, Write};
use std::sync::Arc;
use std::time::Duration;

use tracing::Subscriber;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use self::layer::KlogLayer;
use self::output::Output;
use self::verbosity::{Verbosity, VerbosityFilter};
pub use self::vmodule::FileVerbosity;

/// For developers: if set, it decides what is logged, in the language of `tracing_subscriber`'s filters, instead of `-v` and `--vmodule`.
const OVERRIDE: &str = "FERROVIA_LOG";

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// klog's text.
    Text,
    /// One JSON object a line.
    Json,
}

/// All there is to choose. The default is what a kube-proxy without any flag does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// The format, if someone chose one. Otherwise a person at a terminal gets colours, and everyone else klog's text.
    pub format: Option<Format>,
    /// `-v`: 0 for what matters, 4 for every sync, 6 for single steps.
    pub verbosity: u32,
    /// `--vmodule`: files that may say more than that. The first that matches counts. For the text format only; JSON ignores it.
    pub vmodule: Vec<FileVerbosity>,
    /// How long an information may stay in the buffer.
    pub flush_frequency: Duration,
    /// Whether information goes to standard output; the rest stays on standard error.
    pub split_stream: bool,
    /// How many bytes of information are collected before they are written, if the streams are split. Nothing is with 0.
    pub info_buffer_size: usize,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            format: None,
            verbosity: 0,
            vmodule: Vec::new(),
            flush_frequency: Duration::from_secs(5),
            split_stream: false,
            info_buffer_size: 0,
        }
    }
}

/// Where lines go.
pub struct Streams {
    /// Information, if the streams are split.
    pub info: Box<dyn Write + Send>,
    /// Everything else.
    pub errors: Box<dyn Write + Send>,
    /// Whether a person reads along on `errors`.
    pub is_terminal: bool,
}

impl Streams {
    /// This process's own.
    pub fn standard() -> Self {
        Self {
            info: Box::new(io::stdout()),
            errors: Box::new(io::stderr()),
            is_terminal: io::stderr().is_terminal(),
        }
    }
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams")
            .field("is_terminal", &self.is_terminal)
            .finish_non_exhaustive()
    }
}

/// Changes a log that is being written. The copies of one change the same log.
#[derive(Clone, Debug)]
pub struct LogControl {
    verbosity: Arc<Verbosity>,
    is_overridden: bool,
    output: Arc<Output>,
}

impl LogControl {
    /// Changes `-v` for all that is logged from now on. Without effect, but for a warning, if the environment decides what is logged.
    pub fn set_verbosity(&self, level: u32) {
        if self.is_overridden {
            tracing::warn!(
                wanted = level,
                "the verbosity cannot be changed while {OVERRIDE} is set; restart without it"
            );
            return;
        }
        self.verbosity.set_level(level);
    }

    /// Writes what waits in the buffer. To be called before the process ends: what is still buffered then is lost.
    pub fn flush(&self) {
        self.output.flush();
    }
}

/// Logs to standard error from now on, or to where the settings say. Only the first call in a process has an effect on what is logged;
/// a test binary may come by here twice.
pub fn init(settings: &LogSettings) -> LogControl {
    let (wish, complaint) = wish_of_the_environment();
    let (subscriber, control) = build(settings, wish, Streams::standard());
    // Fails for the second call, as said.
    let _ = tracing::subscriber::set_global_default(subscriber);
    if let Some(error) = complaint {
        tracing::warn!(%error, "{OVERRIDE} is not understood and has no effect; correct it or unset it");
    }
    control
}

/// What [`init`] installs, but to write elsewhere, and deaf to the environment.
pub fn subscriber(
    settings: &LogSettings,
    streams: Streams,
) -> (impl Subscriber + Send + Sync + 'static, LogControl) {
    build(settings, None, streams)
}

/// What the environment wants logged, and what is wrong with its wish.
fn wish_of_the_environment() -> (Option<EnvFilter>, Option<String>) {
    match std::env::var(OVERRIDE) {
        Ok(wish) if !wish.is_empty() => match EnvFilter::try_new(wish) {
            Ok(filter) => (Some(filter), None),
            Err(error) => (None, Some(error.to_string())),
        },
        _ => (None, None),
    }
}

fn build(
    settings: &LogSettings,
    wish: Option<EnvFilter>,
    streams: Streams,
) -> (impl Subscriber + Send + Sync + 'static, LogControl) {
    let is_for_people = settings.format.is_none() && streams.is_terminal && !settings.split_stream;
    let format = settings.format.unwrap_or(Format::Text);
    let vmodule = match format {
        Format::Text => settings.vmodule.clone(),
        Format::Json => Vec::new(),
    };
    let control = LogControl {
        verbosity: Arc::new(Verbosity::new(settings.verbosity, vmodule)),
        is_overridden: wish.is_some(),
        output: Output::start(settings, streams),
    };
    let filter: Box<dyn Layer<Registry> + Send + Sync> = match wish {
        Some(filter) => Box::new(filter),
        None => Box::new(VerbosityFilter::new(control.verbosity.clone())),
    };
    let filtered = Registry::default().with(filter);
    let lines = if is_for_people {
        for_people(control.output.clone())
    } else {
        Box::new(KlogLayer::new(format, control.output.clone()))
    };
    (filtered.with(lines), control)
}

/// Short lines in colours.
fn for_people<S>(output: Arc<Output>) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(true)
        .with_target(false)
        .with_writer(move || output::Screen(output.clone()));
    Box::new(layer)
}
