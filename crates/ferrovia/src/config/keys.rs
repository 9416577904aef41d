//! Every key of a document with its place: for fields that nobody knows, that are given twice, and for naming the field in which a value has
//! the wrong type. Parsers tell the line of such a value, but not the field.

use std::collections::HashSet;

use serde_saphyr::granit_parser::{Event, Parser};

/// More keys than this are no configuration. The walk ends there; the parser proper has limits of its own.
const MOST_KEYS: usize = 10_000;
/// The longest name of a key that is worth showing.
const LONGEST_NAME: usize = 80;

/// A key and where it stands, line and column from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Its path, such as `logging.vmodule[0].verbosity`.
    pub(super) path: String,
    /// The same without positions in lists: `logging.vmodule[].verbosity`.
    pub(super) pattern: String,
    pub(super) line: usize,
    pub(super) column: usize,
    /// The same mapping has this key already.
    pub(super) is_repeated: bool,
}

/// All keys in the order of the text, as far as it can be read.
pub(super) fn keys(text: &str) -> Vec<Key> {
    let mut walk = Walk::default();
    let mut keys = Vec::new();
    for step in Parser::new_from_str(text) {
        let Ok((event, span)) = step else { break };
        if let Some(key) = walk.step(&event, span.start.line(), span.start.col() + 1) {
            keys.push(key);
        }
        if keys.len() >= MOST_KEYS {
            break;
        }
    }
    keys
}

/// The last key that starts at or before this place.
pub(super) fn key_at(keys: &[Key], line: usize, column: usize) -> Option<&Key> {
    keys.iter()
        .take_while(|key| (key.line, key.column) <= (line, column))
        .last()
}

/// The collections that are open, outermost first.
#[derive(Default)]
struct Walk {
    open: Vec<Level>,
}

enum Level {
    Map {
        seen: HashSet<String>,
        key: String,
        value_next: bool,
    },
    List {
        next: usize,
    },
}

impl Walk {
    /// Takes one event; the key it is, if it is one.
    fn step(&mut self, event: &Event<'_>, line: usize, column: usize) -> Option<Key> {
        match event {
            Event::Scalar(text, ..) => self.node(Some(text), line, column),
            Event::Alias(_) => self.node(None, line, column),
            Event::MappingStart(..) => {
                let key = self.node(None, line, column);
                self.open.push(Level::Map {
                    seen: HashSet::new(),
                    key: String::new(),
                    value_next: false,
                });
                key
            }
            Event::SequenceStart(..) => {
                let key = self.node(None, line, column);
                self.open.push(Level::List { next: 0 });
                key
            }
            Event::MappingEnd | Event::SequenceEnd => {
                self.open.pop();
                None
            }
            _ => None,
        }
    }

    /// A node begins: a key, a value or an entry of what is open.
    fn node(&mut self, scalar: Option<&str>, line: usize, column: usize) -> Option<Key> {
        let is_repeated = match self.open.last_mut()? {
            Level::Map { value_next, .. } if *value_next => {
                *value_next = false;
                return None;
            }
            Level::List { next } => {
                *next += 1;
                return None;
            }
            Level::Map {
                seen,
                key,
                value_next,
            } => {
                *key = printable(scalar.unwrap_or("?"));
                *value_next = true;
                !seen.insert(key.clone())
            }
        };
        Some(Key {
            path: self.path(|next| format!("[{}]", next.saturating_sub(1))),
            pattern: self.path(|_| "[]".to_owned()),
            line,
            column,
            is_repeated,
        })
    }

    fn path(&self, position: impl Fn(usize) -> String) -> String {
        let mut path = String::new();
        for level in &self.open {
            match level {
                Level::Map { key, .. } => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(key);
                }
                Level::List { next } => path.push_str(&position(*next)),
            }
        }
        path
    }
}

/// Keys end up in the log; what could move a terminal's cursor is shown as an escape, and a very long one in part.
fn printable(text: &str) -> String {
    text.chars()
        .take(LONGEST_NAME)
        .flat_map(char::escape_debug)
        .collect()
}
