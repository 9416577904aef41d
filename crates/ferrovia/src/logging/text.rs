//! A record as klog's text: `Lmmdd hh:mm:ss.uuuuuu pid folder/file:line] "message" key="value"`.
//!
//! One record is one line, always: whatever could end a line, move a cursor or change a reader's mind about what is quoted is escaped, in
//! the way Go writes a quoted string. klog itself spreads a text of several lines over several; we do not.

use std::fmt::Write;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::record::{Record, Severity, Value};

/// klog's text, for one process in one time zone.
#[derive(Debug)]
pub(super) struct TextFormat {
    zone: TimeZone,
    pid: u32,
}

impl TextFormat {
    /// With this machine's time zone: `TZ`, or `/etc/localtime`, or else UTC. Looked up once, as Go does.
    pub(super) fn new() -> Self {
        Self {
            zone: TimeZone::system(),
            pid: std::process::id(),
        }
    }

    pub(super) fn line(&self, record: &Record, at: Timestamp) -> String {
        let mut line = String::with_capacity(256);
        self.header(&mut line, record, at);
        quote(&mut line, &record.message);
        if let Some(error) = &record.error {
            line.push_str(" err=");
            quote(&mut line, error);
        }
        for (key, value) in &record.fields {
            line.push(' ');
            line.push_str(key);
            line.push('=');
            match value {
                Value::Text(text) => quote(&mut line, text),
                Value::Bare(text) => line.push_str(text),
            }
        }
        line.push('\n');
        line
    }

    fn header(&self, line: &mut String, record: &Record, at: Timestamp) {
        let letter = match record.severity {
            Severity::Info => 'I',
            Severity::Warning => 'W',
            Severity::Error => 'E',
        };
        let time = self.zone.to_datetime(at);
        // Writing to a string does not fail.
        let _ = write!(
            line,
            "{letter}{:02}{:02} {:02}:{:02}:{:02}.{:06} {:7} {}] ",
            time.month(),
            time.day(),
            time.hour(),
            time.minute(),
            time.second(),
            time.subsec_nanosecond() / 1000,
            self.pid,
            record.caller(),
        );
    }
}

/// Writes a text in quotes as Go would.
fn quote(line: &mut String, text: &str) {
    line.push('"');
    for c in text.chars() {
        match c {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            '\x07' => line.push_str("\\a"),
            '\x08' => line.push_str("\\b"),
            '\x0c' => line.push_str("\\f"),
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            '\x0b' => line.push_str("\\v"),
            c if is_printable(c) => line.push(c),
            c => escape(line, c),
        }
    }
    line.push('"');
}

/// Whether a character shows as itself. Those that Rust's own debug output shows do.
pub(super) fn is_printable(c: char) -> bool {
    matches!(c, ' '..='~') || c.escape_debug().len() == 1
}

fn escape(line: &mut String, c: char) {
    // Writing to a string does not fail.
    let _ = match u32::from(c) {
        code @ 0..0x80 => write!(line, "\\x{code:02x}"),
        code @ 0x80..0x1_0000 => write!(line, "\\u{code:04x}"),
        code => write!(line, "\\U{code:08x}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            severity: Severity::Error,
            verbosity: 0,
            file: "crates/ferrovia/src/sync/run.rs",
            line: 140,
            message: "cannot write the rules".into(),
            error: Some("no \"table\"".into()),
            fields: vec![
                ("family", Value::Text("IPv4".into())),
                ("tries", Value::Bare("3".into())),
            ],
        }
    }

    fn utc(pid: u32) -> TextFormat {
        TextFormat {
            zone: TimeZone::UTC,
            pid,
        }
    }

    /// 2026-11-02 03:04:05.000678 in UTC.
    fn moment() -> Timestamp {
        "2026-11-02T03:04:05.000678901Z".parse().unwrap()
    }

    #[test]
    fn a_line_is_as_klog_writes_it() {
        assert_eq!(
            utc(4242).line(&record(), moment()),
            "E1102 03:04:05.000678    4242 sync/run.rs:140] \"cannot write the rules\" err=\"no \\\"table\\\"\" family=\"IPv4\" tries=3\n"
        );
    }

    #[test]
    fn a_long_process_number_is_not_cut() {
        let line = utc(4_194_304).line(&record(), moment());
        assert!(
            line.starts_with("E1102 03:04:05.000678 4194304 sync/run.rs:140] "),
            "{line}"
        );
    }

    #[test]
    fn the_time_is_local() {
        let format = TextFormat {
            zone: TimeZone::fixed(jiff::tz::offset(-4)),
            pid: 1,
        };
        let line = format.line(&record(), moment());
        assert!(line.starts_with("E1101 23:04:05.000678       1 "), "{line}");
    }

    #[test]
    fn an_unknown_place_has_question_marks() {
        let nowhere = Record {
            severity: Severity::Info,
            file: "",
            line: 0,
            ..record()
        };
        let line = utc(1).line(&nowhere, moment());
        assert!(line.contains(" ???:0] "), "{line}");
    }

    #[test]
    fn quoted_as_go_quotes() {
        let mut quoted = String::new();
        quote(
            &mut quoted,
            "it's é 世 🚂\0\x07\x08\t\n\x0b\x0c\r\x1b\x7f\u{85}\u{a0}\u{2028}\u{202e}\u{feff}\u{e0001}\"\\",
        );
        assert_eq!(
            quoted,
            r#""it's é 世 🚂\x00\a\b\t\n\v\f\r\x1b\x7f\u0085\u00a0\u2028\u202e\ufeff\U000e0001\"\\""#
        );
    }
}
