//! Every key of a document with its place: for fields that nobody knows, that are given twice, and for naming the field in which a value has
//! the wrong type.

use crate::yaml_positions::{Node, Walk};

/// More keys than this are no configuration. The walk ends there; the parser proper has limits of its own.
const MOST_KEYS: usize = 10_000;

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
    let mut walk = Walk::new(text);
    let mut keys = Vec::new();
    while let Ok(Some(step)) = walk.step()
        && keys.len() < MOST_KEYS
    {
        if let Some(Node::Key { is_repeated }) = step.node {
            keys.push(Key {
                path: walk.path(),
                pattern: walk.pattern(),
                line: step.line,
                column: step.column,
                is_repeated,
            });
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
