//! How the page begins, and the engine's section of it: a table with the goals beside what was reached, and how to read it.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::cluster::{Size, WATCHED};
use crate::connect::Latency;
use crate::figures::Samples;
use crate::kube_proxy::Comparison;
use crate::measure::Figures;
use crate::page::{Mode, Page};
use crate::plot::{Line, Lines};
use crate::show::{both, goal, mark, memory, ratio, show};
use crate::table::Table;

/// What is said below the tables.
const NOTES: &str = "\
- Full sync: from the first object handed to the engine to the kernel's word that both families are written. Decoding objects is not in it, \
the making of the test's objects neither. Median of five runs, each in a new namespace by a new process.
- Until the new pod answers: one endpoint of one service is replaced; the clock starts before the change is handed to the proxy's process and \
stops when a client that connects in a tight loop first hears the new pod. Client, pods and proxy share the machine's CPUs.
- CPU: time of the proxy's process in user mode and in the kernel. What the kernel does later in its own threads is not in it.
- Endpoint more or less: the first of these changes makes a chain for the new number of endpoints, for which the kernel walks all endpoints \
there are. That is the slowest one.
- Anyone who listens to changes of rules (`nft monitor`), in any namespace of the machine, makes the kernel write every new element twice. \
The proxy itself listens, as the daemon does.
- Memory: the proxy's process with its program text and libraries, without a source of events (watching a folder or an API server) and \
without anything of the lab.
- Over direct: how much longer `connect` takes through a cluster IP than to the pod's own address, both by way of the \
node under test. 3,000 of each in turn; client and server are one thread, so no scheduling is in it.
";

/// How the page begins.
pub(crate) fn head() -> anyhow::Result<String> {
    Ok(format!(
        "# Ferrovia: what it costs\n\n{}\n\n\
- ✓ and ✗ say whether a goal (in brackets) was reached on this machine in this run; nothing fails on a ✗.\n\n",
        machine()?
    ))
}

/// Writes the section about the engine.
pub(crate) fn section(
    results: &[Figures],
    comparison: Option<&Comparison>,
    page: &mut Page,
) -> anyhow::Result<()> {
    let mut text = String::from("## The nftables mode: the engine alone\n\n");
    writeln!(text, "{}", figures(results))?;
    let find = |size| results.iter().find(|figures| figures.size == size);
    let ends = find(Size::new(1_000, 2)).zip(find(Size::new(50_000, 2)));
    if let Some((small, large)) = ends {
        writeln!(text, "{}\n", growth(small, large))?;
    }
    writeln!(
        text,
        "{NOTES}\
- The first service, the last and {WATCHED} in between have one endpoint, a pod that answers, instead of made-up ones.\n"
    )?;
    page.write(&text);
    pictures(results, page);
    if let Some(theirs) = comparison
        && let Some(ours) = find(theirs.size)
    {
        page.write(&format!(
            "## {} in kube-proxy's shape\n\n{}\n",
            theirs.size,
            ratios(ours, theirs)
        ));
        page.compare(Mode {
            name: "nftables".to_owned(),
            load: ours.load.total(),
            change: ours.answered.p50(),
        });
        page.compare(Mode {
            name: "kube-proxy's shape, by nft -f".to_owned(),
            load: theirs.load,
            change: theirs.addition,
        });
    }
    Ok(())
}

/// How times and memory grow with the cluster; a line needs at least two sizes.
fn pictures(results: &[Figures], page: &mut Page) {
    let alike: Vec<&Figures> = results.iter().filter(|f| f.size.endpoints == 2).collect();
    if alike.len() < 2 {
        return;
    }
    let line = |name, figure: fn(&Figures) -> f64| Line {
        name,
        points: alike
            .iter()
            .map(|f| (f.size.services as f64, figure(f)))
            .collect(),
    };
    let times = Lines {
        title: "nftables mode, two endpoints a service: time",
        unit: "ms",
        lines: vec![
            line("all services", |f| f.load.total().as_secs_f64() * 1e3),
            line("endpoint replaced", |f| {
                f.answered.p50().as_secs_f64() * 1e3
            }),
            line("– CPU for that", |f| f.moves.cpu.as_secs_f64() * 1e3),
        ],
    };
    let memory = Lines {
        title: "nftables mode, two endpoints a service: memory",
        unit: "MiB",
        lines: vec![line("engine", |f| f.memory.resident as f64 / 1024.0)],
    };
    page.picture("time", "Times over the number of services", times.svg());
    page.picture("memory", "Memory over the number of services", memory.svg());
}

/// Where and when.
pub(crate) fn machine() -> anyhow::Result<String> {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let cpus = fs::read_to_string("/proc/cpuinfo")?;
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown CPU", |(_, model)| model);
    let count = std::thread::available_parallelism()?;
    let date = Command::new("date").args(["-u", "+%F %R UTC"]).output()?;
    let date = String::from_utf8_lossy(&date.stdout);
    let build = match profile() {
        Some("dist") => "profile `dist`, as packages are built".to_owned(),
        Some(other) => format!(
            "**profile `{other}`, which is not what packages have: do not quote these figures**"
        ),
        None => "unknown profile".to_owned(),
    };
    Ok(format!(
        "{}, Linux {}, {count} × {model}, {build}",
        date.trim(),
        kernel.trim()
    ))
}

/// The cargo profile of the program that is measured. Cargo builds it in a folder named after the profile.
fn profile() -> Option<&'static str> {
    Path::new(env!("CARGO_BIN_EXE_ferrovia"))
        .parent()?
        .file_name()?
        .to_str()
}

fn figures(results: &[Figures]) -> Table {
    let sizes = results.iter().map(|f| f.size.to_string());
    let head = std::iter::once("services × endpoints".to_owned()).chain(sizes);
    let mut table = Table::new(head.collect());
    let rows = LOAD_ROWS.iter().chain(CHANGE_ROWS).chain(CONNECT_ROWS);
    for (name, cell) in rows {
        table.row(name, results.iter().map(cell));
    }
    table
}

/// A row's name, and its figure of a size.
type Row = (&'static str, fn(&Figures) -> String);

const LOAD_ROWS: &[Row] = &[
    ("**full sync**", |f| goal(f.load.total(), full_goal(f.size))),
    ("– objects into the store", |f| show(f.load.store)),
    ("– store to desired state", |f| show(f.load.desired)),
    ("– reading the kernel back", |f| show(f.load.observe)),
    ("– planning", |f| show(f.load.plan)),
    ("– encoding, and the kernel", |f| show(f.load.apply)),
    ("– CPU since start", |f| show(f.load_cpu)),
    ("**comparing all with the kernel**", |f| {
        show(f.compare.total())
    }),
    ("**memory** after the full sync", |f| {
        memory(f.memory.resident, memory_goal(f.size))
    }),
    ("– peak until then", |f| memory(f.memory.peak, None)),
    ("– peak with a comparison", |f| {
        memory(f.memory_after.peak, None)
    }),
];

const CHANGE_ROWS: &[Row] = &[
    (
        "**endpoint replaced**, until the new pod answers, p50",
        |f| goal(f.answered.p50(), change_goal(f.size)),
    ),
    ("– p99", |f| show(f.answered.p99())),
    ("– sync alone, p50", |f| show(f.moves.sync.p50())),
    ("– of that encoding and the kernel, p50", |f| {
        show(f.moves.apply.p50())
    }),
    ("– CPU per change", |f| {
        goal(f.moves.cpu, cpu_goal(f.size))
    }),
    ("**endpoint more or less**, sync p50", |f| {
        show(f.resizes.sync.p50())
    }),
    ("– p99", |f| show(f.resizes.sync.p99())),
    ("– slowest", |f| show(f.resizes.sync.max())),
    ("– CPU per change", |f| show(f.resizes.cpu)),
    ("**service more**, sync p50", |f| {
        show(f.additions.sync.p50())
    }),
    ("– CPU per change", |f| show(f.additions.cpu)),
];

const CONNECT_ROWS: &[Row] = &[
    ("**connect** to the pod itself, p50 / p99", |f| {
        both(&f.latency.direct)
    }),
    ("– by the first service, p50 / p99", |f| {
        both(&f.latency.first)
    }),
    ("– – over direct, p50", |f| {
        over_direct(&f.latency, &f.latency.first)
    }),
    ("– by the last service, p50 / p99", |f| {
        both(&f.latency.last)
    }),
    ("– – over direct, p50", |f| {
        over_direct(&f.latency, &f.latency.last)
    }),
];

/// How the cost of a change grows with the cluster.
fn growth(small: &Figures, large: &Figures) -> String {
    let ratio = |of: fn(&Figures) -> Duration| ratio(of(large), of(small));
    let (sync, cpu) = (ratio(|f| f.moves.sync.p50()), ratio(|f| f.moves.cpu));
    format!(
        "One change at {} costs {sync:.1} times the sync time and {cpu:.1} times the CPU of one at {} (≤ 2 {}).",
        large.size,
        small.size,
        mark(sync <= 2.0 && cpu <= 2.0)
    )
}

fn ratios(ours: &Figures, theirs: &Comparison) -> Table {
    let head = ["", "`nft -f`", "Ferrovia", "ratio"].map(String::from);
    let mut table = Table::new(head.to_vec());
    let mut row = |name, theirs: Duration, ours: Duration| {
        let times = format!("{:.0} ×", ratio(theirs, ours));
        table.row(name, [show(theirs), show(ours), times]);
    };
    row("all services", theirs.load, ours.load.total());
    row(
        "one service more",
        theirs.addition,
        ours.additions.sync.p50(),
    );
    table
}

fn full_goal(size: Size) -> Option<Duration> {
    match (size.services, size.endpoints) {
        (10_000, 2) => Some(Duration::from_millis(300)),
        (50_000, 2) | (5_000, 50) => Some(Duration::from_millis(1_500)),
        _ => None,
    }
}

fn change_goal(size: Size) -> Option<Duration> {
    match (size.services, size.endpoints) {
        (10_000, 2) => Some(Duration::from_millis(3)),
        (50_000, 2) => Some(Duration::from_millis(5)),
        _ => None,
    }
}

fn cpu_goal(size: Size) -> Option<Duration> {
    (size == Size::new(10_000, 2)).then_some(Duration::from_millis(3))
}

/// In KiB.
fn memory_goal(size: Size) -> Option<u64> {
    (size == Size::new(10_000, 2)).then_some(25 << 10)
}

fn over_direct(latency: &Latency, way: &Samples) -> String {
    let microseconds = |samples: &Samples| samples.p50().as_secs_f64() * 1e6;
    let over = microseconds(way) - microseconds(&latency.direct);
    format!("{over:+.1} µs (≤ 10 {})", mark(over <= 10.0))
}
