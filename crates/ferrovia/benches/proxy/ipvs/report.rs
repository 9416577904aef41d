//! The figures of the ipvs mode as a table.

use std::fmt::Write as _;
use std::time::Duration;

use super::floor::Floor;
use super::{Figures, LARGE};
use crate::show::{goal, mark, memory, ratio, show};
use crate::table::Table;

/// A full sync at the large size may take so many times what the tools do. At a small one it is the rules that take time, which the tools
/// do not write.
const FULL: f64 = 1.5;
/// A change at the large size may cost so many times one at the small size.
const GROWTH: f64 = 2.0;
/// The longest a change should take.
const CHANGE: Duration = Duration::from_millis(50);

/// What is said below the table.
const NOTES: &str = "\
- Measured in user-mode Linux, a kernel that is a process: system calls are many times slower there, and daemon, server, client and pods \
share one core. Only ratios mean something elsewhere.
- The daemon as people run it, following an API server of the lab in protobuf over TLS.
- Start: from the start of the process until a client that tries again every millisecond has a connection through the last service.
- Full sync: the first one of IPv4 as the daemon counts it, from reading what is there to the kernel's last word: servers, sets, addresses \
of the device, and rules.
- The tools: `ipvsadm -R` and `ipset restore`, one call of each with the state that the daemon has written, into a new namespace. They bind \
no addresses and write no rules; what `ip -batch` needs for the addresses stands beside it.
- Change: one service's only endpoint is replaced, and the old one drains; from giving the server the slice until the new pod answers. New \
service: from giving the server the Service, then its slice, until it answers.
- Started: processes and threads of anybody in the guest, the kernel's own among them.
";

/// The section of the page.
pub(super) fn section(results: &[Figures]) -> String {
    let columns = results.iter().map(|figures| figures.size.to_string());
    let head = std::iter::once("ipvs mode".to_owned()).chain(columns);
    let mut table = Table::new(head.collect());
    for (name, cell) in ROWS {
        table.row(name, results.iter().map(cell));
    }
    let mut page = format!("## The ipvs mode, in user-mode Linux\n\n{table}\n");
    if let [small, .., large] = results {
        let times = ratio(large.changes.p50(), small.changes.p50());
        // Writing to a text does not fail.
        let _ = writeln!(
            page,
            "One change at {} takes {times:.1} times as long as one at {} (≤ {GROWTH} {}).\n",
            large.size,
            small.size,
            mark(times <= GROWTH)
        );
    }
    page + NOTES + "\n"
}

/// A row's name, and its figure.
type Row = (&'static str, fn(&Figures) -> String);

const ROWS: &[Row] = &[
    ("**start**, until the last service answers", |f| {
        show(f.start)
    }),
    ("**full sync**", |f| show(f.phases.total())),
    ("– reading back", |f| show(f.phases.observe)),
    ("– planning", |f| show(f.phases.plan)),
    ("– writing", |f| show(f.phases.apply)),
    ("– the tools: `ipvsadm -R`", |f| show(f.floor.servers)),
    ("– the tools: `ipset restore`", |f| show(f.floor.sets)),
    ("– beside them: `ip -batch`", |f| show(f.floor.addresses)),
    ("– full sync to the tools", |f| {
        let times = ratio(f.phases.total(), tools(&f.floor));
        match f.size {
            LARGE => format!("× {times:.2} (≤ {FULL} {})", mark(times <= FULL)),
            _ => format!("× {times:.2}"),
        }
    }),
    ("– full sync to the tools and `ip -batch`", |f| {
        let all = tools(&f.floor) + f.floor.addresses;
        format!("× {:.2}", ratio(f.phases.total(), all))
    }),
    ("**change**, until the new endpoint answers, p50", |f| {
        goal(f.changes.p50(), Some(CHANGE))
    }),
    ("– p99", |f| show(f.changes.p99())),
    ("– processes started for all of them", |f| {
        format!("{} (≤ 0 {})", f.started, mark(f.started == 0))
    }),
    ("**new service**, until it answers, p50", |f| {
        show(f.additions.p50())
    }),
    ("– p99", |f| show(f.additions.p99())),
    ("**memory** of the daemon after all this", |f| {
        memory(f.memory.resident, None)
    }),
    ("– peak", |f| memory(f.memory.peak, None)),
];

fn tools(floor: &Floor) -> Duration {
    floor.servers + floor.sets
}
