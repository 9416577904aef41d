//! YAML: documents separated by `---`, each an object or a list of them.

use std::fmt;

use ferrovia_core::wire::{Kind, Object};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Error, MessageFormatter, Options, Spanned, UserMessageFormatter};

use super::{DecodeError, Decoded, Head, Role, admit, field, peek, printable, typed};

pub(super) fn decode(text: &str) -> Result<Vec<Decoded>, DecodeError> {
    let mut objects = Vec::new();
    for document in documents(text) {
        document.decode(&mut objects)?;
    }
    Ok(objects)
}

/// One document, cut out of the file so that a fault in it is found without the others, and so that the
/// parser's limits hold for each alone.
#[derive(Debug, PartialEq, Eq)]
struct Document<'a> {
    text: &'a str,
    /// Lines of the file before it.
    lines_before: usize,
}

/// Cuts a file at its `---` and `...` lines. YAML forbids these at the start of a line anywhere but between
/// documents, even inside block and quoted text, so no parser is needed for it.
fn documents(text: &str) -> Vec<Document<'_>> {
    let mut found = Vec::new();
    let mut open = Span::default();
    let mut at = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let begins = is_marker(line, "---");
        // Comments and directives before a `---` belong to the document it begins.
        if begins && (open.has_content || open.has_marker) {
            found.push(open.replace_at(at, number));
        }
        at += line.len();
        open.end = at;
        open.has_marker |= begins;
        open.has_content |= if begins {
            has_text_after_marker(line)
        } else {
            is_content(line)
        };
        if is_marker(line, "...") {
            found.push(open.replace_at(at, number + 1));
        }
    }
    found.push(open);
    found
        .iter()
        .filter(|span| span.has_content)
        .filter_map(|span| span.cut(text))
        .collect()
}

/// A document while it is being looked for.
#[derive(Default)]
struct Span {
    start: usize,
    end: usize,
    lines_before: usize,
    has_marker: bool,
    has_content: bool,
}

impl Span {
    /// The document is over; the next one starts here.
    fn replace_at(&mut self, start: usize, lines_before: usize) -> Self {
        let next = Self {
            start,
            end: start,
            lines_before,
            ..Self::default()
        };
        std::mem::replace(self, next)
    }

    fn cut<'a>(&self, text: &'a str) -> Option<Document<'a>> {
        let text = text.get(self.start..self.end)?;
        Some(Document {
            text,
            lines_before: self.lines_before,
        })
    }
}

fn is_marker(line: &str, marker: &str) -> bool {
    line.strip_prefix(marker)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

/// Whether a line holds more than a marker, a comment, a directive or nothing.
fn is_content(line: &str) -> bool {
    let trimmed = line.trim();
    let is_comment = trimmed.is_empty() || trimmed.starts_with('#');
    !is_comment && !line.starts_with('%') && !is_marker(line, "---") && !is_marker(line, "...")
}

fn has_text_after_marker(line: &str) -> bool {
    let rest = line.get(3..).unwrap_or_default().trim();
    !rest.is_empty() && !rest.starts_with('#')
}

impl Document<'_> {
    fn decode(&self, objects: &mut Vec<Decoded>) -> Result<(), DecodeError> {
        let Some((head, line)) = self.head()? else {
            return Ok(());
        };
        match kind_or_fault(head.role(), line)? {
            Role::Object(kind) => {
                let object = self.read(|value| typed(kind, value))?;
                objects.push(admit(object, line)?);
                Ok(())
            }
            Role::List => self.decode_list(&head, objects),
            Role::Skipped => Ok(()),
        }
    }

    /// What the document is, and its line in the file; `None` for a null. What will not be read any further is
    /// read through here, since a fault in it is a fault of the file all the same.
    fn head(&self) -> Result<Option<(Head, usize)>, DecodeError> {
        if let Some((head, line)) = peek::head(self.text)
            && matches!(head.role(), Ok(Role::Object(_) | Role::List))
        {
            return Ok(Some((head, self.lines_before + line)));
        }
        let head: Spanned<Option<Head>> = self.read(|value| Deserialize::deserialize(value))?;
        let line = self.line(head.referenced.line());
        Ok(head.value.map(|head| (head, line)))
    }

    /// Reads a list twice more: for the kinds of its entries, then every entry as its kind.
    fn decode_list(&self, list: &Head, objects: &mut Vec<Decoded>) -> Result<(), DecodeError> {
        let heads: ItemHeads = self.read(|value| Deserialize::deserialize(value))?;
        let mut lines = Vec::new();
        let mut kinds = Vec::new();
        for (index, item) in heads.items.unwrap_or_default().iter().enumerate() {
            let line = self.line(item.referenced.line());
            let role = kind_or_fault(list.role_of_item(&item.value), line)
                .map_err(|fault| fault.in_item(index))?;
            let kind = match role {
                Role::Object(kind) => Some(kind),
                Role::List | Role::Skipped => None,
            };
            lines.extend(kind.map(|_| line));
            kinds.push(kind);
        }
        let items = self.read(|value| value.deserialize_map(ListVisitor(&kinds)))?;
        for (object, line) in items.into_iter().zip(lines) {
            objects.push(admit(object, line)?);
        }
        Ok(())
    }

    fn read<T, F>(&self, read: F) -> Result<T, DecodeError>
    where
        for<'de, 'e> F: FnOnce(serde_saphyr::Deserializer<'de, 'e>) -> Result<T, Error>,
    {
        serde_saphyr::with_deserializer_from_str_with_options(self.text, options(), read)
            .map_err(|error| self.fault(&error))
    }

    fn fault(&self, error: &Error) -> DecodeError {
        let what = printable(&UserMessageFormatter.format_message(error));
        let Some(place) = error.location() else {
            return DecodeError::new(self.line(1), what);
        };
        // The end of the text is reported as the line after the last, which does not exist.
        let last = self.text.lines().count().max(1);
        let in_document = usize::try_from(place.line()).unwrap_or(last).clamp(1, last);
        let column = usize::try_from(place.column()).unwrap_or(1).max(1);
        DecodeError {
            line: self.lines_before + in_document,
            column: Some(column),
            field: field::at(self.text, in_document, column),
            what,
        }
    }

    /// The line in the file.
    fn line(&self, in_document: u64) -> usize {
        self.lines_before + usize::try_from(in_document).unwrap_or(1).max(1)
    }
}

/// Limits for one document. Its size is bounded by the file's, so nodes need no bound of their own (a `List` may
/// hold a whole cluster); what can grow beyond the text are aliases, and those keep theirs.
fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: usize::MAX,
            max_nodes: usize::MAX,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 100_000,
        },
        emit_comments: false,
        with_snippet: false,
    }
}

fn kind_or_fault(role: Result<Role, &str>, line: usize) -> Result<Role, DecodeError> {
    role.map_err(|what| DecodeError {
        field: Some("kind".to_owned()),
        ..DecodeError::new(line, what)
    })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ItemHeads {
    items: Option<Vec<Spanned<Head>>>,
}

/// Reads a list whose entries are of these kinds; `None` is skipped.
struct ListVisitor<'k>(&'k [Option<Kind>]);

impl<'de> Visitor<'de> for ListVisitor<'_> {
    type Value = Vec<Object>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut objects = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            // With no entries there may be a null, which is no sequence.
            if key == "items" && !self.0.is_empty() {
                objects = map.next_value_seed(Items(self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(objects)
    }
}

struct Items<'k>(&'k [Option<Kind>]);

impl<'de> DeserializeSeed<'de> for Items<'_> {
    type Value = Vec<Object>;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<Self::Value, D::Error> {
        value.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Items<'_> {
    type Value = Vec<Object>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the entries of a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut objects = Vec::new();
        for kind in self.0 {
            match kind {
                Some(kind) => objects.extend(entries.next_element_seed(Entry(*kind))?),
                None => drop(entries.next_element::<IgnoredAny>()?),
            }
        }
        // A sequence left before its end is an error to some formats.
        while entries.next_element::<IgnoredAny>()?.is_some() {}
        Ok(objects)
    }
}

struct Entry(Kind);

impl<'de> DeserializeSeed<'de> for Entry {
    type Value = Object;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<Self::Value, D::Error> {
        typed(self.0, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> Vec<(&str, usize)> {
        documents(text)
            .into_iter()
            .map(|document| (document.text, document.lines_before))
            .collect()
    }

    #[test]
    fn documents_are_cut_at_markers() {
        assert_eq!(
            cut("a: 1\n---\nb: 2\n"),
            [("a: 1\n", 0), ("---\nb: 2\n", 1)]
        );
        assert_eq!(
            cut("a: 1\n...\nb: 2\n"),
            [("a: 1\n...\n", 0), ("b: 2\n", 2)]
        );
        assert_eq!(cut("a: |\n  ---\n"), [("a: |\n  ---\n", 0)]);
        assert_eq!(
            cut("--- {a: 1}\n--- # two\nb: 1"),
            [("--- {a: 1}\n", 0), ("--- # two\nb: 1", 1)]
        );
    }

    #[test]
    fn documents_without_content_are_left_out() {
        assert_eq!(cut(""), []);
        assert_eq!(cut("# only a comment\n---\n\n---\n---\r\n# more\n"), []);
        assert_eq!(cut("---\n---\na: 1\n"), [("---\na: 1\n", 1)]);
    }

    #[test]
    fn comments_and_directives_belong_to_the_document_they_precede() {
        assert_eq!(
            cut("%YAML 1.2\n# c\n---\na: 1\n"),
            [("%YAML 1.2\n# c\n---\na: 1\n", 0)]
        );
    }
}
