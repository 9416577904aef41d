//! The report for people: worst first, a line for what is well, three for what is not.

use std::fmt::{self, Write as _};

use super::finding::{Area, Finding, Report, Severity};
use crate::inspect::wrap::hanging;

/// Where a finding's text begins: behind the longest word for how bad it is.
const INDENT: usize = 11;

/// Whether to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// For a terminal.
    On,
    /// For anything else.
    Off,
}

/// A report as text.
#[derive(Clone, Copy, Debug)]
pub struct Text<'r> {
    /// What is told.
    pub report: &'r Report,
    /// How.
    pub colour: Colour,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", summary(self.report))?;
        for (area, findings) in grouped(&self.report.findings) {
            writeln!(f, "\n{}", self.bold(area.name()))?;
            for finding in findings {
                self.finding(f, finding)?;
            }
        }
        if !self.report.unseen.is_empty() {
            writeln!(f, "\n{}", self.bold("Not looked at"))?;
            for unseen in &self.report.unseen {
                let line = format!("{}: {}", unseen.what, unseen.why);
                write!(f, "{}", hanging(&format!("  {:<9}", "?"), &line))?;
            }
        }
        Ok(())
    }
}

impl Text<'_> {
    fn finding(&self, f: &mut fmt::Formatter<'_>, finding: &Finding) -> fmt::Result {
        let word = format!("  {:<9}", finding.severity.name());
        let text = hanging(&word, &finding.what);
        let rest = text.strip_prefix(&word).unwrap_or_default();
        write!(f, "{}{rest}", self.coloured(&word, finding.severity))?;
        let label = |name: &str| format!("{:INDENT$}{name:<5}", "");
        for (name, text) in [("why", &finding.why), ("do", &finding.remedy)] {
            if !text.is_empty() {
                write!(f, "{}", hanging(&label(name), text))?;
            }
        }
        Ok(())
    }

    fn coloured(&self, text: &str, severity: Severity) -> String {
        let code = match severity {
            Severity::Ok => "32",
            Severity::Note => "36",
            Severity::Warning => "33",
            Severity::Problem => "1;31",
        };
        self.with_code(text, code)
    }

    fn bold(&self, text: &str) -> String {
        self.with_code(text, "1")
    }

    fn with_code(&self, text: &str, code: &str) -> String {
        match self.colour {
            Colour::On => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            Colour::Off => text.to_owned(),
        }
    }
}

/// All of it in one line.
pub fn summary(report: &Report) -> String {
    let count = |severity, one: &str, many: &str| {
        let count = report.count(severity);
        match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            _ => Some(format!("{count} {many}")),
        }
    };
    let bad: Vec<_> = [
        count(Severity::Problem, "problem", "problems"),
        count(Severity::Warning, "warning", "warnings"),
        count(Severity::Note, "note", "notes"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let found = if bad.is_empty() {
        "nothing found that is wrong".to_owned()
    } else {
        bad.join(", ")
    };
    let mut line = match report.count(Severity::Ok) {
        1 => format!("{found}; 1 thing is as it should be"),
        well => format!("{found}; {well} things are as they should be"),
    };
    if !report.unseen.is_empty() {
        let _ = write!(line, "; {} could not be looked at", report.unseen.len());
    }
    line
}

/// The areas, those with the worst findings first; in each the worst first.
fn grouped(findings: &[Finding]) -> Vec<(Area, Vec<&Finding>)> {
    let mut areas: Vec<(Area, Vec<&Finding>)> = Vec::new();
    for severity in Severity::WORST_FIRST {
        for finding in findings
            .iter()
            .filter(|finding| finding.severity == severity)
        {
            match areas.iter_mut().find(|(area, _)| *area == finding.area) {
                Some((_, group)) => group.push(finding),
                None => areas.push((finding.area, vec![finding])),
            }
        }
    }
    areas
}
