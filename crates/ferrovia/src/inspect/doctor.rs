//! What is wrong with this node, as far as Services are concerned; `ferrovia doctor`.
//!
//! [`gather()`] looks at the node and makes [`Facts`], plain values. The checks are pure functions from facts to [`Finding`]s: what, why it
//! matters, what to do. [`selftest`] makes connections in a network of its own. Nothing of the node is changed.

mod checks;
pub mod facts;
pub mod finding;
pub mod gather;
pub mod owners;
pub mod selftest;
pub mod text;

#[cfg(test)]
mod tests;

pub use facts::{Facts, NodePort};
pub use finding::{Area, Finding, Report, Severity, Unseen};
pub use gather::{Asked, gather};

/// What is to be said about a node.
pub fn examine(facts: &Facts) -> Report {
    Report {
        findings: checks::all(facts),
        unseen: facts.unseen.clone(),
    }
}

/// The report for programs.
pub fn to_json(report: &Report) -> serde_json::Value {
    serde_json::json!({
        "summary": text::summary(report),
        "problems": report.count(Severity::Problem),
        "warnings": report.count(Severity::Warning),
        "notes": report.count(Severity::Note),
        "exitCode": report.exit_code(),
        "findings": report.findings,
        "notLookedAt": report.unseen,
    })
}
