//! JSON: documents one after the other, objects or lists of them.

use ferrovia_core::wire::Kind;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{DecodeError, Decoded, Head, Role, admit, field, line_breaks, printable, typed};

pub(super) fn decode(text: &str) -> Result<Vec<Decoded>, DecodeError> {
    let mut found = Found {
        text,
        objects: Vec::new(),
        counted: 0,
        line: 1,
    };
    let documents = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    for document in documents {
        // A syntax error of the stream stands where the whole text says; there is no field to name yet.
        let document = document.map_err(|error| DecodeError {
            column: Some(error.column().max(1)),
            ..DecodeError::new(
                error.line().clamp(1, 1 + line_breaks(text.as_bytes())),
                what(&error),
            )
        })?;
        found.document(document.get())?;
    }
    Ok(found.objects)
}

/// The entries of a list, not looked at yet.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Items<'a> {
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

/// What was found so far. Line numbers are counted along the way: documents come in the order of the text.
struct Found<'a> {
    text: &'a str,
    objects: Vec<Decoded>,
    counted: usize,
    line: usize,
}

impl<'a> Found<'a> {
    fn document(&mut self, document: &'a str) -> Result<(), DecodeError> {
        let Some(head) = self.read::<Option<Head>>(document)? else {
            return Ok(());
        };
        let role = head.role();
        match self.or_kind_fault(document, role)? {
            Role::Object(kind) => self.object(document, kind),
            Role::Skipped => Ok(()),
            Role::List => {
                let list: Items<'a> = self.read(document)?;
                for (index, item) in list.items.unwrap_or_default().iter().enumerate() {
                    self.item(&head, item.get())
                        .map_err(|fault| fault.in_item(index))?;
                }
                Ok(())
            }
        }
    }

    fn item(&mut self, list: &Head, item: &'a str) -> Result<(), DecodeError> {
        let role = list.role_of_item(&self.read(item)?);
        match self.or_kind_fault(item, role)? {
            Role::Object(kind) => self.object(item, kind),
            Role::List | Role::Skipped => Ok(()),
        }
    }

    fn object(&mut self, part: &'a str, kind: Kind) -> Result<(), DecodeError> {
        let object = typed(kind, &mut serde_json::Deserializer::from_str(part))
            .map_err(|error| self.fault(part, &error))?;
        let line = self.line_of(part);
        self.objects.push(admit(object, line)?);
        Ok(())
    }

    fn read<T: Deserialize<'a>>(&self, part: &'a str) -> Result<T, DecodeError> {
        serde_json::from_str(part).map_err(|error| self.fault(part, &error))
    }

    fn or_kind_fault<T>(&self, part: &str, role: Result<T, &str>) -> Result<T, DecodeError> {
        role.map_err(|what| DecodeError {
            field: Some("kind".to_owned()),
            ..DecodeError::new(1 + line_breaks(self.before(part).as_bytes()), what)
        })
    }

    fn line_of(&mut self, part: &str) -> usize {
        let start = self.before(part).len();
        let between = self.text.get(self.counted..start).unwrap_or_default();
        self.line += line_breaks(between.as_bytes());
        self.counted = start;
        self.line
    }

    /// Turns a place in a part into one in the file.
    fn fault(&self, part: &str, error: &serde_json::Error) -> DecodeError {
        let before = self.before(part);
        let lines_before = line_breaks(before.as_bytes());
        let in_part = part
            .lines()
            .nth(error.line().saturating_sub(1))
            .unwrap_or_default();
        // serde_json counts bytes; people and editors count characters.
        let column = in_part
            .char_indices()
            .take_while(|(at, _)| *at < error.column())
            .count()
            .max(1);
        let indent = if error.line() <= 1 {
            before
                .rsplit('\n')
                .next()
                .unwrap_or_default()
                .chars()
                .count()
        } else {
            0
        };
        DecodeError {
            line: lines_before + error.line().max(1),
            column: Some(indent + column),
            field: field::at(part, error.line(), column),
            what: what(error),
        }
    }

    /// The text before a part of it, known by where the part lies in memory.
    fn before(&self, part: &str) -> &'a str {
        let start = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        self.text.get(..start).unwrap_or_default()
    }
}

/// The message without the place, which is relative to a part and given apart.
fn what(error: &serde_json::Error) -> String {
    let full = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    printable(full.strip_suffix(&place).unwrap_or(&full))
}
