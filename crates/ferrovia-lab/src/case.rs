//! A test case: one file that describes, step by step, the objects of a cluster and how packets must be forwarded.
//!
//! | section | meaning |
//! |---|---|
//! | text before the first section | the title, in lines that begin with `#` |
//! | `node.yaml` | options of the node under test, `key: value` lines |
//! | `step1.yaml`, `step2.yaml`, ... | manifests that are added or changed in that step |
//! | `flows`, `flows.2`, ... | calls after the step and their outcomes, see [`crate::flow`] |
//! | `flows.<mode>`, `flows.<mode>.2`, ... | the flows of a mode that differs |
//! | any other, `nft.v4`, `nft.v4.2`, ... | an expected text after the step |
//!
//! A section without a number belongs to the first step. The runner interprets options and expected
//! texts.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::document::{Document, Section, SyntaxError};
use crate::flow::{self, Line};

/// A parsed case.
#[derive(Clone, Debug)]
pub struct Case {
    pub file: PathBuf,
    /// What the case tests.
    pub title: String,
    /// The options of the node under test.
    pub node: NodeOptions,
    /// The steps, at least one.
    pub steps: Vec<Step>,
    document: Document,
}

/// The `node.yaml` section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeOptions {
    /// The text of the section.
    pub text: String,
    /// The options by name.
    pub options: BTreeMap<String, String>,
}

/// One step of a case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    pub yaml: String,
    /// The line in the file at which they begin, for error messages.
    pub yaml_line: usize,
    /// The sections with an expected text, by name without the step's number.
    pub expected: BTreeMap<String, String>,
    flows: Vec<Line>,
    flows_of_mode: BTreeMap<String, Vec<Line>>,
}

impl Step {
    /// The flows to run after the step: those of the first of these modes that has its own, otherwise the common ones.
    pub fn flows(&self, modes: &[&str]) -> &[Line] {
        let own = modes.iter().find_map(|mode| self.flows_of_mode.get(*mode));
        own.unwrap_or(&self.flows)
    }

    /// Whether the step has flows of this mode.
    pub fn has_flows_of(&self, mode: &str) -> bool {
        self.flows_of_mode.contains_key(mode)
    }
}

/// Why a case cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("{}: {source}", file.display())]
    Read { file: PathBuf, source: io::Error },
    /// The text is not a valid case.
    #[error("{}:{line}: {what}", file.display())]
    Parse {
        file: PathBuf,
        /// The line, counted from one.
        line: usize,
        /// What is wrong there.
        what: String,
    },
}

impl Case {
    /// Reads a case from a file.
    pub fn read(file: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(file).map_err(|source| Error::Read {
            file: file.to_owned(),
            source,
        })?;
        Self::parse(file, &text)
    }

    /// Reads a case from a text; the file's name is for messages.
    pub fn parse(file: &Path, text: &str) -> Result<Self, Error> {
        Self::parse_document(file, text).map_err(|SyntaxError { line, what }| Error::Parse {
            file: file.to_owned(),
            line,
            what,
        })
    }

    /// Sets the expected text of a step (counted from one) in the file's text.
    pub fn set_expected(&mut self, step: usize, name: &str, text: &str) {
        let section = numbered(name, step);
        self.document
            .replace(&section, text, Some(&manifests(step + 1)));
        if let Some(step) = step
            .checked_sub(1)
            .and_then(|index| self.steps.get_mut(index))
        {
            step.expected.insert(name.to_owned(), text.to_owned());
        }
    }

    /// The file's text: as read, except for expected texts that were set.
    pub fn text(&self) -> String {
        self.document.to_string()
    }

    fn parse_document(file: &Path, text: &str) -> Result<Self, SyntaxError> {
        let document = Document::parse(text)?;
        let title = parse_title(document.preamble())?;
        let mut steps = find_steps(&document)?;
        let mut node = NodeOptions::default();
        for section in document.sections() {
            if section.name() == "node.yaml" {
                node = parse_node(section)?;
            } else if step_of_manifests(section.name()).is_none() {
                let (base, number) = split_number(section.name());
                let step = number
                    .checked_sub(1)
                    .and_then(|index| steps.get_mut(index))
                    .ok_or_else(|| SyntaxError::at(section.line(), no_step(number)))?;
                step.take(base, section)?;
            }
        }
        Ok(Self {
            file: file.to_owned(),
            title,
            node,
            steps,
            document,
        })
    }
}

impl Step {
    /// Adds a section of this step, by its name without the number.
    fn take(&mut self, base: &str, section: &Section) -> Result<(), SyntaxError> {
        if base == "flows" {
            self.flows = flow::parse_section(section)?;
        } else if let Some(mode) = base.strip_prefix("flows.") {
            self.flows_of_mode
                .insert(mode.to_owned(), flow::parse_section(section)?);
        } else {
            self.expected
                .insert(base.to_owned(), section.text().to_owned());
        }
        Ok(())
    }
}

fn parse_title(preamble: &str) -> Result<String, SyntaxError> {
    let mut title = vec![];
    for (index, line) in preamble
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let words = line.strip_prefix('#').ok_or_else(|| {
            SyntaxError::at(
                index + 1,
                "expected only lines with # before the first section",
            )
        })?;
        title.push(words.trim());
    }
    if title.is_empty() {
        return Err(SyntaxError::at(
            1,
            "missing title: a case begins with \"# what it tests\"",
        ));
    }
    Ok(title.join(" "))
}

/// Finds the manifests of all steps, which must be numbered in order.
fn find_steps(document: &Document) -> Result<Vec<Step>, SyntaxError> {
    let mut steps = vec![];
    for section in document.sections() {
        let Some(number) = step_of_manifests(section.name()) else {
            continue;
        };
        if number != steps.len() + 1 {
            let what = format!("expected {} here", manifests(steps.len() + 1));
            return Err(SyntaxError::at(section.line(), what));
        }
        steps.push(Step {
            yaml: section.text().to_owned(),
            yaml_line: section.line() + 1,
            ..Step::default()
        });
    }
    if steps.is_empty() {
        Err(SyntaxError::at(1, no_step(1)))
    } else {
        Ok(steps)
    }
}

fn parse_node(section: &Section) -> Result<NodeOptions, SyntaxError> {
    let mut options = BTreeMap::new();
    for (number, line) in section.lines() {
        // A comment begins the line or follows a space: a value may contain a #.
        let content = line.split(" #").next().unwrap_or_default().trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let (key, value) = content
            .split_once(':')
            .ok_or_else(|| SyntaxError::at(number, "expected \"key: value\""))?;
        let value = unquoted(value.trim());
        if options
            .insert(key.trim().to_owned(), value.to_owned())
            .is_some()
        {
            return Err(SyntaxError::at(
                number,
                format!("duplicate option {}", key.trim()),
            ));
        }
    }
    Ok(NodeOptions {
        text: section.text().to_owned(),
        options,
    })
}

fn unquoted(value: &str) -> &str {
    value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(value)
}

/// `nft.v4.2` is `nft.v4` of step 2; a name without a number is of step 1.
fn split_number(name: &str) -> (&str, usize) {
    name.rsplit_once('.')
        .and_then(|(base, number)| Some((base, number.parse().ok()?)))
        .unwrap_or((name, 1))
}

fn numbered(name: &str, step: usize) -> String {
    if step == 1 {
        name.to_owned()
    } else {
        format!("{name}.{step}")
    }
}

fn manifests(step: usize) -> String {
    format!("step{step}.yaml")
}

fn step_of_manifests(name: &str) -> Option<usize> {
    name.strip_prefix("step")?
        .strip_suffix(".yaml")?
        .parse()
        .ok()
}

fn no_step(number: usize) -> String {
    format!("missing section {}", manifests(number))
}

#[cfg(test)]
mod tests;
