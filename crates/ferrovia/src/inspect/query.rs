//! Looking without touching: what people ask, by a command or through the admin API, and the answers, which are the same either way.
//!
//! `packet.rs` reads the packet a question is about, `resolve.rs` finds its addresses and `relevance.rs` which objects matter to it; [`trace`]
//! follows it and looks into the kernel.
//! [`plan`] tells what would be written, [`diff`] where the kernel is not as wanted. Commands print what they get, whether they
//! worked it out themselves from objects they read or asked the daemon for it.

pub mod diff;
mod packet;
pub mod plan;
mod relevance;
mod resolve;
pub mod trace;

pub use self::packet::{Question, protocol, service_name};
pub use self::relevance::Relevance;
pub use self::resolve::unknown_service;

/// Why a question has no answer, and what to try.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}; {hint}")]
pub struct Unanswered {
    /// Whether the question or the world is to blame.
    pub kind: Why,
    /// What is wrong.
    pub error: String,
    /// What to try.
    pub hint: String,
}

/// Whether the question or the world is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The question makes no sense, or has several.
    Nonsense,
    /// What is asked about does not exist.
    Unknown,
}

impl Unanswered {
    fn nonsense(error: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            kind: Why::Nonsense,
            error: error.into(),
            hint: hint.into(),
        }
    }

    fn unknown(error: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            kind: Why::Unknown,
            ..Self::nonsense(error, hint)
        }
    }
}
