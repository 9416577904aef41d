//! A short look at a YAML document to see what kind it is.
//!
//! Most documents say so in their first two lines, and the walk stops there, which nearly halves the time a big
//! file takes. It answers only when the answer is plain; a kind that comes from an alias or a merge key, or is
//! missing, is for the full parse to judge.

use serde_saphyr::granit_parser::{Event, Parser};

use super::Head;

/// The kind and the line on which the object starts, from 1.
pub(super) fn head(text: &str) -> Option<(Head, usize)> {
    let mut head = Head::default();
    let mut line = 0;
    let mut depth = 0_usize;
    // The key at the top level whose value comes next.
    let mut key = None;
    for step in Parser::new_from_str(text) {
        let (event, span) = step.ok()?;
        match event {
            Event::MappingStart(..) if depth == 0 => {
                line = span.start.line();
                depth = 1;
            }
            Event::Scalar(text, ..) if depth == 1 => match key.take().as_deref() {
                None => key = Some(text),
                Some("kind") => head.kind = Some(text.into_owned()),
                Some("apiVersion") => head.api_version = Some(text.into_owned()),
                Some(_) => {}
            },
            Event::MappingStart(..) | Event::SequenceStart(..) => {
                let is_key = depth == 1 && key.take().is_none();
                if depth == 0 || is_key {
                    return None;
                }
                depth += 1;
            }
            Event::MappingEnd | Event::SequenceEnd => depth = depth.checked_sub(1)?,
            Event::Alias(_) if depth == 1 => drop(key.take()?),
            _ => {}
        }
        if head.kind.is_some() && head.api_version.is_some() {
            return Some((head, line));
        }
    }
    None
}
