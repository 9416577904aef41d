//! `ferrovia-demo`: runs the real proxy in a small cluster of network namespaces and shows what it does.
//!
//! - [`cluster`]: the cluster, the proxy on its node, and its folder of manifests.
//! - [`proxy`], [`manifests`]: its parts; [`monitor`]: observes writes to nf_tables.
//! - [`traffic`]: calls from hosts of the cluster, and the pods that answered.
//! - [`scenes`]: the scenes in order. Every scene asserts what it shows.
//! - [`report`]: the output.
//! - [`keep`]: keeps the cluster running afterwards, to try things out.
//!
//! It creates and removes only its own network namespaces and does not touch the host's network.

mod cluster;
mod keep;
mod manifests;
mod monitor;
mod proxy;
mod report;
mod scenes;
mod traffic;

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use clap::Parser;
use ferrovia_lab::interrupt::Interrupt;
use ferrovia_lab::rootless;

use crate::cluster::DemoCluster;
use crate::report::DemoReport;

/// Shows Ferrovia at work in a small cluster of network namespaces. Needs root or user namespaces.
#[derive(Debug, Parser)]
#[command(name = "ferrovia-demo")]
struct Args {
    /// Path of the ferrovia program
    #[arg(long, value_name = "FILE")]
    ferrovia: PathBuf,

    /// Folder of manifests; scenes edit a copy of it
    #[arg(long, value_name = "DIR")]
    manifests: PathBuf,

    /// Keep the cluster running until Ctrl-C and follow changes in the folder
    #[arg(long)]
    keep: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("ferrovia-demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the demo; returns whether every check passed without an interruption.
fn run(args: &Args) -> anyhow::Result<bool> {
    ensure_possible()?;
    // Before anything that has to be cleaned up.
    let interrupt = Interrupt::watch().context("cannot watch for Ctrl-C")?;
    let begin = Instant::now();
    let mut report = DemoReport::to_stdout();
    let mut cluster = DemoCluster::build(&args.ferrovia, &args.manifests, interrupt.clone())?;
    report.opening(&cluster);
    scenes::run(&mut cluster, &mut report)?;
    report.summary(begin.elapsed(), interrupt.is_raised());
    if args.keep && !interrupt.is_raised() {
        keep::run_until_interrupted(&mut cluster, &mut report)?;
        return Ok(report.all_passed());
    }
    Ok(report.all_passed() && !interrupt.is_raised())
}

/// Checks the requirements before anything is created.
fn ensure_possible() -> anyhow::Result<()> {
    // The owner of a process's folder is its effective user.
    let user = std::fs::metadata("/proc/self")
        .context("cannot determine the current user")?
        .uid();
    ensure!(
        user == 0,
        "cannot create network namespaces: {}",
        rootless::advice()
    );
    for (tool, question, package) in [("ip", "-V", "iproute2"), ("nft", "-v", "nftables")] {
        let status = Command::new(tool)
            .arg(question)
            .stdout(Stdio::null())
            .status();
        match status {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!("cannot find the program {tool}; install the package {package}")
            }
            Err(error) => return Err(error).with_context(|| format!("cannot run {tool}")),
        }
    }
    Ok(())
}
