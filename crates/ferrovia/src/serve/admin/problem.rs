//! Why a question has no answer, and what to try instead.

use http::StatusCode;
use serde::Serialize;

use crate::inspect::query::{Unanswered, Why};

/// What is told in place of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) code: StatusCode,
    pub(super) error: String,
    pub(super) hint: String,
}

#[derive(Serialize)]
struct Body<'a> {
    version: &'static str,
    error: &'a str,
    r#try: &'a str,
}

impl From<Unanswered> for Problem {
    fn from(unanswered: Unanswered) -> Self {
        let Unanswered { kind, error, hint } = unanswered;
        match kind {
            Why::Nonsense => Self::bad(error, hint),
            Why::Unknown => Self::missing(error, hint),
        }
    }
}

impl Problem {
    /// The question makes no sense.
    pub(super) fn bad(error: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error, hint)
    }

    /// What is asked about does not exist.
    pub(super) fn missing(error: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, error, hint)
    }

    /// It could be answered, only not now.
    pub(super) fn busy(error: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error, hint)
    }

    pub(super) fn new(code: StatusCode, error: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            code,
            error: error.into(),
            hint: hint.into(),
        }
    }

    /// As JSON.
    pub(super) fn body(&self) -> String {
        let body = Body {
            version: super::VERSION,
            error: &self.error,
            r#try: &self.hint,
        };
        // Texts always serialise.
        serde_json::to_string(&body).unwrap_or_default()
    }
}
