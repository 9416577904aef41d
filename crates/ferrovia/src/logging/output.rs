//! Where lines leave the process: each in one system call, so that lines of others do not end up in its middle.
//!
//! A line that cannot be written is lost: there is nowhere left to say so.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread;
use std::time::Duration;

use ferrovia_host::privileges;

use super::record::Severity;
use super::{LogSettings, Streams};

/// No buffer is larger, whatever the settings say.
const MAX_BUFFER: usize = 64 * 1024 * 1024;
/// The buffer is emptied at most this often.
const MIN_PAUSE: Duration = Duration::from_millis(10);
/// How much of a line a person sees.
const MAX_SCREEN: usize = 16 * 1024;

/// The streams, one line at a time.
pub(super) struct Output(Mutex<Sinks>);

impl Output {
    /// Opens the output, with a thread that empties the buffer now and then if there is one.
    pub(super) fn start(settings: &LogSettings, streams: Streams) -> Arc<Self> {
        let info = settings
            .split_stream
            .then(|| Buffered::new(streams.info, settings.info_buffer_size));
        let is_buffered = info.as_ref().is_some_and(|info| info.limit > 0);
        let output = Arc::new(Self(Mutex::new(Sinks {
            info,
            errors: streams.errors,
        })));
        if is_buffered {
            flush_regularly(&output, settings.flush_frequency);
        }
        output
    }

    pub(super) fn write(&self, severity: Severity, line: &str) {
        let mut sinks = self.sinks();
        match &mut sinks.info {
            Some(info) if severity == Severity::Info => info.push(line.as_bytes()),
            info => {
                // Whoever reads both streams should find what led to the error before it.
                if let Some(info) = info {
                    info.flush();
                }
                let _ = sinks.errors.write_all(line.as_bytes());
            }
        }
    }

    pub(super) fn flush(&self) {
        let mut sinks = self.sinks();
        if let Some(info) = &mut sinks.info {
            info.flush();
        }
        let _ = sinks.errors.flush();
    }

    fn sinks(&self) -> MutexGuard<'_, Sinks> {
        // A panic in between has at worst lost a line.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").finish_non_exhaustive()
    }
}

struct Sinks {
    /// Only if the streams are split.
    info: Option<Buffered>,
    errors: Box<dyn Write + Send>,
}

/// A stream whose lines wait for one another, if the limit is not 0.
struct Buffered {
    stream: Box<dyn Write + Send>,
    waiting: Vec<u8>,
    limit: usize,
}

impl Buffered {
    fn new(stream: Box<dyn Write + Send>, limit: usize) -> Self {
        Self {
            stream,
            waiting: Vec::new(),
            limit: limit.min(MAX_BUFFER),
        }
    }

    fn push(&mut self, line: &[u8]) {
        if self.waiting.len() + line.len() > self.limit {
            self.flush();
        }
        if line.len() > self.limit {
            let _ = self.stream.write_all(line);
            let _ = self.stream.flush();
        } else {
            self.waiting.extend_from_slice(line);
        }
    }

    fn flush(&mut self) {
        if !self.waiting.is_empty() {
            let _ = self.stream.write_all(&self.waiting);
            self.waiting.clear();
        }
        let _ = self.stream.flush();
    }
}

/// Empties the buffer until nobody logs any more.
fn flush_regularly(output: &Arc<Output>, every: Duration) {
    let output: Weak<Output> = Arc::downgrade(output);
    let (modest, is_modest) = mpsc::channel::<()>();
    let flushing = move || {
        // It needs none, and starts before the others give up theirs. If it cannot, that is told when they do.
        let _ = privileges::drop_in_this_thread(&[]);
        drop(modest);
        while let Some(output) = output.upgrade() {
            output.flush();
            drop(output);
            thread::sleep(every.max(MIN_PAUSE));
        }
    };
    // Without the thread lines only wait longer.
    let _ = thread::Builder::new().name("log".into()).spawn(flushing);
    // Nobody sends: the wait is over when the thread has let go of its end, or was never started.
    let _ = is_modest.recv();
}

/// What lines for people are written to: takes each in one call, and keeps it one line.
pub(super) struct Screen(pub(super) Arc<Output>);

impl Write for Screen {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        // People at a terminal read one stream.
        self.0.write(Severity::Error, &on_one_line(&text));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A line without line ends in its middle, and not too long. The colours' escapes are not ours to judge: the formatter has escaped those
/// that came in values.
fn on_one_line(text: &str) -> String {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let mut end = text.len().min(MAX_SCREEN);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut line = text[..end].replace('\n', "\\n").replace('\r', "\\r");
    if end < text.len() {
        line.push_str("…\x1b[0m");
    }
    line.push('\n');
    line
}
