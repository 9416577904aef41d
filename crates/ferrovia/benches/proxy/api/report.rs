//! The figures of the whole daemon as a table.

use std::fmt::Write;
use std::time::Duration;

use super::churn::{Churn, EACH_SECOND};
use super::{Figures, LOADS, NEW_SERVICES};
use crate::cluster::Size;
use crate::show::{both, goal, mark, memory, show};
use crate::table::Table;

/// What is said below the table.
const NOTES: &str = "\
- The daemon as people run it, in a namespace, with an API server of the lab beside it: lists and watches in protobuf over TLS, objects \
of 1.3 to 1.8 kB in JSON with managed fields, one port each. Server, client and pods are in another process, and share the machine's CPUs.
- Start: from the start of the process until a client that tries again every millisecond has a connection through the last service.
- New service: the server has just been given the Service; from giving it the EndpointSlice until the client has a connection.
- Lag: one service more is moved between two pods twenty times a second; from giving the server its slice until the new pod \
answers, in the first and in the last fifth of the time.
- CPU: all threads of the daemon, in user mode and in the kernel.
";

/// The section of the page.
pub(crate) fn section(results: &[Figures]) -> Result<String, std::fmt::Error> {
    let sizes = results.iter().map(|f| f.size.to_string());
    let head = std::iter::once("services × endpoints".to_owned()).chain(sizes);
    let mut table = Table::new(head.collect());
    for (name, cell) in ROWS {
        table.row(name, results.iter().map(cell));
    }
    let mut section = format!("## The nftables mode: through the API server\n\n{table}\n{NOTES}");
    writeln!(
        section,
        "- Starts: median of {LOADS}, but the memory of the one that took most. New services: {NEW_SERVICES}, one after the other.\n"
    )?;
    Ok(section)
}

/// A row's name, and its figure of a size.
type Row = (&'static str, fn(&Figures) -> String);

const ROWS: &[Row] = &[
    ("**start**, until the last service answers", |f| {
        goal(f.start.answered, start_goal(f.size))
    }),
    ("– CPU", |f| show(f.start.cpu)),
    ("**memory** after the start", |f| {
        memory(f.memory.resident, memory_goal(f.size))
    }),
    ("– peak until then", |f| {
        memory(f.memory.peak, peak_goal(f.size))
    }),
    ("– at the end of all this", |f| {
        memory(f.memory_after.resident, None)
    }),
    ("**new service**, until it answers, p50", |f| {
        goal(f.additions.p50(), Some(Duration::from_millis(10)))
    }),
    ("– p99", |f| show(f.additions.p99())),
    (
        "**1,000 endpoint changes a second**, lag at first, p50 / p99",
        |f| churned(f, |churn| both(&churn.first)),
    ),
    ("– lag at last, p50 / p99", |f| {
        churned(f, |churn| both(&churn.last))
    }),
    ("– CPU, of one core", |f| {
        churned(f, |churn| {
            let percent = churn.cpu.as_secs_f64() * 100.0;
            format!("{percent:.0} % (≤ 25 {})", mark(percent <= 25.0))
        })
    }),
    ("– changes a second, in fact", |f| {
        churned(f, |churn| format!("{:.0} of {EACH_SECOND}", churn.rate))
    }),
];

fn churned(figures: &Figures, cell: fn(&Churn) -> String) -> String {
    figures.churn.as_ref().map_or_else(|| "–".to_owned(), cell)
}

fn start_goal(size: Size) -> Option<Duration> {
    match (size.services, size.endpoints) {
        (10_000, 2) => Some(Duration::from_secs(1)),
        (44_000, 1) => Some(Duration::from_secs(4)),
        _ => None,
    }
}

/// In KiB.
fn memory_goal(size: Size) -> Option<u64> {
    match (size.services, size.endpoints) {
        (10_000, 2) => Some(35 << 10),
        (44_000, 1) => Some(110 << 10),
        _ => None,
    }
}

/// In KiB.
fn peak_goal(size: Size) -> Option<u64> {
    (size == Size::new(10_000, 2)).then_some(60 << 10)
}
