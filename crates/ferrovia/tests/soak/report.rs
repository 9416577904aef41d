//! The table.

use std::fmt;
use std::time::Duration;

use crate::traffic::Tally;

/// What came of a fault.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) fault: &'static str,
    /// What was done, in words.
    pub(crate) done: String,
    pub(crate) calls: Tally,
    /// From the end of the fault until a change had effect.
    pub(crate) right_again: Duration,
    /// Whatever else is wrong.
    pub(crate) problems: Vec<String>,
}

impl Row {
    fn is_well(&self) -> bool {
        self.calls.lost == 0 && self.calls.strays == 0 && self.problems.is_empty()
    }
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) heading: String,
    pub(crate) rows: Vec<Row>,
}

impl Report {
    pub(crate) fn is_well(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(Row::is_well)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.heading)?;
        writeln!(
            f,
            "| fault | what was done | calls | lost | strays | excused | right again after | |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|")?;
        for row in &self.rows {
            let Tally {
                tried,
                lost,
                strays,
                excused,
                ..
            } = &row.calls;
            let mark = if row.is_well() { "✓" } else { "✗" };
            writeln!(
                f,
                "| {} | {} | {tried} | {lost} | {strays} | {excused} | {:.0?} | {mark} |",
                row.fault, row.done, row.right_again
            )?;
        }
        for row in self.rows.iter().filter(|row| !row.is_well()) {
            writeln!(f, "\n{}:", row.fault)?;
            for problem in row.problems.iter().chain(&row.calls.words) {
                writeln!(f, "  {problem}")?;
            }
        }
        Ok(())
    }
}
