//! A record as one JSON object: `ts`, `caller`, `msg`, `v` unless it is an error, `err` if there is one, then the keys.

use std::fmt::Write;

use jiff::Timestamp;

use super::record::{Record, Severity, Value};
use super::text::is_printable;

/// A record as a line.
pub(super) fn line(record: &Record, at: Timestamp) -> String {
    let mut line = String::with_capacity(256);
    line.push_str("{\"ts\":");
    timestamp(&mut line, at);
    line.push_str(",\"caller\":");
    string(&mut line, &record.caller());
    key(&mut line, "msg");
    string(&mut line, &record.message);
    if record.severity != Severity::Error {
        key(&mut line, "v");
        line.push_str(&record.verbosity.to_string());
    }
    // klog's JSON has no word for a warning and writes it as information; whoever looks for warnings should find them.
    if record.severity == Severity::Warning {
        key(&mut line, "severity");
        string(&mut line, "warning");
    }
    if let Some(error) = &record.error {
        key(&mut line, "err");
        string(&mut line, error);
    }
    for (name, value) in &record.fields {
        key(&mut line, name);
        match value {
            Value::Text(text) => string(&mut line, text),
            Value::Bare(text) => line.push_str(text),
        }
    }
    line.push_str("}\n");
    line
}

/// Milliseconds since 1970, with the microseconds behind the point.
fn timestamp(line: &mut String, at: Timestamp) {
    let micros = at.as_microsecond();
    // Writing to a string does not fail.
    let _ = write!(
        line,
        "{}.{:03}",
        micros.div_euclid(1000),
        micros.rem_euclid(1000)
    );
}

fn key(line: &mut String, name: &str) {
    line.push(',');
    string(line, name);
    line.push(':');
}

/// Escapes more than JSON asks for: a log is looked at in terminals, which obey some characters.
fn string(line: &mut String, text: &str) {
    line.push('"');
    for c in text.chars() {
        match c {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            c if is_printable(c) => line.push(c),
            c => escape(line, c),
        }
    }
    line.push('"');
}

fn escape(line: &mut String, c: char) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        // Writing to a string does not fail.
        let _ = write!(line, "\\u{unit:04x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(severity: Severity, file: &'static str) -> Record {
        Record {
            severity,
            verbosity: 4,
            file,
            line: 7,
            message: "a \"word\"\n".into(),
            error: Some("no".into()),
            fields: vec![
                ("object", Value::Text("ns/web".into())),
                ("times", Value::Bare("3".into())),
            ],
        }
    }

    /// A moment whose microseconds begin with a zero.
    fn moment() -> Timestamp {
        Timestamp::from_microsecond(1_700_000_000_123_045).unwrap()
    }

    #[test]
    fn information_has_its_verbosity() {
        assert_eq!(
            line(
                &record(Severity::Info, "crates/ferrovia/src/sync/run.rs"),
                moment()
            ),
            "{\"ts\":1700000000123.045,\"caller\":\"sync/run.rs:7\",\"msg\":\"a \\\"word\\\"\\n\",\"v\":4,\"err\":\"no\",\
             \"object\":\"ns/web\",\"times\":3}\n"
        );
    }

    #[test]
    fn an_error_has_no_verbosity() {
        assert_eq!(
            line(&record(Severity::Error, "run.rs"), moment()),
            "{\"ts\":1700000000123.045,\"caller\":\"run.rs:7\",\"msg\":\"a \\\"word\\\"\\n\",\"err\":\"no\",\
             \"object\":\"ns/web\",\"times\":3}\n"
        );
    }

    #[test]
    fn a_warning_says_so() {
        let line = line(&record(Severity::Warning, "src/run.rs"), moment());
        assert!(line.contains("\"src/run.rs:7\""), "{line}");
        assert!(
            line.contains(",\"v\":4,\"severity\":\"warning\","),
            "{line}"
        );
    }
}
