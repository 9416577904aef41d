//! `cargo bench -p ferrovia-host --bench userspace`: what the userspace engine costs, as a table with ratios measured in one run.
//!
//! As on a node: a client's pod, the node, a server's pod, each a network namespace, joined by veth pairs; client, proxy and server are
//! processes that share the machine. The same work is done three ways: direct, which is routed by the node; through a plain copy loop
//! ([`plain`]); and through the engine. Client and server ([`client`], [`server`]) know nothing of the way. Nothing here asserts a time.
//!
//! Needs root and the tools `ip` and `nsenter`. Words after `--` choose among the rows, `BENCH_QUICK=1` does a part of the work.
//! `cargo test --benches` runs it briefly, without figures worth reading.
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on stops")]

mod client;
mod nodes;
mod plain;
mod proxy;
mod server;
mod table;

use std::time::Duration;

use crate::nodes::{CLIENT, Child, NODE_ADDRESS, SERVER, SERVER_ADDRESS, Service};
use crate::table::Goal;

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

/// How much is done.
#[derive(Clone, Copy)]
struct Extent {
    time: Duration,
    gigabytes: f64,
    idle: usize,
}

fn measure(words: &[String]) {
    let quick = std::env::var_os("BENCH_QUICK").is_some();
    let is_bench = words.iter().any(|word| word == "--bench");
    let (millis, gigabytes, idle) = match (is_bench, quick) {
        (true, false) => (3_000, 4.0, 9_900),
        (true, true) => (400, 0.5, 1_000),
        (false, _) => (50, 0.02, 50),
    };
    let time = Duration::from_millis(millis);
    let extent = Extent {
        time,
        gigabytes,
        idle,
    };
    nodes::become_node();
    let mut server = Child::start(&[SERVER]);
    nodes::plug_in(&server, nodes::Pod::Server);
    let mut client = Child::start(&[CLIENT]);
    nodes::plug_in(&client, nodes::Pod::Client);
    server.ask("serve");
    let wanted: Vec<&str> = words
        .iter()
        .map(String::as_str)
        .filter(|word| !word.starts_with('-'))
        .collect();
    table::head(WAYS);
    for row in rows(extent) {
        if wanted.is_empty() || wanted.iter().any(|word| row.name.contains(word)) {
            let measured = WAYS.map(|way| row.measure(&mut client, way));
            table::row(row.name, row.unit, row.goal, measured.map(|it| it.figure));
            if let Some((name, unit, goal)) = row.cost {
                table::row(name, unit, goal, measured.map(|it| it.cost));
            }
        }
    }
}

/// What is measured, and what it is to be.
struct Row {
    name: &'static str,
    unit: &'static str,
    goal: Goal,
    order: String,
    service: Service,
    /// What it costs the proxy.
    cost: Option<(&'static str, &'static str, Goal)>,
    /// How often that cost was paid, from the figure and what was done.
    per: fn(f64, Extent) -> f64,
    extent: Extent,
}

#[derive(Clone, Copy, Default)]
struct Measured {
    figure: Option<f64>,
    cost: Option<f64>,
}

impl Row {
    /// Does the work one way, with a fresh proxy.
    fn measure(&self, client: &mut Child, way: &str) -> Measured {
        let mut measured = Measured::default();
        // Memory is a figure of the engine; the copy loop would need twice as many threads as a system allows.
        if self.service == Service::Keep && way != proxy::ENGINE {
            return measured;
        }
        if way == "direct" {
            let address = (SERVER_ADDRESS, self.service.port()).into();
            measured.figure = Some(client.work(&self.order, address));
            return measured;
        }
        let mut proxy = Child::start(&[proxy::ROLE, way]);
        let before = proxy.usage();
        let address = (NODE_ADDRESS, self.service.proxy_port()).into();
        let mut figure = client.work(&self.order, address);
        let after = proxy.usage();
        let spent = after.seconds - before.seconds;
        if self.service == Service::Keep {
            figure = (after.resident - before.resident) as f64 / 1024.0;
            client.ask("forget");
        }
        measured.figure = Some(figure);
        measured.cost = Some(spent / (self.per)(figure, self.extent));
        measured
    }
}

fn rows(extent: Extent) -> Vec<Row> {
    let millis = extent.time.as_millis();
    let bytes = (extent.gigabytes * 1e9) as u64;
    let row = |name, unit, goal, order, service| Row {
        name,
        unit,
        goal,
        order,
        service,
        cost: None,
        per: |_, _| 1.0,
        extent,
    };
    let mut short = row(
        "short connections",
        "1/s",
        Goal::OfDirect(0.5),
        format!("short {millis}"),
        Service::Short,
    );
    short.cost = Some(("  proxy CPU for 1,000", "ms", Goal::AtMost(60.0)));
    short.per = |rate, extent| rate * extent.time.as_secs_f64() / 1e6;
    let trip = row(
        "64-byte round trip",
        "µs",
        Goal::AtMost(85.0),
        format!("trip {millis}"),
        Service::Echo,
    );
    let udp = row(
        "UDP, 8 clients",
        "1/s",
        Goal::AtLeast(62_700.0),
        format!("udp {millis} 8"),
        Service::Udp,
    );
    let fresh = row(
        "UDP, fresh sockets",
        "1/s",
        Goal::AtLeast(25_500.0),
        format!("fresh {millis}"),
        Service::Udp,
    );
    let bulk = |name, goal, streams| {
        let mut bulk = row(
            name,
            "Gbit/s",
            goal,
            format!("bulk {bytes} {streams}"),
            Service::Sink,
        );
        bulk.cost = Some(("  proxy CPU for 1 GB", "s", Goal::AtMost(0.22)));
        bulk.per = |_, extent| extent.gigabytes;
        bulk
    };
    let idle = row(
        "memory of idle connections",
        "MiB",
        Goal::AtMost(60.0),
        format!("idle {}", extent.idle),
        Service::Keep,
    );
    vec![
        short,
        trip,
        udp,
        fresh,
        bulk("bulk, 1 stream", Goal::OfDirect(0.9), 1),
        bulk("bulk, 8 streams", Goal::OfDirect(0.75), 8),
        idle,
    ]
}
