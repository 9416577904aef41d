//! The output of the demo: headings, rows with a verdict, bars with the shares of pods.
//!
//! Colours only on a terminal, and not with `NO_COLOR`. Lines fit into 100 columns.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use ferrovia_lab::Role;

use crate::cluster::DemoCluster;
use crate::traffic::{CallTally, DemoClient, Destination};

/// Columns of a line.
const WIDTH: usize = 100;

/// Cells that all bars of a line share.
const BAR_CELLS: f64 = 28.0;

/// Prints the output and counts verdicts.
pub(crate) struct DemoReport {
    out: Box<dyn Write>,
    is_terminal: bool,
    colours: bool,
    scenes: u32,
    passed: u32,
    failed: u32,
}

/// Calls of one client to one target, and their result.
pub(crate) struct ReportRow<'a> {
    pub(crate) client: DemoClient,
    pub(crate) target: Destination,
    pub(crate) words: String,
    /// The shares of pods to draw.
    pub(crate) bars: Option<&'a CallTally>,
    pub(crate) verdict: Result<(), String>,
}

impl DemoReport {
    /// A report to the standard output.
    pub(crate) fn to_stdout() -> Self {
        let is_terminal = io::stdout().is_terminal();
        // By its definition an empty NO_COLOR counts as unset.
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            out: Box::new(io::stdout()),
            is_terminal,
            colours: is_terminal && !unwanted,
            scenes: 0,
            passed: 0,
            failed: 0,
        }
    }

    /// Prints the topology of the cluster.
    pub(crate) fn opening(&mut self, cluster: &DemoCluster) {
        let node = cluster.world.name(Role::Node).to_owned();
        let title = self.paint(Colour::Bold, "Ferrovia in a cluster of network namespaces");
        self.line(&title);
        self.line("");
        self.line(
            "  outside ───────── node-1 ──────────────── node-2          ferrovia runs in node-1",
        );
        self.line("  192.0.2.9         198.51.100.10           198.51.100.20");
        self.line("  203.0.113.200     pod-a pod-b pod-c pod-d pod-x pod-y pod-z");
        let location = format!(
            "  namespaces: {}*   manifests: {}/",
            node.trim_end_matches("node"),
            cluster.folder().display()
        );
        let location = self.paint(Colour::Dim, &location);
        self.line(&location);
    }

    pub(crate) fn scene(&mut self, title: &str, file: &str) {
        self.scenes += 1;
        let head = format!("{:>2}  {title}", self.scenes);
        let gap = WIDTH.saturating_sub(head.chars().count() + file.chars().count());
        let (head, file) = (
            self.paint(Colour::Bold, &head),
            self.paint(Colour::Dim, file),
        );
        self.line("");
        self.line(format!("{head}{:gap$}{file}", "").trim_end());
    }

    /// Prints a row of a scene.
    pub(crate) fn row(&mut self, row: ReportRow<'_>) {
        let ReportRow {
            client,
            target,
            words,
            bars,
            verdict,
        } = row;
        let text = format!(
            "{:<22}→ {:<20}  {words}",
            client.to_string(),
            target.to_string()
        );
        self.check(&text, verdict);
        if let Some(tally) = bars {
            let bars = self.bars(tally);
            self.line(&format!("      {bars}"));
        }
    }

    /// Prints something that was checked.
    pub(crate) fn check(&mut self, text: &str, verdict: Result<(), String>) {
        match verdict {
            Ok(()) => {
                self.passed += 1;
                let mark = self.paint(Colour::Green, "✓");
                self.line(&format!("    {mark} {text}"));
            }
            Err(why) => {
                self.failed += 1;
                let mark = self.paint(Colour::Red, "✗");
                self.line(&format!("    {mark} {text}"));
                let why = self.paint(Colour::Red, &why);
                self.line(&format!("      {why}"));
            }
        }
    }

    /// Prints a line as it is.
    pub(crate) fn line(&mut self, text: &str) {
        // The output may be closed; the demo must still clean up.
        let _ = writeln!(self.out, "{text}");
    }

    /// Replaces the last line shown by this function; on a terminal only.
    pub(crate) fn live(&mut self, text: &str) {
        if self.is_terminal {
            let _ = write!(self.out, "\r\x1b[K{text}");
            let _ = self.out.flush();
        }
    }

    /// Prints the number of passed and failed checks.
    pub(crate) fn summary(&mut self, took: Duration, interrupted: bool) {
        let (colour, mark) = if self.all_passed() {
            (Colour::Green, "✓")
        } else {
            (Colour::Red, "✗")
        };
        let words = format!(
            "{mark} {} checks passed, {} failed",
            self.passed, self.failed
        );
        let words = self.paint(colour, &words);
        let end = if interrupted { "; interrupted" } else { "" };
        self.line("");
        self.line(&format!("{words} in {:.1} s{end}", took.as_secs_f64()));
    }

    /// Whether no check has failed.
    pub(crate) fn all_passed(&self) -> bool {
        self.failed == 0
    }

    /// The shares of pods as bars.
    pub(crate) fn bars(&self, tally: &CallTally) -> String {
        let all = f64::from(tally.answered().max(1));
        let bar = |(pod, count): (&String, &u32)| {
            let share = f64::from(*count) / all;
            // At least one cell, so that every pod is visible.
            let cells = ((share * BAR_CELLS).round() as usize).max(1);
            let cells = self.paint(Colour::of_pod(pod), &"█".repeat(cells));
            format!("{pod} {cells} {:.0} %", share * 100.0)
        };
        tally.by_pod.iter().map(bar).collect::<Vec<_>>().join("   ")
    }

    fn paint(&self, colour: Colour, text: &str) -> String {
        if self.colours {
            format!("\x1b[{}m{text}\x1b[0m", colour.code())
        } else {
            text.to_owned()
        }
    }
}

/// An ANSI text attribute.
#[derive(Clone, Copy)]
enum Colour {
    Bold,
    Dim,
    Green,
    Red,
    Yellow,
    Blue,
    Magenta,
    Cyan,
}

impl Colour {
    /// A pod has the same colour in every line.
    fn of_pod(name: &str) -> Self {
        match name {
            "pod-a" => Self::Cyan,
            "pod-b" => Self::Blue,
            "pod-x" => Self::Yellow,
            _ => Self::Magenta,
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::Bold => 1,
            Self::Dim => 2,
            Self::Red => 31,
            Self::Green => 32,
            Self::Yellow => 33,
            Self::Blue => 34,
            Self::Magenta => 35,
            Self::Cyan => 36,
        }
    }
}

/// A number with thousands separators: `12,345`.
pub(crate) fn grouped(number: u32) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
