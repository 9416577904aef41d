//! Which field stands at a place in a text: `spec.ports[0].port`.

use crate::yaml_positions::Walk;

/// The last field that starts at or before this place, both counted from 1 in characters. `None` at the root, and
/// when the text cannot be read up to there.
pub(super) fn at(text: &str, line: usize, column: usize) -> Option<String> {
    let mut walk = Walk::new(text);
    let mut path = String::new();
    while let Some(step) = walk.step().ok()? {
        if (step.line, step.column) > (line, column) {
            break;
        }
        if step.node.is_some() {
            path = walk.path();
        }
    }
    Some(path).filter(|path| !path.is_empty())
}
