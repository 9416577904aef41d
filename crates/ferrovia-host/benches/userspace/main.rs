//! `cargo bench -p ferrovia-host --bench userspace`: what the userspace engine costs, as a table with ratios measured in one run.
//!
//! As on a node: a client's pod, the node, a server's pod, each a network namespace, joined by veth pairs; client, proxy and server are
//! processes that share the machine. The same work is done three ways: direct, which is routed by the node; through a plain copy loop
//! ([`plain`]); and through the engine. Client and server ([`client`], [`server`]) know nothing of the way. The ways take turns, and the
//! median of some rounds counts, because a machine is rarely left alone for two minutes. Nothing here asserts a time.
//!
//! Needs root and the tools `ip` and `nsenter`. Words after `--` choose sections (`short`, `trip`, `udp`, `fresh`, `bulk`, `idle`),
//! `BENCH_QUICK=1` does a part of the work, `BENCH_CONGESTION=reno` has TCP use that instead of the system's congestion control. `cargo test
//! --benches` runs it briefly, without figures worth reading.
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on stops")]

mod client;
mod nodes;
mod plain;
mod proxy;
mod rows;
mod server;
mod table;

use crate::nodes::{CLIENT, Child, NODE_ADDRESS, SERVER, SERVER_ADDRESS};
use crate::rows::{Extent, Row, Work, rows};

/// The ways to do the work, in the order of the columns.
const WAYS: [&str; 3] = ["direct", proxy::PLAIN, proxy::ENGINE];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some(CLIENT) => client::run(),
        Some(SERVER) => server::run(),
        Some(proxy::ROLE) => proxy::run(&words[1]),
        _ => measure(&words),
    }
}

fn measure(words: &[String]) {
    let is_bench = words.iter().any(|word| word == "--bench");
    let is_quick = std::env::var_os("BENCH_QUICK").is_some();
    let mut extent = match (is_bench, is_quick) {
        (true, false) => Extent::FULL,
        (true, true) => Extent::QUICK,
        (false, _) => Extent::TRIAL,
    };
    extent.keep_within(nodes::raise_descriptor_limit());
    let wanted = |row: &Row| {
        let mut sections = words
            .iter()
            .filter(|word| !word.starts_with('-'))
            .peekable();
        sections.peek().is_none() || sections.any(|word| word == row.section)
    };
    nodes::become_node();
    let mut server = Child::start(&[SERVER]);
    nodes::plug_in(&server, nodes::Pod::Server);
    let mut client = Child::start(&[CLIENT]);
    nodes::plug_in(&client, nodes::Pod::Client);
    server.ask("serve");
    println!(
        "TCP congestion control: {}",
        nodes::congestion_control().trim()
    );
    table::head(WAYS);
    for row in rows(extent).into_iter().filter(wanted) {
        if row.work == Work::Idle {
            idle(&mut client, &mut server, &row);
        } else {
            compare(&mut client, &row, extent.rounds);
        }
    }
}

/// Does a row's work each way, in turns, and prints the medians.
fn compare(client: &mut Child, row: &Row, rounds: usize) {
    let mut figures = WAYS.map(|_| Vec::new());
    let mut costs = WAYS.map(|_| Vec::new());
    for round in 1..=rounds {
        eprintln!("{}: round {round} of {rounds}", row.name);
        for (place, way) in WAYS.into_iter().enumerate() {
            let (figure, cost) = once(client, row, way);
            figures[place].push(figure);
            costs[place].extend(cost);
        }
    }
    let figures = figures.map(median);
    table::row(&row.name, row.unit, &row.goal, figures, figures[0]);
    if let Some(cost) = &row.cost {
        table::row(
            cost.name,
            cost.unit,
            &cost.goal,
            costs.map(median),
            figures[0],
        );
    }
}

/// Does the work one way, with a fresh proxy: the figure, and what each piece of work cost the proxy.
fn once(client: &mut Child, row: &Row, way: &str) -> (f64, Option<f64>) {
    if way == "direct" {
        let address = (SERVER_ADDRESS, row.service.port()).into();
        return (client.work(&row.order, address).figure, None);
    }
    let mut proxy = Child::start(&[proxy::ROLE, way]);
    let before = proxy.usage();
    let address = (NODE_ADDRESS, row.service.proxy_port()).into();
    let done = client.work(&row.order, address);
    let spent = proxy.usage().seconds - before.seconds;
    let cost = row
        .cost
        .as_ref()
        .map(|cost| spent * cost.scale / done.amount);
    (done.figure, cost)
}

/// Opens many connections through the engine and leaves them alone: its memory, and the descriptors that are left when they have ended.
/// The copy loop would need more threads than a system allows.
fn idle(client: &mut Child, server: &mut Child, row: &Row) {
    eprintln!("{}", row.name);
    let mut proxy = Child::start(&[proxy::ROLE, proxy::ENGINE]);
    let before = proxy.usage();
    let address = (NODE_ADDRESS, row.service.proxy_port()).into();
    client.work(&row.order, address);
    let resident = proxy.usage().resident - before.resident;
    let mebibytes = Some(resident as f64 / 1024.0);
    table::row(
        &row.name,
        row.unit,
        &row.goal,
        [None, None, mebibytes],
        None,
    );
    client.ask("forget");
    server.ask("forget");
    let left = proxy.descriptors_left(before.descriptors);
    if let Some(cost) = &row.cost {
        table::row(
            cost.name,
            cost.unit,
            &cost.goal,
            [None, None, Some(left)],
            None,
        );
    }
}

fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}
