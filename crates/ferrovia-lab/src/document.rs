//! A text of named sections that is written back byte for byte.
//!
//! ```text
//! # What the case tests.
//! -- name --
//! any text, up to the next header
//! ```
//!
//! [`crate::case`] interprets the sections.

use std::fmt;

/// A text split at its headers. Printing it returns the same text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Document {
    preamble: String,
    sections: Vec<Section>,
}

/// One named part of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    name: String,
    /// The header line as written, with its line ending.
    header: String,
    line: usize,
    body: String,
}

/// A syntax error and its line, counted from one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl SyntaxError {
    pub(crate) fn at(line: usize, what: impl Into<String>) -> Self {
        Self {
            line,
            what: what.into(),
        }
    }
}

impl Document {
    /// Splits a text at its headers.
    pub(crate) fn parse(text: &str) -> Result<Self, SyntaxError> {
        let mut document = Self {
            preamble: String::new(),
            sections: vec![],
        };
        for (index, line) in text.split_inclusive('\n').enumerate() {
            match header_name(line).map_err(|what| SyntaxError::at(index + 1, what))? {
                Some(name) => document.open_section(name, line, index + 1)?,
                None => document.last_text().push_str(line),
            }
        }
        Ok(document)
    }

    /// The text before the first section.
    pub(crate) fn preamble(&self) -> &str {
        &self.preamble
    }

    /// All sections, in order.
    pub(crate) fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// The section with this name.
    pub(crate) fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// Replaces the text of a section; the blank lines before the next section stay.
    ///
    /// A missing section is inserted before the section `before`, or at the end.
    pub(crate) fn replace(&mut self, name: &str, text: &str, before: Option<&str>) {
        if let Some(section) = self
            .sections
            .iter_mut()
            .find(|section| section.name == name)
        {
            let gap = section.body.get(section.text().len()..).unwrap_or_default();
            section.body = with_line_end(text) + gap;
            return;
        }
        let position = before
            .and_then(|next| {
                self.sections
                    .iter()
                    .position(|section| section.name == next)
            })
            .unwrap_or(self.sections.len());
        self.finish_last_line();
        let section = Section {
            name: name.to_owned(),
            header: format!("-- {name} --\n"),
            line: 0,
            body: with_line_end(text),
        };
        self.sections.insert(position, section);
    }

    fn open_section(&mut self, name: &str, header: &str, line: usize) -> Result<(), SyntaxError> {
        if let Some(first) = self.section(name) {
            let what = format!(
                "duplicate section \"{name}\", first defined in line {}",
                first.line
            );
            return Err(SyntaxError::at(line, what));
        }
        let (name, header) = (name.to_owned(), header.to_owned());
        self.sections.push(Section {
            name,
            header,
            line,
            body: String::new(),
        });
        Ok(())
    }

    /// The text to which a line that is not a header belongs.
    fn last_text(&mut self) -> &mut String {
        match self.sections.last_mut() {
            Some(section) => &mut section.body,
            None => &mut self.preamble,
        }
    }

    /// Adds a missing line ending to the last line, so that a header can follow.
    fn finish_last_line(&mut self) {
        let text = self.last_text();
        if !text.is_empty() {
            *text = with_line_end(text);
        }
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.preamble)?;
        for section in &self.sections {
            f.write_str(&section.header)?;
            f.write_str(&section.body)?;
        }
        Ok(())
    }
}

impl Section {
    /// The name in the header.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The line of the header, counted from one.
    pub(crate) fn line(&self) -> usize {
        self.line
    }

    /// The text without trailing blank lines.
    pub(crate) fn text(&self) -> &str {
        let trimmed = self.body.trim_end();
        // The line ending of the last line is part of the text.
        let end = self
            .body
            .get(trimmed.len()..)
            .and_then(|rest| rest.find('\n'));
        match end {
            Some(end) if !trimmed.is_empty() => {
                self.body.get(..=trimmed.len() + end).unwrap_or(&self.body)
            }
            _ => trimmed,
        }
    }

    /// The lines of the text with their numbers in the document.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text()
            .lines()
            .enumerate()
            .map(|(index, line)| (self.line + 1 + index, line))
    }
}

/// The name in a header line, if the line is one: `-- name --`.
fn header_name(line: &str) -> Result<Option<&str>, String> {
    let line = line.trim_end();
    let Some(rest) = line.strip_prefix("-- ") else {
        return Ok(None);
    };
    let name = rest.strip_suffix(" --").map(str::trim).unwrap_or_default();
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    // Text that begins like a header is a mistake, not text.
    if name.is_empty() || !name.chars().all(fits) {
        return Err(format!(
            "invalid header \"{line}\": expected \"-- name --\""
        ));
    }
    Ok(Some(name))
}

fn with_line_end(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') {
        text.to_owned()
    } else {
        format!("{text}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Title.\n\n-- a --\none\n---\ntwo\n\n\n--  b  -- \r\n\n-- c.v4 --\nlast";

    #[test]
    fn prints_the_text_that_was_parsed() {
        assert_eq!(Document::parse(TEXT).unwrap().to_string(), TEXT);
    }

    #[test]
    fn records_line_numbers_of_sections() {
        let document = Document::parse(TEXT).unwrap();
        let a = document.section("a").unwrap();
        assert_eq!((a.line(), a.text()), (3, "one\n---\ntwo\n"));
        assert_eq!(a.lines().last(), Some((6, "two")));
        assert_eq!(document.section("b").unwrap().text(), "");
        assert_eq!(document.section("c.v4").unwrap().text(), "last");
    }

    #[test]
    fn replaces_only_the_named_section() {
        let mut document = Document::parse(TEXT).unwrap();
        document.replace("a", "new", None);
        assert_eq!(
            document.to_string(),
            TEXT.replace("one\n---\ntwo\n", "new\n")
        );
    }

    #[test]
    fn replacing_a_section_with_its_own_text_changes_nothing() {
        let mut document = Document::parse(TEXT).unwrap();
        for name in ["a", "b"] {
            let text = document.section(name).unwrap().text().to_owned();
            document.replace(name, &text, None);
        }
        assert_eq!(document.to_string(), TEXT);
    }

    #[test]
    fn inserts_a_new_section_before_the_given_one() {
        let mut document = Document::parse("-- a --\n1\n-- b --\n2").unwrap();
        document.replace("x", "new\n", Some("b"));
        document.replace("y", "end\n", None);
        let expected = "-- a --\n1\n-- x --\nnew\n-- b --\n2\n-- y --\nend\n";
        assert_eq!(document.to_string(), expected);
    }

    #[test]
    fn reports_invalid_headers_and_duplicate_sections() {
        let problem = Document::parse("x\n-- two words --\n").unwrap_err();
        assert_eq!(problem.line, 2);
        let problem = Document::parse("-- a --\n-- a --\n").unwrap_err();
        assert_eq!((problem.line, problem.what.contains("line 1")), (2, true));
    }
}
