//! The figures as tables.

use std::time::Duration;

use super::{Figures, Phase, Request, Row, Simulated};
use crate::compare::kube_proxy;
use crate::compare::release::Release;
use crate::show::{memory, ratio, show};
use crate::table::Table;

/// What is said below the tables.
pub(super) const NOTES: &str = "\
- A real kube-apiserver and etcd in a network namespace, and one proxy after the other beside them; all share the machine's CPUs. Services as large as \
Helm's, each with a slice of two endpoints.
- Start: from the start of the process until a client has a connection through the last Service, and two seconds more. Changes: an endpoint of one slice \
after the other is replaced, 100 a second.
- Bytes: what kube-apiserver sent, TLS included, counted by a relay between the two. CPU of the proxy: of its process and of the programs it starts. CPU of \
the API server: without what it uses in as many seconds in which nothing happens.
- Simulated nodes: one process with as many clients as nodes, each with connections, lists and watches of its own as the daemon has them; what they \
receive is decoded and dropped. Memory: the API server's after the start of all, compared with before.
";

/// Both proxies, side by side.
pub(super) fn proxies(request: &Request, release: &Release, rows: &[Row]) -> Table {
    let head = ["", &kube_proxy(release), "Ferrovia", "ratio"].map(ToOwned::to_owned);
    let mut table = Table::new(head.to_vec());
    for Row {
        services,
        watch_lists,
        figures,
    } in rows
    {
        let [theirs, ours] = figures.as_slice() else {
            continue;
        };
        let lists = if *watch_lists { "" } else { ", paged lists" };
        let title = format!("**{} Services{lists}**: start", thousands(*services));
        phase(&mut table, &title, &theirs.start, &ours.start);
        let title = format!("{} endpoint changes", thousands(request.changes));
        phase(&mut table, &title, &theirs.changes, &ours.changes);
        row_of_memory(&mut table, theirs, ours);
    }
    table
}

fn phase(table: &mut Table, title: &str, theirs: &Phase, ours: &Phase) {
    let bytes = [theirs, ours].map(|phase| kilobytes(phase.bytes));
    let share = format!("{:.1} ×", theirs.bytes as f64 / ours.bytes.max(1) as f64);
    table.row(
        &format!("{title}: bytes received"),
        bytes.into_iter().chain([share]),
    );
    let mut times = |name: &str, figure: fn(&Phase) -> Duration| {
        let (theirs, ours) = (figure(theirs), figure(ours));
        let share = format!("{:.1} ×", ratio(theirs, ours));
        table.row(name, [show(theirs), show(ours), share]);
    };
    times("– CPU of the proxy", |phase| phase.proxy);
    times("– CPU of the API server", |phase| phase.server);
}

fn row_of_memory(table: &mut Table, theirs: &Figures, ours: &Figures) {
    let sizes = (theirs.memory.resident, ours.memory.resident);
    let share = format!("{:.1} ×", sizes.0 as f64 / sizes.1.max(1) as f64);
    let cells = [memory(sizes.0, None), memory(sizes.1, None), share];
    table.row("memory of the proxy after the start", cells);
}

/// What simulated nodes cost the server.
pub(super) fn simulated(request: &Request, services: usize, all: &[Simulated]) -> Table {
    let title = format!("the API server, {} Services", thousands(services));
    let version = |http2| if http2 { "HTTP/2" } else { "HTTP/1.1" };
    let names = all.iter().map(|one| match one.nodes {
        0 => "no node".to_owned(),
        1 => format!("1 node, {}", version(one.http2)),
        nodes => format!("{} nodes, {}", thousands(nodes), version(one.http2)),
    });
    let mut table = Table::new(std::iter::once(title).chain(names).collect());
    let cells = |cell: &dyn Fn(&Simulated) -> String| all.iter().map(cell).collect::<Vec<_>>();
    table.row("connections", cells(&|one| one.connections.to_string()));
    table.row("CPU until all have started", cells(&|one| show(one.start)));
    let memory = |one: &Simulated| format!("{:+.1} MiB", one.memory as f64 / 1024.0);
    table.row("memory after that", cells(&memory));
    let title = format!("CPU of {} endpoint changes", thousands(request.changes));
    table.row(&title, cells(&|one| show(one.changes)));
    table
}

fn kilobytes(bytes: u64) -> String {
    format!("{} kB", thousands((bytes / 1000) as usize))
}

fn thousands(number: usize) -> String {
    match number / 1000 {
        0 => number.to_string(),
        thousands => format!("{thousands},{:03}", number % 1000),
    }
}
