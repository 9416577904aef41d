//! From an event to its line.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use jiff::Timestamp;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::Format;
use super::json;
use super::output::Output;
use super::record::Record;
use super::repeats::Repeats;
use super::text::TextFormat;

/// Writes events in one of klog's formats. Spans are not shown: klog has none.
#[derive(Debug)]
pub(super) struct KlogLayer {
    style: Style,
    output: Arc<Output>,
    repeats: Mutex<Repeats>,
}

#[derive(Debug)]
enum Style {
    Text(TextFormat),
    Json,
}

impl KlogLayer {
    pub(super) fn new(format: Format, output: Arc<Output>) -> Self {
        Self {
            style: match format {
                Format::Text => Style::Text(TextFormat::new()),
                Format::Json => Style::Json,
            },
            output,
            repeats: Mutex::default(),
        }
    }

    fn write(&self, record: &Record) {
        let now = Timestamp::now();
        let line = match &self.style {
            Style::Text(format) => format.line(record, now),
            Style::Json => json::line(record, now),
        };
        self.output.write(record.severity, &line);
    }
}

impl<S: Subscriber> Layer<S> for KlogLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let record = Record::of(event);
        // Whoever asks for details wants all of them.
        if record.verbosity > 0 {
            return self.write(&record);
        }
        let due = self
            .repeats
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .admit(record, Instant::now());
        due.iter().for_each(|record| self.write(record));
    }
}
