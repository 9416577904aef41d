//! What was found, in words.

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Good to know; nothing has to be done.
    Note,
    /// Some traffic may not get where it should, now or later.
    Warning,
    /// Some traffic does not.
    Problem,
}

impl Severity {
    /// From bad to good.
    pub const WORST_FIRST: [Self; 4] = [Self::Problem, Self::Warning, Self::Note, Self::Ok];

    /// The word people read.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Problem => "PROBLEM",
        }
    }
}

/// What part of a node a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Area {
    /// What the kernel can do.
    Kernel,
    /// Kernel settings.
    Settings,
    /// The table of connections.
    Conntrack,
    /// Rules of others.
    Rules,
    /// What predecessors left, and who else does our work.
    Proxies,
    /// Ports that two want.
    Ports,
    /// Interfaces and the size of packets.
    Interfaces,
    /// Connections made to see whether they work.
    SelfTest,
}

impl Area {
    /// The heading people read.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "Kernel",
            Self::Settings => "Kernel settings",
            Self::Conntrack => "Connection tracking",
            Self::Rules => "Rules of others",
            Self::Proxies => "Other proxies",
            Self::Ports => "Node ports",
            Self::Interfaces => "Interfaces",
            Self::SelfTest => "Self-test",
        }
    }
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A name for programs, which does not change: `settings/ip-forward`.
    pub check: &'static str,
    /// What it is about.
    pub area: Area,
    /// How bad it is.
    pub severity: Severity,
    /// What is the matter.
    pub what: String,
    /// Why that matters; empty if all is well.
    pub why: String,
    /// What to do; empty if nothing.
    #[serde(rename = "do")]
    pub remedy: String,
}

/// Something that could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unseen {
    /// What it is.
    pub what: String,
    /// Why not, and what would help.
    pub why: String,
    /// Without it nobody can say that the node is well.
    pub essential: bool,
}

/// All that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What was found, in the order of the checks.
    pub findings: Vec<Finding>,
    /// What could not be looked at.
    pub unseen: Vec<Unseen>,
}

impl Report {
    /// How many findings are so bad.
    pub fn count(&self, severity: Severity) -> usize {
        let alike = self.findings.iter();
        alike.filter(|finding| finding.severity == severity).count()
    }

    /// What the program ends with: 0 if nothing is worse than a note, 1 for warnings, 2 for problems, and 3 if nothing bad was found, but
    /// not everything that matters could be looked at.
    pub fn exit_code(&self) -> u8 {
        let worst = self.findings.iter().map(|finding| finding.severity).max();
        match worst {
            Some(Severity::Problem) => 2,
            Some(Severity::Warning) => 1,
            _ if self.unseen.iter().any(|unseen| unseen.essential) => 3,
            _ => 0,
        }
    }
}

/// Makes the findings of one area.
#[derive(Clone, Copy, Debug)]
pub(crate) struct In(pub(crate) Area);

impl In {
    pub(crate) fn ok(self, check: &'static str, what: impl Into<String>) -> Finding {
        self.finding(Severity::Ok, check, what, "", "")
    }

    pub(crate) fn note(
        self,
        check: &'static str,
        what: impl Into<String>,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        self.finding(Severity::Note, check, what, why, remedy)
    }

    pub(crate) fn warning(
        self,
        check: &'static str,
        what: impl Into<String>,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        self.finding(Severity::Warning, check, what, why, remedy)
    }

    pub(crate) fn problem(
        self,
        check: &'static str,
        what: impl Into<String>,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        self.finding(Severity::Problem, check, what, why, remedy)
    }

    pub(crate) fn finding(
        self,
        severity: Severity,
        check: &'static str,
        what: impl Into<String>,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding {
            check,
            area: self.0,
            severity,
            what: what.into(),
            why: why.into(),
            remedy: remedy.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_decides_how_it_ends() {
        let of = |severities: &[Severity], essential: bool| {
            let finding = |severity| In(Area::Kernel).finding(severity, "x", "", "", "");
            Report {
                findings: severities
                    .iter()
                    .map(|severity| finding(*severity))
                    .collect(),
                unseen: vec![Unseen {
                    what: String::new(),
                    why: String::new(),
                    essential,
                }],
            }
            .exit_code()
        };
        assert_eq!(of(&[], false), 0);
        assert_eq!(of(&[Severity::Note, Severity::Ok], false), 0);
        assert_eq!(of(&[Severity::Note], true), 3);
        assert_eq!(of(&[Severity::Warning, Severity::Note], true), 1);
        assert_eq!(of(&[Severity::Warning, Severity::Problem], true), 2);
    }
}
