//! `ferrovia-demo`: the real proxy at work in a small cluster of network namespaces, on one screen.
//!
//! - [`stage`]: the cluster, the proxy in its node, and the folder of manifests it follows.
//! - [`proxy`], [`manifests`]: the parts of it; [`monitor`]: hears what is written to the kernel.
//! - [`traffic`]: calls from places of the cluster, and who answered them.
//! - [`scenes`]: what is shown, in order. Every scene asserts what it shows.
//! - [`report`]: how it looks on the screen.
//! - [`keep`]: staying up afterwards, for people who want to play.
//!
//! Only namespaces of its own are made and removed; the host's network is left alone.

mod keep;
mod manifests;
mod monitor;
mod proxy;
mod report;
mod scenes;
mod stage;
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

use crate::report::Report;
use crate::stage::Stage;

/// Shows Ferrovia at work in a small cluster of network namespaces. Needs root or user namespaces.
#[derive(Debug, Parser)]
#[command(name = "ferrovia-demo")]
struct Args {
    /// The proxy's program
    #[arg(long, value_name = "FILE")]
    ferrovia: PathBuf,

    /// Folder of manifests to show it on
    #[arg(long, value_name = "DIR")]
    manifests: PathBuf,

    /// Stay up afterwards, following the folder itself, until Ctrl-C
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

/// Runs the demo; whether every check passed and nobody interrupted it.
fn run(args: &Args) -> anyhow::Result<bool> {
    ensure_possible()?;
    // Before anything that would have to be tidied up.
    let interrupt = Interrupt::watch().context("cannot watch for Ctrl-C")?;
    let begin = Instant::now();
    let mut report = Report::to_stdout();
    let mut stage = Stage::build(&args.ferrovia, &args.manifests, interrupt.clone())?;
    report.opening(&stage);
    scenes::play(&mut stage, &mut report)?;
    report.summary(begin.elapsed(), interrupt.is_raised());
    if args.keep && !interrupt.is_raised() {
        keep::stay(&mut stage, &mut report)?;
        return Ok(report.all_passed());
    }
    Ok(report.all_passed() && !interrupt.is_raised())
}

/// Says what is missing before anything is begun, rather than in the middle.
fn ensure_possible() -> anyhow::Result<()> {
    // A process's folder belongs to the user it acts for.
    let user = std::fs::metadata("/proc/self")
        .context("cannot tell who runs this")?
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
                bail!("the program {tool} is missing; install the package {package}")
            }
            Err(error) => return Err(error).with_context(|| format!("cannot run {tool}")),
        }
    }
    Ok(())
}
