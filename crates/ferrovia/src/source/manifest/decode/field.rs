//! Which field stands at a place in a text: `spec.ports[0].port`.
//!
//! Parsers tell where a value of the wrong type stands but not which field it is. It is found by walking the
//! document's events up to that place, which only costs something when there is an error to explain. JSON is
//! walked by the same parser, being YAML's flow style.

use std::fmt::Write as _;

use serde_saphyr::granit_parser::{Event, Parser};

/// The last field that starts at or before this place, both counted from 1 in characters. `None` at the root, and
/// when the text cannot be read up to there.
pub(super) fn at(text: &str, line: usize, column: usize) -> Option<String> {
    let mut walk = Walk::default();
    let mut path = None;
    for step in Parser::new_from_str(text) {
        let (event, span) = step.ok()?;
        // Markers count columns from 0.
        if (span.start.line(), span.start.col() + 1) > (line, column) {
            return path;
        }
        if let Some(reached) = walk.step(&event) {
            path = Some(reached).filter(|path| !path.is_empty());
        }
    }
    path
}

/// The collections that are open, outermost first.
#[derive(Default)]
struct Walk {
    open: Vec<Level>,
}

enum Level {
    /// The key read last, and whether its value is still to come.
    Map { key: String, value_next: bool },
    /// The number of the next entry, from 0.
    List { next: usize },
}

impl Walk {
    /// Takes one event; the path of the node it starts, if it starts one.
    fn step(&mut self, event: &Event<'_>) -> Option<String> {
        match event {
            Event::Scalar(text, ..) => self.node(Some(text)),
            Event::Alias(_) => self.node(None),
            Event::MappingStart(..) => {
                let path = self.node(None);
                self.open.push(Level::Map {
                    key: String::new(),
                    value_next: false,
                });
                path
            }
            Event::SequenceStart(..) => {
                let path = self.node(None);
                self.open.push(Level::List { next: 0 });
                path
            }
            Event::MappingEnd | Event::SequenceEnd => {
                self.open.pop();
                None
            }
            _ => None,
        }
    }

    /// A node begins: a key, a value or an entry of what is open.
    fn node(&mut self, scalar: Option<&str>) -> Option<String> {
        match self.open.last_mut() {
            Some(Level::Map { value_next, .. }) if *value_next => *value_next = false,
            Some(Level::Map { key, value_next }) => {
                scalar.unwrap_or("?").clone_into(key);
                *value_next = true;
            }
            Some(Level::List { next }) => *next += 1,
            None => {}
        }
        Some(self.path())
    }

    fn path(&self) -> String {
        let mut path = String::new();
        for level in &self.open {
            match level {
                Level::Map { key, .. } => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(&super::printable(key));
                }
                // A string takes whatever is written to it.
                Level::List { next } => drop(write!(path, "[{}]", next.saturating_sub(1))),
            }
        }
        path
    }
}
