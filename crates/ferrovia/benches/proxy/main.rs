//! `make bench`: what the proxy costs, on the real kernel, as tables.
//!
//! Each size gets a lab of namespaces and, in the lab's node, a process that holds nothing but the proxy's engine: this binary, started
//! again. So its memory and CPU time are the proxy's alone, while clients and servers live in the process that measures. Nothing here
//! asserts a time: the goals stand beside the figures, and people judge.
//!
//! - [`cluster`]: the objects of a cluster of some size, one at a time.
//! - [`orders`]: what the measuring process says to the measured one; [`proxy`]: the measured one; [`subject`]: the grip on it.
//! - [`measure`]: all figures of a size, with [`change`] and [`connect`] for the finer ones.
//! - [`kube_proxy`]: the ruleset to compare with, loaded in the same run.
//! - [`api`]: the daemon as people run it, following an API server.
//! - [`iptables`]: the same in the iptables mode, with both kinds of tools, beside what the tools need by themselves.
//! - [`ipvs`]: the same in the ipvs mode, in user-mode Linux, in which this binary runs once more.
//! - [`conntrack`]: removing stale flows.
//! - [`compare`]: beside a kube-proxy, on request.
//! - [`feed`]: running other programs, to compare with. [`process`]: memory and CPU time of a process.
//! - [`report`]: figures become a table, laid out by [`table`], in the words of [`show`], and pictures drawn by [`plot`]; [`page`] holds
//!   them together.
//!
//! `BENCH_QUICK=1` runs the smaller sizes and leaves the slow comparison out. `cargo bench --bench proxy -- api` runs one section
//! (`engine`, `api`, `iptables`, `ipvs`, `conntrack`). `cargo test --benches` runs all of it, too, with a tiny size that gives no figures
//! worth reading but shows that it works.

mod api;
mod change;
mod cluster;
mod compare;
mod connect;
mod conntrack;
mod feed;
mod figures;
mod iptables;
mod ipvs;
mod kube_proxy;
mod measure;
mod orders;
mod page;
mod plot;
mod process;
mod proxy;
mod report;
mod show;
mod subject;
mod table;

use std::time::Duration;

use ferrovia_lab::{World, uml};

use crate::cluster::Size;
use crate::page::Page;

/// The argument that makes this binary the measured process.
const PROXY: &str = "--proxy";

/// Arguments that choose among the sections; without any, all are measured.
const SECTIONS: [&str; 5] = [ENGINE, API, IPTABLES, IPVS, CONNTRACK];
const ENGINE: &str = "engine";
const API: &str = "api";
const IPTABLES: &str = "iptables";
const IPVS: &str = "ipvs";
const CONNTRACK: &str = "conntrack";

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// Just enough to show that all of it works.
    Tiny,
    /// The smaller sizes.
    Quick,
    /// Everything.
    Full,
}

/// The sizes that the engine is measured with.
const SIZES: [Size; 4] = [
    Size::new(1_000, 2),
    Size::new(10_000, 2),
    Size::new(50_000, 2),
    Size::new(5_000, 50),
];
/// The size that the comparison is made with.
const COMPARED: Size = Size::new(10_000, 2);
/// The sizes that the daemon is measured with.
const API_SIZES: [Size; 2] = [Size::new(10_000, 2), Size::new(44_000, 1)];
/// For a run that is only to show that everything works.
const TINY: Size = Size::new(400, 2);

fn main() -> anyhow::Result<()> {
    uml::become_init_if_asked();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |wanted: &str| arguments.iter().any(|argument| argument == wanted);
    if has(PROXY) {
        return proxy::run();
    }
    if has(compare::api::nodes::NODES) && !has(compare::COMPARE) {
        return compare::api::nodes::run(&arguments);
    }
    World::sweep()?;
    if has(compare::COMPARE) {
        return compare::run(&arguments);
    }
    // Cargo says `--bench` to a benchmark that it runs as such.
    let extent = if !has("--bench") {
        Extent::Tiny
    } else if std::env::var_os("BENCH_QUICK").is_some_and(|value| value != "0") {
        Extent::Quick
    } else {
        Extent::Full
    };
    if has(ipvs::INSIDE) {
        return ipvs::inside(extent);
    }
    let is_asked = |section: &str| has(section) || !SECTIONS.into_iter().any(has);
    let mut page = Page::new(report::head()?);
    if is_asked(ENGINE) {
        engine(extent, &mut page)?;
    }
    if is_asked(API) {
        page.write(&api(extent)?);
    }
    if is_asked(IPTABLES) {
        iptables::section(extent, &mut page)?;
    }
    if is_asked(IPVS) {
        page.write(&ipvs::section()?);
    }
    if is_asked(CONNTRACK) {
        page.write(&conntrack::section(extent)?);
    }
    page.close();
    println!("\n{}", page.text());
    match extent {
        Extent::Tiny if SECTIONS.into_iter().any(has) => Ok(()),
        Extent::Tiny => compare::trial::run(),
        Extent::Quick | Extent::Full => page.keep(),
    }
}

/// Measures the engine alone, and kube-proxy's shape of one size.
fn engine(extent: Extent, page: &mut Page) -> anyhow::Result<()> {
    let (sizes, compared) = match extent {
        Extent::Tiny => (&[TINY][..], Some(TINY)),
        Extent::Quick => (&SIZES[..2], None),
        Extent::Full => (&SIZES[..], Some(COMPARED)),
    };
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
    report::section(&results, comparison.as_ref(), page)
}

/// Measures the daemon with an API server. Many changes a second are made with the first size only.
fn api(extent: Extent) -> anyhow::Result<String> {
    let (sizes, seconds) = match extent {
        Extent::Tiny => (&[TINY][..], 1),
        Extent::Quick => (&API_SIZES[..1], 5),
        Extent::Full => (&API_SIZES[..], 60),
    };
    let churns = std::iter::once(Some(Duration::from_secs(seconds))).chain(std::iter::repeat(None));
    let mut results = Vec::new();
    for (size, churn) in sizes.iter().zip(churns) {
        eprintln!("measuring {size} through the API server ...");
        results.push(api::measure(*size, churn)?);
    }
    Ok(api::report::section(&results)?)
}
