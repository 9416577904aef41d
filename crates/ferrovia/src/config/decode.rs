//! Bytes of a configuration file to a [`Document`]. Pure, and never panics whatever the bytes.
//!
//! A field that nobody knows or that is given twice does not stop the start, so that files for other versions work: it is told, and of two the
//! last one counts. A value of the wrong type is an error with its field and line. Below `ferrovia:`, which no other version has, an unknown field is
//! an error as well.

use serde_json::Value;
use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{MessageFormatter, Options, UserMessageFormatter};

use super::file::{API_VERSION, Document, KIND};
use super::keys::{Key, key_at, keys};

/// A file that is larger is no configuration.
pub const LARGEST_FILE: usize = 1 << 20;
/// So many fields are named in one line of the log.
const MOST_NAMED: usize = 20;

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It is not text.
    #[error("the file is not UTF-8 text")]
    NotText,
    /// It is too large.
    #[error("the file is larger than {LARGEST_FILE} bytes, which no configuration is")]
    TooLarge,
    /// It is another kind of object, or none.
    #[error("{field}: must be {expected:?}, not {found:?}")]
    OtherKind {
        /// `apiVersion` or `kind`.
        field: &'static str,
        /// What is there.
        found: String,
        /// What should be there.
        expected: &'static str,
    },
    /// It is not YAML, or a value has the wrong type.
    #[error("line {line}{}: {what}", in_field(field.as_deref()))]
    Fault {
        /// The line, from 1.
        line: usize,
        /// The field, where there is one.
        field: Option<String>,
        /// What is wrong.
        what: String,
    },
    /// A field below `ferrovia` that this version does not have.
    #[error("line {line}: {field}: there is no such field")]
    Unknown {
        /// The line, from 1.
        line: usize,
        /// The field.
        field: String,
    },
}

fn in_field(field: Option<&str>) -> String {
    field.map(|field| format!(": {field}")).unwrap_or_default()
}

/// A file as read.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// What it says.
    pub document: Document,
    /// Fields nobody knows or that are given twice, in a sentence for the log.
    pub remark: Option<String>,
}

/// Reads a file, YAML or JSON.
pub fn decode(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    if bytes.len() > LARGEST_FILE {
        return Err(DecodeError::TooLarge);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::NotText)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let keys = keys(text);
    let document: Option<Document> = serde_saphyr::from_str_with_options(text, options())
        .map_err(|error| fault(text, &keys, &error))?;
    let document = document.unwrap_or_default();
    check_kind("apiVersion", &document.api_version, API_VERSION)?;
    check_kind("kind", &document.kind, KIND)?;
    let remark = remark(&keys)?;
    Ok(Decoded { document, remark })
}

fn check_kind(field: &'static str, found: &str, expected: &'static str) -> Result<(), DecodeError> {
    if found == expected {
        return Ok(());
    }
    Err(DecodeError::OtherKind {
        field,
        found: found.chars().take(100).collect(),
        expected,
    })
}

/// Names what a strict reader would have refused.
fn remark(keys: &[Key]) -> Result<Option<String>, DecodeError> {
    let known = known_fields();
    let mut oddities = Vec::new();
    for key in keys {
        let Key { path, line, .. } = key;
        if is_unknown(key, &known) {
            if path.starts_with("ferrovia.") {
                return Err(DecodeError::Unknown {
                    line: *line,
                    field: path.clone(),
                });
            }
            oddities.push(format!("unknown field {path:?} (line {line})"));
        } else if key.is_repeated {
            oddities.push(format!("field {path:?} given twice (line {line})"));
        }
    }
    let more = oddities.len().saturating_sub(MOST_NAMED);
    oddities.truncate(MOST_NAMED);
    if more > 0 {
        oddities.push(format!("and {more} more"));
    }
    Ok((!oddities.is_empty()).then(|| oddities.join(", ")))
}

/// Nobody knows it, but the section it is in is known: a field inside an unknown one is no news.
fn is_unknown(key: &Key, known: &[String]) -> bool {
    let has = |field: &str| known.iter().any(|known| known == field);
    let (section, name) = match key.pattern.rsplit_once('.') {
        Some((section, name)) => (Some(section.trim_end_matches("[]")), name),
        None => (None, key.pattern.as_str()),
    };
    // Gates have names of their own, and a merge key stands for what is merged.
    let is_free = section == Some("featureGates") || name == "<<";
    !is_free && !has(&key.pattern) && section.is_none_or(has)
}

/// All fields there are, by their path; `[]` stands for an entry of a list.
pub fn known_fields() -> Vec<String> {
    let mut patterns = Vec::new();
    if let Ok(every) = serde_json::to_value(Document::with_every_field()) {
        collect(&every, "", &mut patterns);
    }
    patterns
}

fn collect(value: &Value, path: &str, patterns: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                collect(value, &path, patterns);
                patterns.push(path);
            }
        }
        Value::Array(entries) => entries
            .iter()
            .for_each(|entry| collect(entry, &format!("{path}[]"), patterns)),
        _ => {}
    }
}

fn fault(text: &str, keys: &[Key], error: &serde_saphyr::Error) -> DecodeError {
    let what = in_words(&UserMessageFormatter.format_message(error));
    // The end of the text is reported as the line after the last, which does not exist.
    let last = text.lines().count().max(1);
    let place = error.location();
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let line = place.map_or(1, |place| number(place.line())).clamp(1, last);
    let column = place.map_or(1, |place| number(place.column()).max(1));
    DecodeError::Fault {
        line,
        field: key_at(keys, line, column).map(|key| key.path.clone()),
        what,
    }
}

/// Says what would be right, where the parser only says what it stumbled over. What could move a terminal's cursor is shown as an escape.
fn in_words(message: &str) -> String {
    let better = match message {
        "value requires quoting" => {
            "must be text; write a number or a bool in quotes if it is meant so"
        }
        "invalid boolean" => "must be true or false",
        "invalid i32" => "must be a whole number of 32 bits",
        "invalid u32" => "must be a whole number that is not negative",
        "invalid floating point" => "must be a number",
        "expected string scalar" => "must be a single value",
        "expected mapping start" => "must have fields",
        "expected sequence start" => "must be a list",
        other => other,
    };
    let escape = |c: char| {
        let is_harmful = c.is_control();
        let escaped = is_harmful.then(|| c.escape_default());
        escaped
            .into_iter()
            .flatten()
            .chain((!is_harmful).then_some(c))
    };
    better.chars().flat_map(escape).collect()
}

/// As Go reads YAML: `yes` is a bool, and a text that looks like a number needs quotes. What can grow beyond the text are aliases, which a
/// configuration has no use for, so their limit is low.
fn options() -> Options {
    serde_saphyr::options! {
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 10_000,
        },
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        no_schema: true,
        emit_comments: false,
        with_snippet: false,
    }
}
