//! An event as a value of bounded size, before it is known how it will look.
//!
//! What objects say ends up in logs, and objects are hostile: no value can be longer than [`MAX_VALUE`], all of them together not longer
//! than [`MAX_RECORD`], whatever it is that somebody logs.

use std::error::Error;
use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Level};

use super::verbosity;

/// How many bytes of one value are written.
pub(super) const MAX_VALUE: usize = 4096;
/// How many bytes of all values of an event are written.
pub(super) const MAX_RECORD: usize = 16 * 1024;
/// How many causes of an error are named: a chain that leads back to itself must end somewhere.
const MAX_CAUSES: usize = 16;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Severity {
    Info,
    Warning,
    Error,
}

/// What a key's value is: a text to be quoted, or a number or truth value as it is printed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Value {
    Text(String),
    Bare(String),
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Record {
    pub(super) severity: Severity,
    /// The verbosity from which on it is logged.
    pub(super) verbosity: u32,
    /// The path of the source file; empty if it is not known.
    pub(super) file: &'static str,
    pub(super) line: u32,
    pub(super) message: String,
    pub(super) error: Option<String>,
    pub(super) fields: Vec<(&'static str, Value)>,
}

impl Record {
    pub(super) fn of(event: &Event<'_>) -> Self {
        let metadata = event.metadata();
        let mut collector = Collector {
            record: Self {
                severity: match *metadata.level() {
                    Level::ERROR => Severity::Error,
                    Level::WARN => Severity::Warning,
                    _ => Severity::Info,
                },
                verbosity: verbosity::needed_for(metadata),
                file: metadata.file().unwrap_or_default(),
                line: metadata.line().unwrap_or_default(),
                message: String::new(),
                error: None,
                fields: Vec::new(),
            },
            left: MAX_RECORD,
        };
        event.record(&mut collector);
        collector.record
    }

    /// The source file with its folder, and the line: `sync/run.rs:140`. klog prints the file's name alone, which finds nothing in a tree
    /// where several files have one name. Like klog, three question marks for an unknown file.
    pub(super) fn caller(&self) -> String {
        let mut slashes = self.file.rmatch_indices('/');
        let start = slashes.nth(1).map_or(0, |(at, _)| at + 1);
        let file = match &self.file[start..] {
            "" => "???",
            file => file,
        };
        format!("{file}:{}", self.line)
    }
}

/// Takes the fields of an event one by one.
struct Collector {
    record: Record,
    left: usize,
}

impl Collector {
    fn text(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        let mut text = Capped::new(self.left.min(MAX_VALUE));
        // A value whose printing fails is printed as far as it came.
        let _ = text.write_fmt(value);
        let text = text.finish();
        self.left = self.left.saturating_sub(text.len());
        match field.name() {
            "message" => self.record.message = text,
            "error" | "err" => self.record.error = Some(text),
            name => self.record.fields.push((name, Value::Text(text))),
        }
    }

    fn bare(&mut self, field: &Field, value: impl fmt::Display) {
        if matches!(field.name(), "message" | "error" | "err") {
            self.text(field, format_args!("{value}"));
        } else {
            let value = Value::Bare(value.to_string());
            self.record.fields.push((field.name(), value));
        }
    }
}

impl Visit for Collector {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, format_args!("{value}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.text(field, format_args!("{}", Causes(value)));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        if value.is_finite() {
            self.bare(field, value);
        } else {
            // JSON has no such numbers.
            self.text(field, format_args!("{value}"));
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.bare(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.bare(field, value);
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.bare(field, value);
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.bare(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.bare(field, value);
    }
}

/// An error and what caused it, outermost first.
struct Causes<'a>(&'a (dyn Error + 'static));

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        for _ in 0..MAX_CAUSES {
            let Some(error) = cause else { break };
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// A text that stops growing at a size, and counts what it did not take.
struct Capped {
    kept: String,
    limit: usize,
    dropped: usize,
}

impl Capped {
    fn new(limit: usize) -> Self {
        Self {
            kept: String::new(),
            limit,
            dropped: 0,
        }
    }

    fn finish(mut self) -> String {
        if self.dropped > 0 {
            let _ = write!(self.kept, "… ({} bytes more)", self.dropped);
        }
        self.kept
    }
}

impl Write for Capped {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Once something was left out, nothing may follow it.
        let room = if self.dropped > 0 {
            0
        } else {
            self.limit - self.kept.len()
        };
        let mut fits = text.len().min(room);
        while !text.is_char_boundary(fits) {
            fits -= 1;
        }
        self.kept.push_str(&text[..fits]);
        self.dropped += text.len() - fits;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_says_how_much_is_missing() {
        let mut text = Capped::new(5);
        text.write_str("abc").unwrap();
        text.write_str("dé").unwrap();
        // `é` takes two bytes, of which one would fit.
        text.write_str("z").unwrap();
        assert_eq!(text.finish(), "abcd… (3 bytes more)");

        let mut text = Capped::new(5);
        text.write_str("abcde").unwrap();
        assert_eq!(text.finish(), "abcde");
    }

    #[test]
    fn an_error_comes_with_its_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] fmt::Error);
        let shown = Causes(&Outer(fmt::Error)).to_string();
        assert_eq!(shown, format!("outer: {}", fmt::Error));
    }
}
