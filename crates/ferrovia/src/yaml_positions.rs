//! The fields of a YAML text and where they stand. Parsers tell the place of a value that has the wrong type, but not which field it is.
//!
//! The text is walked event by event, which only costs something when it is done: for a configuration, and where there is an error to
//! explain. JSON is walked by the same parser, being YAML's flow style.

use std::collections::HashSet;
use std::fmt::Write as _;

use serde_saphyr::granit_parser::{Event, Parser, StrInput};

/// The longest name of a field that is worth showing.
const LONGEST_NAME: usize = 80;

/// A walk over a text.
pub(crate) struct Walk<'a> {
    events: Parser<'a, StrInput<'a>>,
    /// The collections that are open, outermost first.
    open: Vec<Level>,
}

/// The text is no YAML from here on. The parser proper says why.
#[derive(Debug)]
pub(crate) struct Unreadable;

/// One event of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// From 1, as is the column, which counts characters.
    pub(crate) line: usize,
    pub(crate) column: usize,
    /// What starts here, if anything does.
    pub(crate) node: Option<Node>,
}

/// What starts in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// A key of a mapping.
    Key {
        /// The same mapping has it already.
        is_repeated: bool,
    },
    /// A value of a key, an entry of a list, or the document.
    Value,
}

enum Level {
    /// The keys so far, the last of them, and whether its value is still to come.
    Map {
        seen: HashSet<String>,
        key: String,
        value_next: bool,
    },
    /// The number of the next entry, from 0.
    List { next: usize },
}

impl<'a> Walk<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self {
            events: Parser::new_from_str(text),
            open: Vec::new(),
        }
    }

    /// Goes on to the next event; nothing at the end of the text.
    pub(crate) fn step(&mut self) -> Result<Option<Step>, Unreadable> {
        let Some(next) = self.events.next() else {
            return Ok(None);
        };
        let (event, span) = next.map_err(|_| Unreadable)?;
        Ok(Some(Step {
            line: span.start.line(),
            // Markers count columns from 0.
            column: span.start.col() + 1,
            node: self.take(&event),
        }))
    }

    /// Where the walk is, such as `logging.vmodule[0].verbosity`; empty at the root.
    pub(crate) fn path(&self) -> String {
        self.spell(|path, position| {
            // A string takes whatever is written to it.
            let _ = write!(path, "[{position}]");
        })
    }

    /// The same without positions in lists: `logging.vmodule[].verbosity`.
    pub(crate) fn pattern(&self) -> String {
        self.spell(|path, _| path.push_str("[]"))
    }

    fn take(&mut self, event: &Event<'_>) -> Option<Node> {
        match event {
            Event::Scalar(text, ..) => Some(self.start(Some(text))),
            Event::Alias(_) => Some(self.start(None)),
            Event::MappingStart(..) => {
                let node = self.start(None);
                self.open.push(Level::Map {
                    seen: HashSet::new(),
                    key: String::new(),
                    value_next: false,
                });
                Some(node)
            }
            Event::SequenceStart(..) => {
                let node = self.start(None);
                self.open.push(Level::List { next: 0 });
                Some(node)
            }
            Event::MappingEnd | Event::SequenceEnd => {
                self.open.pop();
                None
            }
            _ => None,
        }
    }

    /// A node begins: a key, a value or an entry of what is open.
    fn start(&mut self, scalar: Option<&str>) -> Node {
        match self.open.last_mut() {
            Some(Level::Map { value_next, .. }) if *value_next => *value_next = false,
            Some(Level::Map {
                seen,
                key,
                value_next,
            }) => {
                let text = scalar.unwrap_or("?");
                *key = printable(text);
                *value_next = true;
                // Keys that are no scalars have no name here that could be compared.
                let is_repeated = !seen.insert(text.to_owned()) && scalar.is_some();
                return Node::Key { is_repeated };
            }
            Some(Level::List { next }) => *next += 1,
            None => {}
        }
        Node::Value
    }

    fn spell(&self, position: impl Fn(&mut String, usize)) -> String {
        let mut path = String::new();
        for level in &self.open {
            match level {
                // Just opened: it is the value of what is round it.
                Level::Map { seen, .. } if seen.is_empty() => {}
                Level::Map { key, .. } => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(key);
                }
                Level::List { next: 0 } => {}
                Level::List { next } => position(&mut path, next - 1),
            }
        }
        path
    }
}

/// Names of fields end up in messages; what could move a terminal's cursor is shown as an escape, and a very long one in part.
fn printable(text: &str) -> String {
    let start = text.chars().take(LONGEST_NAME);
    start.flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repeated(text: &str) -> Vec<bool> {
        let mut walk = Walk::new(text);
        let mut found = Vec::new();
        while let Some(step) = walk.step().unwrap() {
            if let Some(Node::Key { is_repeated }) = step.node {
                found.push(is_repeated);
            }
        }
        found
    }

    #[test]
    fn a_key_is_repeated_only_by_the_same_key() {
        assert_eq!(
            repeated("a: 1\nb: {a: 1}\na: 2\n"),
            [false, false, false, true]
        );
        // What is shown of a long one is not all that is compared.
        let long = "x".repeat(LONGEST_NAME);
        let two = format!("{long}1: a\n{long}2: b\n{long}1: c\n");
        assert_eq!(repeated(&two), [false, false, true]);
        assert_eq!(repeated("? [a]\n: 1\n? [b]\n: 2\n"), [false, false]);
    }
}
