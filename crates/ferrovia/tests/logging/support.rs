//! Logging into memory.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use ferrovia::logging::{self, Format, LogControl, LogSettings, Streams};

use crate::klog::Line;

/// A stream that remembers each call to write apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory(Arc<Mutex<Vec<Vec<u8>>>>);

impl Memory {
    /// What each call wrote.
    pub(crate) fn writes(&self) -> Vec<String> {
        let writes = self.0.lock().unwrap();
        writes
            .iter()
            .map(|write| String::from_utf8(write.clone()).unwrap())
            .collect()
    }

    /// The lines, without their ends. Each must have been written by one call.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |write: String| {
            let line = write
                .strip_suffix('\n')
                .unwrap_or_else(|| panic!("no end: {write:?}"));
            assert!(!line.contains('\n'), "not one line: {write:?}");
            line.to_owned()
        };
        self.writes().into_iter().map(line).collect()
    }
}

impl Write for Memory {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().push(buf.to_owned());
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What was logged.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) info: Memory,
    pub(crate) errors: Memory,
}

impl Log {
    /// The streams to log into it.
    pub(crate) fn streams(&self, is_terminal: bool) -> Streams {
        Streams {
            info: Box::new(self.info.clone()),
            errors: Box::new(self.errors.clone()),
            is_terminal,
        }
    }

    /// Everything, if it is klog's text and the streams are not split.
    pub(crate) fn klog(&self) -> Vec<Line> {
        let lines = self.errors.lines();
        lines
            .iter()
            .map(|line| Line::parse(line).unwrap_or_else(|error| panic!("{error}")))
            .collect()
    }

    /// Everything, if it is JSON and the streams are not split.
    pub(crate) fn json(&self) -> Vec<serde_json::Value> {
        let lines = self.errors.lines();
        lines
            .iter()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

/// What this thread logs in a closure.
pub(crate) fn logged(settings: &LogSettings, work: impl FnOnce(&LogControl)) -> Log {
    let log = Log::default();
    let (subscriber, control) = logging::subscriber(settings, log.streams(false));
    tracing::subscriber::with_default(subscriber, || work(&control));
    log
}

/// Settings with a format and a verbosity.
pub(crate) fn settings(format: Format, verbosity: u32) -> LogSettings {
    LogSettings {
        format: Some(format),
        verbosity,
        ..LogSettings::default()
    }
}
