//! The figures of the iptables mode as a table.

use std::time::Duration;

use ferrovia_host::iptables::Backend;

use super::Figures;
use crate::cluster::Size;
use crate::show::{goal, memory, ratio, show};
use crate::table::Table;

/// What is said below the table.
const NOTES: &str = "\
- The daemon as people run it, following an API server of the lab in protobuf over TLS; server, client and pods share the machine's CPUs.
- Start: from the start of the process until a client that tries again every millisecond has a connection through the last service.
- Full load: the first sync of IPv4, as the daemon counts it. The tool gets its input cut into transactions where that helps.
- Plain restore: one call of the restoring tool with the ruleset that the daemon has written, as the saving tool prints it, into a new \
namespace, whose tables it may empty first. We may not: others have rules there. Told to keep what is there (`--noflush`), the nft tool takes \
time that grows with the square of a transaction: over half a minute for this ruleset in one.
- Change: one service's only endpoint is replaced; from giving the server the slice until the new pod answers. New service: from giving the \
server the Service, then its slice, until it answers.
- By hand: one call of the restoring tool with the fewest lines that make the same edit, until it ends. That is the \
tool's own floor, but for its end: a rule is in force a little before the tool has cleaned up. The legacy tool reads and writes the whole \
table each time; the nft tool has the kernel check all chains that packets can come to.
";

/// The section of the page.
pub(super) fn section(results: &[Figures]) -> String {
    let columns = results.iter().map(|f| format!("{}, {}", f.backend, f.size));
    let head = std::iter::once("iptables mode".to_owned()).chain(columns);
    let mut table = Table::new(head.collect());
    for (name, cell) in ROWS {
        table.row(name, results.iter().map(cell));
    }
    format!("## The iptables mode\n\n{table}\n{NOTES}\n")
}

/// A row's name, and its figure.
type Row = (&'static str, fn(&Figures) -> String);

const ROWS: &[Row] = &[
    ("**start**, until the last service answers", |f| {
        show(f.start)
    }),
    ("**full load**: reading back, planning, writing", |f| {
        goal(f.full_load(), goals(f).map(|goals| goals.load))
    }),
    ("– reading back", |f| show(f.phases.observe)),
    ("– planning", |f| show(f.phases.plan)),
    ("– the tool", |f| show(f.phases.apply)),
    ("– plain restore of the same rules", |f| {
        show(f.floor.load)
    }),
    ("– full load to plain restore", |f| {
        times(f.full_load(), f.floor.load)
    }),
    ("**change**, until the new endpoint answers, p50", |f| {
        goal(f.changes.p50(), goals(f).map(|goals| goals.change))
    }),
    ("– p99", |f| show(f.changes.p99())),
    ("– by hand, p50", |f| show(f.floor.change.p50())),
    ("– change to by hand", |f| {
        times(f.changes.p50(), f.floor.change.p50())
    }),
    ("**new service**, until it answers, p50", |f| {
        goal(f.additions.p50(), goals(f).map(|goals| goals.addition))
    }),
    ("– p99", |f| show(f.additions.p99())),
    ("– by hand, p50", |f| show(f.floor.addition.p50())),
    ("– new service to by hand", |f| {
        times(f.additions.p50(), f.floor.addition.p50())
    }),
    ("**memory** of the daemon after all this", |f| {
        memory(f.memory.resident, goals(f).map(|_| 60 << 10))
    }),
    ("– peak", |f| memory(f.memory.peak, None)),
];

fn times(ours: Duration, theirs: Duration) -> String {
    format!("× {:.2}", ratio(ours, theirs))
}

/// The longest things should take.
struct Goals {
    load: Duration,
    change: Duration,
    addition: Duration,
}

/// There are goals for one size only.
fn goals(figures: &Figures) -> Option<Goals> {
    let goals = match figures.backend {
        Backend::Legacy => Goals {
            load: Duration::from_millis(1500),
            change: Duration::from_millis(550),
            addition: Duration::from_millis(550),
        },
        _ => Goals {
            load: Duration::from_millis(3500),
            change: Duration::from_millis(60),
            addition: Duration::from_millis(80),
        },
    };
    (figures.size == Size::new(10_000, 2)).then_some(goals)
}
