//! A table as Markdown that also reads well as it stands.

use std::fmt;

/// Rows of cells under a head; the first column is text, the others are figures.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub(crate) fn new(head: Vec<String>) -> Self {
        Self { rows: vec![head] }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, name: &str, cells: impl IntoIterator<Item = String>) {
        let cells = std::iter::once(name.to_owned()).chain(cells);
        self.rows.push(cells.collect());
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.first().map_or(0, Vec::len);
        let widths: Vec<usize> = (0..columns).map(|column| self.width(column)).collect();
        for (number, row) in self.rows.iter().enumerate() {
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if column == 0 {
                    write!(f, "| {cell:<width$} |")?;
                } else {
                    write!(f, " {cell:>width$} |")?;
                }
            }
            writeln!(f)?;
            if number == 0 {
                write_rule(f, &widths)?;
            }
        }
        Ok(())
    }
}

/// The line below the head: it also says which way the columns are aligned.
fn write_rule(f: &mut fmt::Formatter<'_>, widths: &[usize]) -> fmt::Result {
    for (column, width) in widths.iter().enumerate() {
        let dashes = "-".repeat(width + 1);
        match column {
            0 => write!(f, "|:{dashes}|")?,
            _ => write!(f, "{dashes}:|")?,
        }
    }
    writeln!(f)
}
