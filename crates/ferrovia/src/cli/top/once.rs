//! The table as plain text.

use std::fmt::Write as _;

use super::data::{Data, count, rate};

/// All rows, in columns as wide as they need be.
pub(super) fn table(data: &Data) -> String {
    let heads = [
        "SERVICE",
        "TYPE",
        "ADDRESS",
        "ENDPOINTS",
        "CONN/S",
        "CONNECTIONS",
        "REFUSED",
    ];
    let rows = data.services.rows.iter().map(|row| {
        [
            row.key(),
            row.kind().to_owned(),
            row.at(),
            row.endpoints(),
            rate(row.per_second),
            count(row.connections),
            count(row.refused),
        ]
    });
    let rows: Vec<[String; 7]> = std::iter::once(heads.map(str::to_owned))
        .chain(rows)
        .collect();
    let mut widths = [0; 7];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.len().max(*width);
        }
    }
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (i, (cell, width)) in row.iter().zip(widths).enumerate() {
            // Writing to memory cannot fail. Names are to the left, numbers to the right.
            let _ = match i {
                0..3 => write!(line, "{cell:<width$}  "),
                _ => write!(line, "{cell:>width$}  "),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    let left_out = data.services.matched - data.services.rows.len().min(data.services.matched);
    if left_out > 0 {
        let _ = writeln!(
            text,
            "{left_out} more are not shown; narrow them down with a filter"
        );
    }
    text
}
