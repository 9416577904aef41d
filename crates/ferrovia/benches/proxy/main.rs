//! `make bench`: what the nftables mode costs, on the real kernel, as a table.
//!
//! Each size gets a lab of namespaces and, in the lab's node, a process that holds nothing but the proxy's engine: this binary, started
//! again. So its memory and CPU time are the proxy's alone, while clients and servers live in the process that measures. Nothing here
//! asserts a time: the goals stand beside the figures, and people judge.
//!
//! - [`cluster`]: the objects of a cluster of some size, one at a time.
//! - [`orders`]: what the measuring process says to the measured one; [`proxy`]: the measured one; [`subject`]: the grip on it.
//! - [`measure`]: all figures of a size, with [`change`] and [`connect`] for the finer ones.
//! - [`kube_proxy`]: the ruleset to compare with, loaded in the same run.
//! - [`report`]: figures become a table, laid out by [`table`].
//!
//! `BENCH_QUICK=1` runs the two smaller sizes and leaves the slow comparison out. `cargo test --benches` runs it too, with a tiny size
//! that gives no figures worth reading but shows that all of it works.

mod change;
mod cluster;
mod connect;
mod figures;
mod kube_proxy;
mod measure;
mod orders;
mod proxy;
mod report;
mod subject;
mod table;

use std::path::Path;

use anyhow::Context;
use ferrovia_lab::World;

use crate::cluster::Size;

/// The argument that makes this binary the measured process.
const PROXY: &str = "--proxy";

const SIZES: [Size; 4] = [
    Size::new(1_000, 2),
    Size::new(10_000, 2),
    Size::new(50_000, 2),
    Size::new(5_000, 50),
];
/// The size that the comparison is made with.
const COMPARED: Size = Size::new(10_000, 2);
/// For a run that is only to show that everything works.
const TINY: Size = Size::new(400, 2);

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |wanted: &str| arguments.iter().any(|argument| argument == wanted);
    if has(PROXY) {
        return proxy::run();
    }
    World::sweep()?;
    // Cargo says `--bench` to a benchmark that it runs as such.
    if !has("--bench") {
        println!("{}", measure_all(&[TINY], Some(TINY))?);
        return Ok(());
    }
    let report = if std::env::var_os("BENCH_QUICK").is_some_and(|value| value != "0") {
        measure_all(&SIZES[..2], None)?
    } else {
        measure_all(&SIZES, Some(COMPARED))?
    };
    println!("\n{report}");
    keep(&report)
}

/// Measures sizes, and kube-proxy's shape of one of them if asked to; answers with the report.
fn measure_all(sizes: &[Size], compared: Option<Size>) -> anyhow::Result<String> {
    let mut results = Vec::new();
    for size in sizes {
        eprintln!("measuring {size} ...");
        results.push(measure::measure(*size)?);
    }
    let comparison = match compared {
        Some(size) => {
            eprintln!("loading kube-proxy's shape of {size} with nft -f ...");
            Some(kube_proxy::measure(size)?)
        }
        None => None,
    };
    report::report(&results, comparison.as_ref())
}

/// Writes the report to `bench/proxy.md` in Cargo's target folder.
fn keep(report: &str) -> anyhow::Result<()> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .context("Cargo's folder for temporary files has no parent")?;
    let folder = target.join("bench");
    let file = folder.join("proxy.md");
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(&file, report))
        .with_context(|| format!("cannot write {}", file.display()))?;
    eprintln!("written to {}", file.display());
    Ok(())
}
