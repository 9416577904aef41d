//! What the author of the manifests should know.

use std::fmt;
use std::path::{Path, PathBuf};

use super::decode::DecodeError;

/// How much a [`Problem`] matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Good news, such as a file that was mended.
    Info,
    /// Something was left out on purpose.
    Warning,
    /// Something is broken; the last good state stays in force.
    Error,
}

/// One message about one file or folder. The caller logs it; nothing in this module does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    /// How much it matters.
    pub severity: Severity,
    /// The file or folder it is about.
    pub path: PathBuf,
    /// Line in the file, from 1.
    pub line: Option<usize>,
    /// Column in the line, from 1.
    pub column: Option<usize>,
    /// The field, as in `spec.ports[0].port`.
    pub field: Option<String>,
    /// What is the matter.
    pub what: String,
}

impl Problem {
    pub(super) fn error(path: &Path, what: impl Into<String>) -> Self {
        Self::about(Severity::Error, path, what)
    }

    pub(super) fn warning(path: &Path, what: impl Into<String>) -> Self {
        Self::about(Severity::Warning, path, what)
    }

    pub(super) fn info(path: &Path, what: impl Into<String>) -> Self {
        Self::about(Severity::Info, path, what)
    }

    /// The file could not be understood. Says what that means for its objects, since it is not obvious that one
    /// bad document holds back the good ones beside it.
    pub(super) fn undecodable(path: &Path, error: DecodeError) -> Self {
        Self {
            line: Some(error.line),
            column: error.column,
            field: error.field,
            ..Self::error(
                path,
                format!("{}; the whole file keeps its last good state", error.what),
            )
        }
    }

    pub(super) fn at_line(self, line: usize) -> Self {
        Self {
            line: Some(line),
            ..self
        }
    }

    fn about(severity: Severity, path: &Path, what: impl Into<String>) -> Self {
        Self {
            severity,
            path: path.to_owned(),
            line: None,
            column: None,
            field: None,
            what: what.into(),
        }
    }
}

/// `path:line:column: field: what`, which editors and terminals turn into a link.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        for number in [self.line, self.column].into_iter().flatten() {
            write!(f, ":{number}")?;
        }
        if let Some(field) = &self.field {
            write!(f, ": {field}")?;
        }
        write!(f, ": {}", self.what)
    }
}
